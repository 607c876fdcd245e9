// The canonical order of sums over trainers, shared by the backends.
#pragma once

#include <array>
#include <cstdint>

namespace dmuon::kernels {

// Sources are pushed in order and added as a balanced binary tree: neighbours first, an odd last
// one moves up unchanged. An absent source is a node without a value: its sibling moves up
// unchanged.
//
// Sums in progress lie in numbered slots, as many as the binary logarithm of the source count plus
// one: each covers fewer sources than the one below it, like the digits of a binary counter.
// `Slots` needs Load(slot, source), Add(slot, other) and Copy(slot, other), the latter two from
// `other` into `slot`.
template <typename Slots>
class ReductionTree {
 public:
  static constexpr int kMaxSlots = 40;

  explicit ReductionTree(Slots& slots) : slots_(slots) {}

  static constexpr int SlotsFor(int64_t sources) {
    int slots = 1;
    while (sources > 1) {
      sources = (sources + 1) / 2;
      ++slots;
    }
    return slots;
  }

  // Null for an absent source.
  void Push(const void* source) {
    nodes_[depth_] = {1, source != nullptr};
    if (source != nullptr) {
      slots_.Load(depth_, source);
    }
    ++depth_;
    while (depth_ > 1 && nodes_[depth_ - 1].sources == nodes_[depth_ - 2].sources) {
      MergeTop();
    }
  }

  // The sum is in slot 0. Returns false if no source was present.
  bool Finish() {
    while (depth_ > 1) {
      MergeTop();
    }
    return depth_ == 1 && nodes_[0].present;
  }

 private:
  struct Node {
    int64_t sources = 0;
    bool present = false;
  };

  void MergeTop() {
    const int right = --depth_;
    const int left = right - 1;
    nodes_[left].sources += nodes_[right].sources;
    if (!nodes_[right].present) {
      return;
    }
    if (nodes_[left].present) {
      slots_.Add(left, right);
    } else {
      slots_.Copy(left, right);
      nodes_[left].present = true;
    }
  }

  Slots& slots_;
  int depth_ = 0;
  std::array<Node, kMaxSlots> nodes_;
};

}  // namespace dmuon::kernels
