// Scratch memory of a device that is kept between steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace dmuon::kernels {

struct AlignedDelete {
  void operator()(std::byte* data) const;
};
using AlignedBytes = std::unique_ptr<std::byte[], AlignedDelete>;

// 64-byte aligned, not initialised. Throws std::bad_alloc.
AlignedBytes AllocateAligned(int64_t bytes);

// A bump allocator: Reset gives everything back and makes room, Take hands out pieces. Grows to the
// largest Reset seen, so that a steady state allocates nothing.
class Workspace {
 public:
  // Invalidates what was taken before. `bytes` must cover the Takes that follow, each rounded up by
  // RoundUp. Throws std::bad_alloc.
  void Reset(int64_t bytes);

  template <typename T>
  T* Take(int64_t count) {
    return static_cast<T*>(TakeBytes(count * static_cast<int64_t>(sizeof(T))));
  }

  void* TakeBytes(int64_t bytes);

  static constexpr int64_t RoundUp(int64_t bytes) { return (bytes + 63) / 64 * 64; }

 private:
  AlignedBytes memory_;
  int64_t capacity_ = 0;
  int64_t used_ = 0;
};

}  // namespace dmuon::kernels
