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

// The sides worth trying: all that cut `size`, and the smallest that does not.
std::vector<int> SidesFor(std::span<const int> sides, int64_t size) {
  std::vector<int> useful;
  for (const int side : sides) {
    useful.push_back(side);
    if (side >= size) {
      break;
    }
  }
  return useful;
}

// How the matrices of a batch go over threads, with the backend's own tiles.
std::vector<MuonExecution> Sharings(const CpuExecutionCase& given) {
  std::vector<MuonExecution> all = {{}};
  if (given.batch < 2) {
    return all;
  }
  const auto add = [&](int sharing, int64_t part) {
    all.push_back({.sharing = sharing, .part = static_cast<int>(part)});
  };
  if (given.batch >= given.threads && given.bytes * given.threads <= kLargestWorkspace) {
    add(MuonExecution::kWholeMatrices, 0);
  }
  if (given.threads > 1) {
    add(MuonExecution::kSharedMatrices, 0);
    add(MuonExecution::kSharedMatrices, 1);
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
  std::vector<MuonExecution> all;
  for (const MuonExecution& sharing : Sharings(given)) {
    all.push_back(sharing);
    if (!given.tiles) {
      continue;
    }
    for (const int symmetric : SidesFor(kSymmetricTiles, given.m)) {
      for (const int product : SidesFor(kProductTiles, given.n)) {
        MuonExecution& tiled = all.emplace_back(sharing);
        tiled.symmetric_tile = symmetric;
        tiled.product_tile = product;
      }
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
