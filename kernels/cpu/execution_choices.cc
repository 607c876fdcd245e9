#include "kernels/cpu/execution_choices.h"

#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>
#include <string>

#include "kernels/cpu/tiled_product.h"

namespace dmuon::kernels {
namespace {

// Multiples of the micro-kernel's 32.
constexpr std::array<int, 3> kSymmetricTiles = {32, 64, 128};
constexpr std::array<int, 3> kProductTiles = {64, 128, 256};
static_assert(kProductTiles.back() <= kLargestTile);
constexpr int kMostShared = 1 << 16;
constexpr int64_t kLargestWorkspace = 1LL << 30;  // that a choice may take

// The sides worth trying besides `own`: those that cut `size`, and the smallest that does not.
std::vector<int> OtherSides(std::span<const int> sides, int64_t own, int64_t size) {
  std::vector<int> others;
  for (const int side : sides) {
    if (side != own) {
      others.push_back(side);
    }
    if (side >= size) {
      break;
    }
  }
  return others;
}

// How the matrices of a batch go over threads: the default, and what is not the same.
std::vector<MuonExecution> Sharings(const CpuExecutionCase& given) {
  std::vector<MuonExecution> all = {{}};
  if (given.batch < 2) {
    return all;
  }
  const bool can_be_whole = given.batch >= given.threads;
  const bool whole = given.whole_by_default && can_be_whole;
  if (!whole && can_be_whole && given.bytes * given.threads <= kLargestWorkspace) {
    all.push_back({.sharing = MuonExecution::kWholeMatrices});
  }
  if (whole && given.threads > 1) {
    all.push_back({.sharing = MuonExecution::kSharedMatrices});
  }
  if (given.threads > 1 && given.part_by_default > 1) {
    all.push_back({.sharing = MuonExecution::kSharedMatrices, .part = 1});
  }
  return all;
}

bool IsIn(std::span<const int> sides, int side) {
  return side == 0 || std::find(sides.begin(), sides.end(), side) != sides.end();
}

void Require(bool valid, const MuonExecution& execution) {
  if (!valid) {
    throw std::invalid_argument("the cpu device cannot execute a step with " + TextOf(execution) +
                                ": remove that record, or tune again with --again");
  }
}

}  // namespace

std::vector<MuonExecution> CpuCandidates(const CpuExecutionCase& given) {
  constexpr ElementType kType = ElementType::kFloat32;  // of products that micro-kernels run
  std::vector<MuonExecution> all;
  for (const MuonExecution& sharing : Sharings(given)) {
    all.push_back(sharing);
    if (!given.tiles) {
      continue;
    }
    // One side at a time: the two kinds of products hardly meet.
    for (const int side : OtherSides(kSymmetricTiles, TileSide(kType, true), given.m)) {
      all.emplace_back(sharing).symmetric_tile = side;
    }
    for (const int side : OtherSides(kProductTiles, TileSide(kType, false), given.n)) {
      all.emplace_back(sharing).product_tile = side;
    }
  }
  return all;
}

void ValidateCpuExecution(const MuonExecution& execution) {
  Require(IsIn(kSymmetricTiles, execution.symmetric_tile), execution);
  Require(IsIn(kProductTiles, execution.product_tile), execution);
  Require(execution.sharing >= 0 && execution.sharing <= MuonExecution::kSharedMatrices, execution);
  Require(execution.lanes == 0, execution);
  Require(execution.part >= 0 && execution.part <= kMostShared, execution);
}

}  // namespace dmuon::kernels
