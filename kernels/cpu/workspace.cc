#include "kernels/cpu/workspace.h"

#include <algorithm>
#include <cstdint>
#include <new>
#include <stdexcept>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace dmuon::kernels {
namespace {

constexpr std::align_val_t kAlignment{64};

// Loops over arrays beyond the caches, and products, which walk down columns and meet a page per
// row, then wait less for address translations. Where the advice is refused, nothing changes.
void AdviseLargePages(std::byte* data, int64_t bytes) {
#ifdef __linux__
  constexpr int64_t kPage = 4096;
  constexpr int64_t kSmallest = 4LL << 20;  // large pages have 2 MB: one whole one lies inside
  if (bytes >= kSmallest) {
    const auto misplaced = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) % kPage);
    const int64_t skipped = (kPage - misplaced) % kPage;
    madvise(data + skipped, (bytes - skipped) / kPage * kPage, MADV_HUGEPAGE);
  }
#endif
}

}  // namespace

void AlignedDelete::operator()(std::byte* data) const { ::operator delete(data, kAlignment); }

AlignedBytes AllocateAligned(int64_t bytes) {
  if (bytes < 0) {
    throw std::bad_alloc();
  }
  const auto size = static_cast<std::size_t>(std::max<int64_t>(bytes, 1));
  AlignedBytes memory(static_cast<std::byte*>(::operator new(size, kAlignment)));
  AdviseLargePages(memory.get(), bytes);
  return memory;
}

void Workspace::Reset(int64_t bytes) {
  if (bytes > capacity_) {
    memory_.reset();
    capacity_ = 0;
    memory_ = AllocateAligned(bytes);
    capacity_ = bytes;
  }
  used_ = 0;
}

void* Workspace::TakeBytes(int64_t bytes) {
  const int64_t rounded = RoundUp(bytes);
  if (rounded > capacity_ - used_) {
    throw std::logic_error("kernels workspace: more taken than was reserved");
  }
  std::byte* data = memory_.get() + used_;
  used_ += rounded;
  return data;
}

}  // namespace dmuon::kernels
