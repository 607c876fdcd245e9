#include "kernels/cuda/execution_choices.h"

#include <stdexcept>
#include <string>

namespace dmuon::kernels::cuda {
namespace {

constexpr int kTileSides[] = {128, 256, 512, 1024};
constexpr int kLanes[] = {1, 2, 4, 8};
constexpr int kWholeProducts = 1 << 24;  // a tile beyond every side

// Of devices that promise no bits: with a batch, smaller matrices have enough tiles too.
int64_t BatchedTileSide(int64_t padded_m) {
  constexpr int64_t kSide = 256;
  constexpr int64_t kSmallest = 768;
  return padded_m >= kSmallest ? kSide : 0;
}

}  // namespace

std::vector<MuonExecution> CudaCandidates(bool deterministic, const Shape& shape, int64_t batch) {
  std::vector<MuonExecution> choices(1);
  if (deterministic) {
    for (const int lanes : kLanes) {
      if (lanes <= batch && lanes != ShippedLanes(shape.padded_m())) {
        choices.push_back({.lanes = lanes});
      }
    }
    return choices;
  }
  const int64_t shipped = BatchedTileSide(shape.padded_m());
  if (shipped != 0) {
    choices.push_back({.symmetric_tile = kWholeProducts});
  }
  for (const int side : kTileSides) {
    if (side < shape.padded_m() && side != shipped) {
      choices.push_back({.symmetric_tile = side});
    }
  }
  if (batch > 1) {
    choices.push_back({.part = 1, .lanes = 4});
    if (shipped != 0) {
      choices.push_back({.symmetric_tile = kWholeProducts, .part = 1, .lanes = 4});
    }
  }
  return choices;
}

void ValidateCudaExecution(bool deterministic, const MuonExecution& choice) {
  const bool known = choice.product_tile == 0 && choice.sharing == 0 && choice.lanes >= 0 &&
                     choice.lanes <= kMaxLanes;
  const bool keeps_bits = choice.symmetric_tile == 0 && choice.part == 0;
  const bool changes_bits_well =
      choice.symmetric_tile >= 0 && choice.part >= 0 && choice.symmetric_tile % kTileUnit == 0;
  if (!known || !(deterministic ? keeps_bits : changes_bits_well)) {
    throw std::invalid_argument("the " + std::string(deterministic ? "deterministic " : "") +
                                "cuda device cannot execute a step with " + TextOf(choice) +
                                ": remove that record, or tune again with --again");
  }
}

Execution ExecutionOf(const CudaDeviceOptions& options, const Shape& shape,
                      const MuonExecution& choice) {
  const int64_t m = shape.padded_m();
  Execution execution;
  execution.tile_side = options.deterministic ? ShippedTileSide(m) : BatchedTileSide(m);
  if (options.tile_side >= 0) {
    execution.tile_side = options.tile_side;
  }
  if (choice.symmetric_tile != 0) {
    execution.tile_side = choice.symmetric_tile < m ? choice.symmetric_tile : 0;
  }
  execution.per_call = options.deterministic ? 1 : choice.part;
  execution.lanes = options.deterministic ? ShippedLanes(m) : 1;
  if (choice.lanes != 0) {
    execution.lanes = choice.lanes;
  }
  return execution;
}

}  // namespace dmuon::kernels::cuda
