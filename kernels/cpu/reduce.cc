#include <algorithm>
#include <array>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/typed_rows.h"

namespace dmuon::kernels {
namespace {

constexpr int64_t kReduceBlock = 1024;
constexpr int kMaxLevels = 40;  // 2^40 sources

using Sum = std::array<float, kReduceBlock>;

// The sums of one block of elements that are still to be merged: each covers half as many sources
// as the one below it, or fewer, like the digits of a binary counter. An absent source is a node
// without a value: its sibling moves up unchanged.
class PendingSums {
 public:
  explicit PendingSums(int64_t count) : count_(count) {}

  void Push(ElementType type, const void* data, int64_t begin) {
    Node& node = nodes_[depth_++];
    node.sources = 1;
    node.present = data != nullptr;
    if (node.present) {
      LoadRow(type, data, begin, count_, node.sum.data());
    }
    while (depth_ > 1 && nodes_[depth_ - 1].sources == nodes_[depth_ - 2].sources) {
      MergeTop();
    }
  }

  // Null if no source was present.
  const float* Finish() {
    while (depth_ > 1) {
      MergeTop();
    }
    return depth_ == 1 && nodes_[0].present ? nodes_[0].sum.data() : nullptr;
  }

 private:
  struct Node {
    int64_t sources = 0;
    bool present = false;
    Sum sum;
  };

  void MergeTop() {
    Node& right = nodes_[--depth_];
    Node& left = nodes_[depth_ - 1];
    left.sources += right.sources;
    if (!right.present) {
      return;
    }
    if (!left.present) {
      std::copy_n(right.sum.data(), count_, left.sum.data());
      left.present = true;
      return;
    }
    for (int64_t i = 0; i < count_; ++i) {
      left.sum[i] += right.sum[i];
    }
  }

  int64_t count_;
  int depth_ = 0;
  std::array<Node, kMaxLevels> nodes_;
};

}  // namespace

void ReduceSources(ThreadPool& pool, ElementType type, std::span<const ReduceSource> sources,
                   int64_t count, float factor, float* destination) {
  const int64_t blocks = (count + kReduceBlock - 1) / kReduceBlock;
  pool.ParallelFor(blocks, [&](int64_t block, int) {
    const int64_t begin = block * kReduceBlock;
    const int64_t size = std::min(kReduceBlock, count - begin);
    PendingSums sums(size);
    for (const ReduceSource& source : sources) {
      sums.Push(type, source.data, begin);
    }
    const float* sum = sums.Finish();
    for (int64_t i = 0; i < size; ++i) {
      destination[begin + i] = sum != nullptr ? factor * sum[i] : 0.0F;
    }
  });
}

}  // namespace dmuon::kernels
