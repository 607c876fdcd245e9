#include "kernels/cpu/elementwise.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/typed_rows.h"

namespace dmuon::kernels {
namespace {

constexpr int64_t kConvertBlock = 16384;

}  // namespace

double SquaredSum(const float* data, int64_t count) {
  constexpr int kLanes = 8;
  std::array<double, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = data[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (int lane = 0; i < count; ++i, ++lane) {
    const double value = data[i];
    lanes[lane] += value * value;
  }
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

NormAndFinite MeasureNormAndFinite(ThreadPool& pool, const float* data, int64_t count,
                                   std::vector<double>& block_sums) {
  const int64_t blocks = NormBlocks(count);
  if (static_cast<int64_t>(block_sums.size()) < blocks) {
    block_sums.resize(blocks);
  }
  pool.ParallelFor(blocks, [&](int64_t block, int) {
    const int64_t begin = block * kNormBlock;
    block_sums[block] = SquaredSum(data + begin, std::min(kNormBlock, count - begin));
  });
  NormAndFinite result;
  for (int64_t block = 0; block < blocks; ++block) {
    result.squared_sum += block_sums[block];
  }
  result.finite = std::isfinite(result.squared_sum);
  return result;
}

void ConvertTo(ThreadPool& pool, ElementType type, const float* data, int64_t count, void* host) {
  const int64_t blocks = (count + kConvertBlock - 1) / kConvertBlock;
  pool.ParallelFor(blocks, [&](int64_t block, int) {
    const int64_t begin = block * kConvertBlock;
    StoreRow(type, data + begin, std::min(kConvertBlock, count - begin), host, begin);
  });
}

}  // namespace dmuon::kernels
