#include "kernels/cuda/memory.h"

#include <algorithm>
#include <new>
#include <stdexcept>

#include "kernels/cuda/check.h"

namespace dmuon::kernels::cuda {
namespace {

constexpr int64_t kCublasWorkspace = 32LL << 20;  // what cuBLAS recommends for Hopper

}  // namespace

DeviceMemory::DeviceMemory(int64_t bytes) : bytes_(bytes) {
  if (bytes < 0) {
    throw std::bad_alloc();
  }
  DMUON_CUDA_CHECK(cudaMalloc(&data_, static_cast<std::size_t>(std::max<int64_t>(bytes, 1))));
}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) {
    cudaFree(data_);
  }
}

PinnedMemory::PinnedMemory(int64_t bytes) : bytes_(bytes) {
  DMUON_CUDA_CHECK(cudaMallocHost(&data_, static_cast<std::size_t>(std::max<int64_t>(bytes, 1))));
}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr) {
    cudaFreeHost(data_);
  }
}

void DeviceWorkspace::Reset(int64_t bytes) {
  if (bytes > memory_.bytes()) {
    memory_ = DeviceMemory();
    memory_ = DeviceMemory(bytes);
  }
  used_ = 0;
}

void* DeviceWorkspace::TakeBytes(int64_t bytes) {
  const int64_t rounded = RoundUp(bytes);
  if (rounded > memory_.bytes() - used_) {
    throw std::logic_error("CUDA workspace: more taken than was reserved");
  }
  void* data = static_cast<char*>(memory_.data()) + used_;
  used_ += rounded;
  return data;
}

Stream::Stream() { DMUON_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }

Stream::~Stream() { cudaStreamDestroy(stream_); }

void Stream::Synchronize() const { DMUON_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

Event::Event() { DMUON_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }

Event::~Event() { cudaEventDestroy(event_); }

void Event::Record(const Stream& stream) const {
  DMUON_CUDA_CHECK(cudaEventRecord(event_, stream.get()));
}

void Event::Delay(const Stream& stream) const {
  DMUON_CUDA_CHECK(cudaStreamWaitEvent(stream.get(), event_, 0));
}

void Event::Synchronize() const { DMUON_CUDA_CHECK(cudaEventSynchronize(event_)); }

// The workspace comes after the stream, which takes it away.
CublasHandle::CublasHandle(const Stream& stream, HalfSums sums) : workspace_(kCublasWorkspace) {
  DMUON_CUDA_CHECK(cublasCreate(&handle_));
  try {
    DMUON_CUDA_CHECK(cublasSetStream(handle_, stream.get()));
    DMUON_CUDA_CHECK(cublasSetWorkspace(handle_, workspace_.data(), kCublasWorkspace));
    DMUON_CUDA_CHECK(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_HOST));
    DMUON_CUDA_CHECK(cublasSetAtomicsMode(handle_, CUBLAS_ATOMICS_NOT_ALLOWED));
    const int mode = sums == HalfSums::kFloat32 ? CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
                                                : CUBLAS_DEFAULT_MATH;
    DMUON_CUDA_CHECK(cublasSetMathMode(handle_, static_cast<cublasMath_t>(mode)));
  } catch (...) {
    cublasDestroy(handle_);
    throw;
  }
}

CublasHandle::~CublasHandle() { cublasDestroy(handle_); }

}  // namespace dmuon::kernels::cuda
