// The innermost product: sums of products of square blocks.
#pragma once

#include <cstdint>

#include "kernels/cpu/panel_matrix.h"

namespace dmuon::kernels {

// Code that libxsmm generated for one distance of the left blocks; `first` overwrites, `next` adds.
struct GeneratedBlockKernel {
  void (*first)() = nullptr;
  void (*next)() = nullptr;
};

// Generated once for each distance and kept by the library; both null where it has no such code.
GeneratedBlockKernel GenerateBlockKernel(int64_t left_stride);
// `code` is first or next; the rest as in BlockKernel::Run.
void RunGenerated(void (*code)(), const float* left, const float* right, int64_t count, float* c);

// A kernel for left blocks that are `left_stride` elements apart, as they lie along a block row.
class BlockKernel {
 public:
  explicit BlockKernel(int64_t left_stride);

  // c (+)= the sum over b < count of left[b] * right[b], in fp32; adds to c if `add`. The right
  // blocks lie one after the other, as they do down a panel.
  void Run(const float* left, const float* right, int64_t count, bool add, float* c) const;

 private:
  int64_t left_stride_;
  GeneratedBlockKernel generated_;
};

}  // namespace dmuon::kernels
