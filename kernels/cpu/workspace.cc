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
constexpr int64_t kHugePage = 2LL << 20;

// As AllocateAligned, on huge pages where the system has them: matrix products walk down columns,
// one page per row, and would spend their time on address translation.
AlignedBytes AllocateHugePages(int64_t bytes) {
  AlignedBytes memory = AllocateAligned(bytes + kHugePage);
#ifdef __linux__
  const auto address = reinterpret_cast<uintptr_t>(memory.get());
  const uintptr_t first = (address + kHugePage - 1) / kHugePage * kHugePage;
  if (bytes >= kHugePage) {
    madvise(reinterpret_cast<void*>(first), bytes, MADV_HUGEPAGE);  // a hint: may fail
  }
#endif
  return memory;
}

}  // namespace

void AlignedDelete::operator()(std::byte* data) const { ::operator delete(data, kAlignment); }

AlignedBytes AllocateAligned(int64_t bytes) {
  if (bytes < 0) {
    throw std::bad_alloc();
  }
  const auto size = static_cast<std::size_t>(std::max<int64_t>(bytes, 1));
  return AlignedBytes(static_cast<std::byte*>(::operator new(size, kAlignment)));
}

void Workspace::Reset(int64_t bytes) {
  if (bytes > capacity_) {
    memory_.reset();
    capacity_ = 0;
    memory_ = AllocateHugePages(bytes);
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
