#include "kernels/cpu/workspace.h"

#include <algorithm>
#include <new>
#include <stdexcept>

namespace dmuon::kernels {
namespace {

constexpr std::align_val_t kAlignment{64};

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
