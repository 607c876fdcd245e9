#include <algorithm>
#include <array>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/streaming_store.h"
#include "kernels/cpu/vector_clones.h"
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

template <typename T>
[[gnu::always_inline]] inline void SumTyped(const Leaves& leaves, int64_t begin, int64_t size,
                                            float factor, float* __restrict sum, float (*load)(T)) {
  const auto run = [&](int leaf) { return static_cast<const T*>(leaves.data[leaf]) + begin; };
  const T* a = run(0);
  if (leaves.count == 1) {
    for (int64_t i = 0; i < size; ++i) {
      sum[i] = factor * load(a[i]);
    }
    return;
  }
  const T* b = run(1);
  if (leaves.count == 2) {
    for (int64_t i = 0; i < size; ++i) {
      sum[i] = factor * (load(a[i]) + load(b[i]));
    }
    return;
  }
  const T* c = run(2);
  const T* d = run(3);
  for (int64_t i = 0; i < size; ++i) {
    sum[i] = factor * ((load(a[i]) + load(b[i])) + (load(c[i]) + load(d[i])));
  }
}

constexpr float Same(float value) { return value; }

// sum[i] = factor * the leaves' sum at element begin + i.
DMUON_VECTOR_CLONES void SumLeaves(ElementType type, const Leaves& leaves, int64_t begin,
                                   int64_t size, float factor, float* sum) {
  switch (type) {
    case ElementType::kFloat32:
      return SumTyped<float>(leaves, begin, size, factor, sum, Same);
    case ElementType::kBFloat16:
      return SumTyped<uint16_t>(leaves, begin, size, factor, sum, FloatFromBFloat16);
    case ElementType::kFloat16:
      return SumTyped<uint16_t>(leaves, begin, size, factor, sum, FloatFromFloat16);
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
      SumLeaves(type_, leaves_[0], begin_, size_, factor, result);
    } else {
      Scale(room_[0], size_, factor, result);
    }
  }

 private:
  static constexpr int kSlots = ReductionTree<RunSlots>::kMaxSlots;

  void Form(int slot) {
    if (leaves_[slot].count > 0) {
      SumLeaves(type_, leaves_[slot], begin_, size_, 1.0F, room_[slot]);
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

}  // namespace

void ReduceSources(ThreadPool& pool, ElementType type, std::span<const ReduceSource> sources,
                   int64_t count, float factor, float* destination) {
  const bool streamed = count * static_cast<int64_t>(sizeof(float)) >= kStreamedBytes;
  const int64_t blocks = (count + kReduceBlock - 1) / kReduceBlock;
  pool.ParallelFor(blocks, [&](int64_t block, int) {
    const int64_t end = std::min((block + 1) * kReduceBlock, count);
    for (int64_t begin = block * kReduceBlock; begin < end; begin += kRunElements) {
      const int64_t size = std::min(kRunElements, end - begin);
      alignas(64) float result[kRunElements];
      ReduceRun(type, sources, begin, size, factor, result);
      StoreRun(streamed, result, size * static_cast<int64_t>(sizeof(float)), destination + begin);
    }
    FinishStores();
  });
}

}  // namespace dmuon::kernels
