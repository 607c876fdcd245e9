// How the CUDA backend runs a step of a batch, apart from what it computes.
#pragma once

#include <cstdint>

#include "kernels/cuda/layout.h"
#include "kernels/options.h"

namespace dmuon::kernels::cuda {

struct Execution {
  // Symmetric products: 0 computes them whole; else the tiles of that side on and below the
  // diagonal, mirrored. A multiple of kTileUnit. Changes bits.
  int64_t tile_side = 0;
  // Matrices of one call of cuBLAS, at most; 0: as many as there is workspace for. Changes bits.
  int64_t per_call = 1;
  // Streams that work side by side, each on matrices of its own.
  int lanes = 1;

  friend constexpr bool operator==(const Execution&, const Execution&) = default;
};

inline constexpr int kMaxLanes = 8;
inline constexpr int64_t kTileUnit = 16;

// The shipped rule: a pure function of shape and storage, so that bits never depend on a
// measurement. Reasoned, not measured: a triangle pays where it has enough tiles for a whole device
// and each tile is large enough for the tensor cores.
constexpr int64_t ShippedTileSide(int64_t padded_m) {
  constexpr int64_t kSide = 256;
  constexpr int64_t kSmallest = 2048;
  return padded_m >= kSmallest ? kSide : 0;
}

// Small matrices leave more of a device idle.
constexpr int ShippedLanes(int64_t padded_m) {
  constexpr int64_t kSmall = 512;
  return padded_m <= kSmall ? kMaxLanes : 4;
}

// How matrices of a run are shared out: unit u, of at most `unit` consecutive matrices that one
// call covers, goes to lane u % lanes.
struct Split {
  int64_t unit = 1;
  int lanes = 1;

  constexpr int64_t Units(int64_t count) const { return CeilDivide(count, unit); }
  constexpr Range UnitRange(int64_t index, int64_t count) const {
    return PieceRange(index, unit, count);
  }
};

// For `count` matrices that need `bytes_each` of workspace, within `bytes_limit` if one fits.
constexpr Split SplitOf(const Execution& execution, int64_t count, int64_t bytes_each,
                        int64_t bytes_limit) {
  const auto at_least_one = [](int64_t value) { return value < 1 ? 1 : value; };
  const auto smaller = [](int64_t a, int64_t b) { return a < b ? a : b; };
  const int64_t fit = at_least_one(bytes_limit / bytes_each);
  const int64_t lanes = at_least_one(smaller(execution.lanes, smaller(fit, count)));
  Split split;
  split.unit = at_least_one(smaller(CeilDivide(count, lanes), fit / lanes));
  if (execution.per_call > 0) {
    split.unit = smaller(split.unit, execution.per_call);
  }
  split.lanes = static_cast<int>(at_least_one(smaller(lanes, split.Units(count))));
  return split;
}

}  // namespace dmuon::kernels::cuda
