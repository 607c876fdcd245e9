// What one step of some matrices tells the device, in one block of memory: values, pointers and
// cleared flags. Kernels read it from there, so that a graph can be replayed with other ones.
#pragma once

#include <cstdint>

#include "kernels/cuda/layout.h"
#include "kernels/device.h"
#include "kernels/step_factors.h"

namespace dmuon::kernels::cuda {

// Bytes from the block's beginning, which is aligned for everything.
struct StepBlock {
  int64_t matrices = 0;  // `count` of MuonMatrix; MuonFactors are at 0
  int64_t flags = 0;     // `count` of int
  int64_t bytes = 0;
};

constexpr StepBlock StepBlockOf(int64_t count) {
  StepBlock block;
  block.matrices = RoundUp(int64_t{sizeof(MuonFactors)}, int64_t{alignof(MuonMatrix)});
  block.flags = block.matrices + count * int64_t{sizeof(MuonMatrix)};
  block.bytes = block.flags + count * int64_t{sizeof(int)};
  return block;
}

}  // namespace dmuon::kernels::cuda
