// Copies between host and device in pieces, so that the host's part of one overlaps with the
// device's part of the next.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "kernels/cuda/layout.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/pipeline.h"

namespace dmuon::kernels::cuda {

// Through host memory of its own that the device reads and writes directly. Used on one stream.
class Transfers {
 public:
  static constexpr int64_t kPiece = 8LL << 20;  // bytes

  explicit Transfers(const Stream& stream) : stream_(stream) {}

  // Queues the copy; `host` may change on return.
  void Upload(void* device, const void* host, int64_t bytes);
  // `bytes` have arrived on return.
  void Download(void* host, const void* device, int64_t bytes);
  // The same of what `source` makes: for each piece it queues what makes bytes [begin, end) and
  // says where they are on the device, in memory that it may reuse for the next.
  void Download(void* host, int64_t bytes, const std::function<const void*(Range)>& source);

 private:
  static constexpr int kSlots = 2;

  struct Slot {
    PinnedMemory memory{kPiece};
    Event free;
  };

  const Stream& stream_;
  std::array<Slot, kSlots> slots_;
  int next_ = 0;
};

}  // namespace dmuon::kernels::cuda
