#include "kernels/cuda/transfers.h"

#include <cstring>

#include "kernels/cuda/check.h"

namespace dmuon::kernels::cuda {

void Transfers::Upload(void* device, const void* host, int64_t bytes) {
  for (int64_t i = 0; i < CeilDivide(bytes, kPiece); ++i) {
    const Range range = PieceRange(i, kPiece, bytes);
    Slot& slot = slots_[next_];
    next_ = (next_ + 1) % kSlots;
    slot.free.Synchronize();
    std::memcpy(slot.memory.data(), static_cast<const char*>(host) + range.begin, range.size());
    DMUON_CUDA_CHECK(cudaMemcpyAsync(static_cast<char*>(device) + range.begin, slot.memory.data(),
                                     range.size(), cudaMemcpyHostToDevice, stream_.get()));
    slot.free.Record(stream_);
  }
}

void Transfers::Download(void* host, const void* device, int64_t bytes) {
  Download(host, bytes,
           [&](Range range) { return static_cast<const char*>(device) + range.begin; });
}

void Transfers::Download(void* host, int64_t bytes,
                         const std::function<const void*(Range)>& source) {
  const auto queue = [&](int64_t i) {
    const Range range = PieceRange(i, kPiece, bytes);
    Slot& slot = slots_[i % kSlots];
    slot.free.Synchronize();  // an upload may still be reading
    const void* device = source(range);
    DMUON_CUDA_CHECK(cudaMemcpyAsync(slot.memory.data(), device, range.size(),
                                     cudaMemcpyDeviceToHost, stream_.get()));
    slot.free.Record(stream_);
  };
  const auto finish = [&](int64_t i) {
    const Range range = PieceRange(i, kPiece, bytes);
    Slot& slot = slots_[i % kSlots];
    slot.free.Synchronize();
    std::memcpy(static_cast<char*>(host) + range.begin, slot.memory.data(), range.size());
  };
  RunPipelined(CeilDivide(bytes, kPiece), kSlots, queue, finish);
  stream_.Synchronize();
}

}  // namespace dmuon::kernels::cuda
