#include "kernels/cpu/elementwise.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/streaming_store.h"
#include "kernels/cpu/vector_clones.h"
#include "kernels/cpu/vector_stream.h"

namespace dmuon::kernels {
namespace {

constexpr int64_t kConvertBlock = 16384;

constexpr int kLanes = SquaredSumLanes::kLanes;
using SquareLanes = std::array<double, kLanes>;

// Element i goes to lane i modulo kLanes; `count` is a multiple of it.
inline void AddSquares(const float* data, int64_t count, SquareLanes& lanes) {
  SquareLanes sums = lanes;
  for (int64_t i = 0; i < count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = data[i + lane];
      sums[lane] += value * value;
    }
  }
  lanes = sums;
}

double SumOf(const SquareLanes& lanes) {
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

// Whole blocks that one thread reads side by side: a core gets more from memory out of several
// streams than out of one.
constexpr int64_t kStreams = 4;

// sums[s] = SquaredSum of block s of kStreams blocks that follow each other.
DMUON_VECTOR_CLONES void SquaredSumsOfStreams(const float* data, double* sums) {
  constexpr int64_t kPiece = 64;
  std::array<SquareLanes, kStreams> lanes{};
  for (int64_t begin = 0; begin < kNormBlock; begin += kPiece) {
    for (int64_t stream = 0; stream < kStreams; ++stream) {
      AddSquares(data + stream * kNormBlock + begin, kPiece, lanes[stream]);
    }
  }
  std::transform(lanes.begin(), lanes.end(), sums, SumOf);
}

}  // namespace

DMUON_VECTOR_CLONES void SquaredSumLanes::Add(const float* data, int64_t count) {
  const int64_t whole = count / kLanes * kLanes;
  AddSquares(data, whole, lanes_);
  for (int64_t i = whole; i < count; ++i) {
    const double value = data[i];
    lanes_[i - whole] += value * value;
  }
}

double SquaredSumLanes::Sum() const { return SumOf(lanes_); }

double SquaredSum(const float* data, int64_t count) {
  SquaredSumLanes lanes;
  lanes.Add(data, count);
  return lanes.Sum();
}

NormAndFinite MeasureNormAndFinite(ThreadPool& pool, const float* data, int64_t count,
                                   std::vector<double>& block_sums) {
  const int64_t blocks = NormBlocks(count);
  if (static_cast<int64_t>(block_sums.size()) < blocks) {
    block_sums.resize(blocks);
  }
  // Side by side only where every thread has several groups to do.
  const int64_t groups = count / (kStreams * kNormBlock);
  const int64_t grouped = groups >= 4LL * pool.threads() ? groups * kStreams : 0;
  pool.ParallelFor(grouped / kStreams, [&](int64_t group, int) {
    const int64_t first = group * kStreams;
    SquaredSumsOfStreams(data + first * kNormBlock, block_sums.data() + first);
  });
  pool.ParallelFor(blocks - grouped, [&](int64_t index, int) {
    const int64_t block = grouped + index;
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

namespace {

// Narrow: ToBFloat16 or ToFloat16.
template <bool kStreamed, typename Narrow>
DMUON_ALWAYS_INLINE void ConvertRange(const float* from, int64_t size, uint16_t* to,
                                      Narrow narrow) {
  int64_t i = 0;
  for (; i + kVector <= size; i += kVector) {
    FloatVector value;
    HalfVector halves;
    Load(from + i, value);
    narrow(value, halves);
    Store<kStreamed>(halves, to + i);
  }
  for (; i < size; ++i) {
    narrow(from[i], to[i]);
  }
}

template <bool kStreamed>
DMUON_ALWAYS_INLINE void NarrowRange(ElementType type, const float* from, int64_t size,
                                     uint16_t* to) {
  if (type == ElementType::kBFloat16) {
    ConvertRange<kStreamed>(from, size, to,
                            [](const auto& value, auto& half) { ToBFloat16(value, half); });
  } else {
    ConvertRange<kStreamed>(from, size, to,
                            [](const auto& value, auto& half) { ToFloat16(value, half); });
  }
}

DMUON_VECTOR_CLONES void NarrowCached(ElementType type, const float* from, int64_t size,
                                      uint16_t* to) {
  NarrowRange<false>(type, from, size, to);
}

DMUON_VECTOR_CLONES void NarrowStreamed(ElementType type, const float* from, int64_t size,
                                        uint16_t* to) {
  NarrowRange<true>(type, from, size, to);
}

}  // namespace

void ConvertTo(ThreadPool& pool, ElementType type, const float* data, int64_t count, void* host) {
  const bool streamed = count * SizeOf(type) >= kStreamedBytes;
  const int64_t blocks = (count + kConvertBlock - 1) / kConvertBlock;
  pool.ParallelFor(blocks, [&](int64_t block, int) {
    const int64_t begin = block * kConvertBlock;
    const int64_t size = std::min(kConvertBlock, count - begin);
    char* to = static_cast<char*>(host) + begin * SizeOf(type);
    if (type == ElementType::kFloat32) {
      StoreRun(streamed, data + begin, size * SizeOf(type), to);
    } else {
      const auto narrow = streamed && CanStream(to) ? NarrowStreamed : NarrowCached;
      narrow(type, data + begin, size, reinterpret_cast<uint16_t*>(to));
    }
    FinishStores();
  });
}

}  // namespace dmuon::kernels
