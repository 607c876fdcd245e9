// Owners of CUDA memory, streams and cuBLAS handles.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>

namespace dmuon::kernels::cuda {

// Memory of the current device. Move-only.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(int64_t bytes);  // throws std::bad_alloc
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Scratch that is kept between steps: Reset gives everything back, Take hands out 256-byte aligned
// pieces. Grows to the largest Reset seen.
class DeviceWorkspace {
 public:
  // Invalidates what was taken. The stream must be idle. `bytes` covers the Takes that follow, each
  // rounded up by RoundUp. Throws std::bad_alloc.
  void Reset(int64_t bytes);

  template <typename T>
  T* Take(int64_t count) {
    return static_cast<T*>(TakeBytes(count * static_cast<int64_t>(sizeof(T))));
  }
  void* TakeBytes(int64_t bytes);

  static constexpr int64_t RoundUp(int64_t bytes) { return (bytes + 255) / 256 * 256; }

 private:
  DeviceMemory memory_;
  int64_t used_ = 0;
};

class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  void Synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
};

// A cuBLAS handle on one stream, with its own workspace, without TF32 and without sums in half
// precision.
class CublasHandle {
 public:
  explicit CublasHandle(const Stream& stream);
  ~CublasHandle();
  CublasHandle(const CublasHandle&) = delete;
  CublasHandle& operator=(const CublasHandle&) = delete;

  cublasHandle_t get() const { return handle_; }

 private:
  cublasHandle_t handle_ = nullptr;
  DeviceMemory workspace_;
};

}  // namespace dmuon::kernels::cuda
