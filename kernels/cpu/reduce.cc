#include <algorithm>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/typed_rows.h"
#include "kernels/reduction_tree.h"

namespace dmuon::kernels {
namespace {

constexpr int64_t kReduceBlock = 1024;

// The sums in progress of one block of elements. Not initialised on purpose: it is large, and only
// what was loaded is read.
struct BlockSlots {
  ElementType type;
  int64_t begin;
  int64_t size;
  float sums[ReductionTree<BlockSlots>::kMaxSlots][kReduceBlock];

  void Load(int slot, const void* source) { LoadRow(type, source, begin, size, sums[slot]); }
  void Add(int slot, int other) {
    for (int64_t i = 0; i < size; ++i) {
      sums[slot][i] += sums[other][i];
    }
  }
  void Copy(int slot, int other) { std::copy_n(sums[other], size, sums[slot]); }
};

}  // namespace

void ReduceSources(ThreadPool& pool, ElementType type, std::span<const ReduceSource> sources,
                   int64_t count, float factor, float* destination) {
  const int64_t blocks = (count + kReduceBlock - 1) / kReduceBlock;
  pool.ParallelFor(blocks, [&](int64_t block, int) {
    BlockSlots slots;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    slots.type = type;
    slots.begin = block * kReduceBlock;
    slots.size = std::min(kReduceBlock, count - slots.begin);
    ReductionTree<BlockSlots> tree(slots);
    for (const ReduceSource& source : sources) {
      tree.Push(source.data);
    }
    const bool present = tree.Finish();
    for (int64_t i = 0; i < slots.size; ++i) {
      destination[slots.begin + i] = present ? factor * slots.sums[0][i] : 0.0F;
    }
  });
}

}  // namespace dmuon::kernels
