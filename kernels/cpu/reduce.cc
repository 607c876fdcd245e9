#include <algorithm>
#include <array>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/streaming_store.h"
#include "kernels/cpu/vector_clones.h"
#include "kernels/cpu/vector_stream.h"
#include "kernels/half_types.h"
#include "kernels/reduction_tree.h"

namespace dmuon::kernels {
namespace {

constexpr int64_t kReduceBlock = 16384;

// Up to four sources whose sum has not been formed yet: a full tree of 1, 2 or 4 leaves.
struct Leaves {
  std::array<const void*, 4> data;  // where the sources' first elements are
  int count;
};

// The leaves' sum at element i: T is float or FloatVector.
template <typename T, typename Element>
DMUON_ALWAYS_INLINE void SumAt(const Leaves& leaves, int64_t i, T& sum) {
  const auto load = [&](int leaf, T& value) {
    Load(static_cast<const Element*>(leaves.data[leaf]) + i, value);
  };
  T b;
  load(0, sum);
  if (leaves.count > 1) {
    load(1, b);
    sum += b;
  }
  if (leaves.count > 2) {
    T c;
    T d;
    load(2, c);
    load(3, d);
    sum += c + d;
  }
}

// sum[i] = factor * the leaves' sum at element begin + i.
template <typename Element, bool kStreamed>
DMUON_ALWAYS_INLINE void SumElements(const Leaves& given, int64_t begin, int64_t size, float factor,
                                     float* sum) {
  const Leaves leaves = given;
  int64_t i = 0;
  for (; i + kVector <= size; i += kVector) {
    FloatVector value;
    SumAt<FloatVector, Element>(leaves, begin + i, value);
    Store<kStreamed>(factor * value, sum + i);
  }
  for (; i < size; ++i) {
    float value = 0.0F;
    SumAt<float, Element>(leaves, begin + i, value);
    sum[i] = factor * value;
  }
}

// For each number of leaves a loop of its own.
template <typename Element, bool kStreamed>
DMUON_ALWAYS_INLINE void SumByCount(const Leaves& given, int64_t begin, int64_t size, float factor,
                                    float* sum) {
  Leaves leaves = given;
  for (const int count : {1, 2, 4}) {
    if (given.count == count) {
      leaves.count = count;
      SumElements<Element, kStreamed>(leaves, begin, size, factor, sum);
    }
  }
}

DMUON_VECTOR_CLONES void SumFloats(const Leaves& leaves, int64_t begin, int64_t size, float factor,
                                   float* sum) {
  SumByCount<float, false>(leaves, begin, size, factor, sum);
}

DMUON_VECTOR_CLONES void StreamSumOfFloats(const Leaves& leaves, int64_t begin, int64_t size,
                                           float factor, float* sum) {
  SumByCount<float, true>(leaves, begin, size, factor, sum);
}

DMUON_VECTOR_CLONES void SumBFloat16(const Leaves& leaves, int64_t begin, int64_t size,
                                     float factor, float* sum) {
  SumByCount<uint16_t, false>(leaves, begin, size, factor, sum);
}

DMUON_VECTOR_CLONES void StreamSumOfBFloat16(const Leaves& leaves, int64_t begin, int64_t size,
                                             float factor, float* sum) {
  SumByCount<uint16_t, true>(leaves, begin, size, factor, sum);
}

DMUON_VECTOR_CLONES void SumFloat16(const Leaves& leaves, int64_t begin, int64_t size, float factor,
                                    float* sum) {
  const auto value = [&](int leaf, int64_t i) {
    return FloatFromFloat16(static_cast<const uint16_t*>(leaves.data[leaf])[begin + i]);
  };
  for (int64_t i = 0; i < size; ++i) {
    sum[i] = value(0, i);
  }
  for (int64_t i = 0; leaves.count > 1 && i < size; ++i) {
    sum[i] += value(1, i);
  }
  for (int64_t i = 0; leaves.count > 2 && i < size; ++i) {
    sum[i] += value(2, i) + value(3, i);
  }
  for (int64_t i = 0; i < size; ++i) {
    sum[i] *= factor;
  }
}

void SumLeaves(ElementType type, const Leaves& leaves, int64_t begin, int64_t size, float factor,
               bool streamed, float* sum) {
  switch (type) {
    case ElementType::kFloat32:
      return (streamed ? StreamSumOfFloats : SumFloats)(leaves, begin, size, factor, sum);
    case ElementType::kBFloat16:
      return (streamed ? StreamSumOfBFloat16 : SumBFloat16)(leaves, begin, size, factor, sum);
    case ElementType::kFloat16:
      return SumFloat16(leaves, begin, size, factor, sum);
  }
}

DMUON_VECTOR_CLONES void AddInPlace(float* __restrict sum, const float* __restrict right,
                                    int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    sum[i] += right[i];
  }
}

DMUON_VECTOR_CLONES void Scale(const float* __restrict values, int64_t size, float factor,
                               float* __restrict result) {
  for (int64_t i = 0; i < size; ++i) {
    result[i] = factor * values[i];
  }
}

// The sums in progress of one run of elements. What a slot holds is either still leaves, so that up
// to four sources are read in one pass, or a sum in its room. Not initialised on purpose: it is
// large, and only what was loaded is read.
class RunSlots {
 public:
  RunSlots(ElementType type, int64_t begin, int64_t size)
      : type_(type), begin_(begin), size_(size) {}

  void Load(int slot, const void* source) { leaves_[slot] = {{source}, 1}; }

  void Add(int slot, int other) {
    Leaves& left = leaves_[slot];
    const Leaves& right = leaves_[other];
    if (left.count == right.count && (left.count == 1 || left.count == 2)) {
      std::copy_n(right.data.begin(), right.count, left.data.begin() + left.count);
      left.count *= 2;
      return;
    }
    Form(slot);
    Form(other);
    AddInPlace(room_[slot], room_[other], size_);
  }

  void Copy(int slot, int other) {
    leaves_[slot] = leaves_[other];
    if (leaves_[slot].count == 0) {
      std::copy_n(room_[other], size_, room_[slot]);
    }
  }

  // result[i] = factor * the sum in slot 0.
  void Finish(float factor, float* result) const {
    if (leaves_[0].count > 0) {
      SumLeaves(type_, leaves_[0], begin_, size_, factor, false, result);
    } else {
      Scale(room_[0], size_, factor, result);
    }
  }

 private:
  static constexpr int kSlots = ReductionTree<RunSlots>::kMaxSlots;

  void Form(int slot) {
    if (leaves_[slot].count > 0) {
      SumLeaves(type_, leaves_[slot], begin_, size_, 1.0F, false, room_[slot]);
      leaves_[slot].count = 0;
    }
  }

  ElementType type_;
  int64_t begin_;
  int64_t size_;
  Leaves leaves_[kSlots];
  alignas(64) float room_[kSlots][kRunElements];
};

// result[i] = factor * the sum at element begin + i, size <= kRunElements.
void ReduceRun(ElementType type, std::span<const ReduceSource> sources, int64_t begin, int64_t size,
               float factor, float* result) {
  RunSlots slots(type, begin, size);  // NOLINT(cppcoreguidelines-pro-type-member-init)
  ReductionTree<RunSlots> tree(slots);
  for (const ReduceSource& source : sources) {
    tree.Push(source.data);
  }
  if (tree.Finish()) {
    slots.Finish(factor, result);
  } else {
    std::fill_n(result, size, 0.0F);
  }
}

// Sources that are all there and make a full tree of leaves; no leaves otherwise.
Leaves LeavesOf(std::span<const ReduceSource> sources) {
  Leaves leaves{{}, 0};
  const std::size_t count = sources.size();
  if ((count == 1 || count == 2 || count == 4) &&
      std::all_of(sources.begin(), sources.end(),
                  [](const ReduceSource& source) { return source.data != nullptr; })) {
    std::transform(sources.begin(), sources.end(), leaves.data.begin(),
                   [](const ReduceSource& source) { return source.data; });
    leaves.count = static_cast<int>(count);
  }
  return leaves;
}

}  // namespace

void ReduceSources(ThreadPool& pool, ElementType type, std::span<const ReduceSource> sources,
                   int64_t count, float factor, float* destination) {
  const bool streamed = count * static_cast<int64_t>(sizeof(float)) >= kStreamedBytes;
  const int64_t blocks = (count + kReduceBlock - 1) / kReduceBlock;
  const Leaves leaves = LeavesOf(sources);
  const bool at_once = leaves.count > 0 && type != ElementType::kFloat16;
  pool.ParallelFor(blocks, [&](int64_t block, int) {
    const int64_t end = std::min((block + 1) * kReduceBlock, count);
    int64_t begin = block * kReduceBlock;
    if (at_once) {
      SumLeaves(type, leaves, begin, end - begin, factor,
                streamed && CanStream(destination + begin), destination + begin);
      begin = end;
    }
    for (; begin < end; begin += kRunElements) {
      const int64_t size = std::min(kRunElements, end - begin);
      alignas(64) float result[kRunElements];
      ReduceRun(type, sources, begin, size, factor, result);
      StoreRun(streamed, result, size * static_cast<int64_t>(sizeof(float)), destination + begin);
    }
    FinishStores();
  });
}

}  // namespace dmuon::kernels
