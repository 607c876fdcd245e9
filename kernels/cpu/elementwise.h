// Elementwise operations of the CPU device. Each splits its work into fixed blocks, so that results
// do not depend on the number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "kernels/thread_pool.h"

namespace dmuon::kernels {

// Norms are fp64 sums over blocks of this many elements; the blocks are added in order.
inline constexpr int64_t kNormBlock = 65536;

constexpr int64_t NormBlocks(int64_t count) { return (count + kNormBlock - 1) / kNormBlock; }

// Sum of the squares of up to kNormBlock elements, in fp64, in a fixed order. fp32 squares cannot
// overflow it, so it is finite exactly when all elements are.
double SquaredSum(const float* data, int64_t count);

// The same for a block that comes in pieces: all but the last of a multiple of kLanes elements.
class SquaredSumLanes {
 public:
  static constexpr int kLanes = 8;

  void Add(const float* data, int64_t count);
  double Sum() const;

 private:
  std::array<double, kLanes> lanes_{};
};

void ReduceSources(ThreadPool& pool, ElementType type, std::span<const ReduceSource> sources,
                   int64_t count, float factor, float* destination);

// `block_sums` is scratch that grows to the number of blocks.
NormAndFinite MeasureNormAndFinite(ThreadPool& pool, const float* data, int64_t count,
                                   std::vector<double>& block_sums);

void ConvertTo(ThreadPool& pool, ElementType type, const float* data, int64_t count, void* host);

bool RunAdamWStep(ThreadPool& pool, const AdamWValues& values, const AdamWRange& range);

}  // namespace dmuon::kernels
