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

// Host memory that the device reads and writes directly. Move-only.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(int64_t bytes);  // throws std::bad_alloc
  PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  ~PinnedMemory();

  char* data() const { return static_cast<char*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
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

// A point in a stream. Takes no time stamps.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void Record(const Stream& stream) const;
  // What `stream` is given from now on waits for what was recorded; the host does not.
  void Delay(const Stream& stream) const;
  // The host waits; at once if nothing was recorded.
  void Synchronize() const;

 private:
  cudaEvent_t event_ = nullptr;
};

enum class HalfSums {
  kFloat32,  // sums of half products in fp32 only
  kLibrary,  // as cuBLAS likes by default: pieces of a sum may be added in the output's type
};

// A cuBLAS handle on one stream, with its own workspace, without TF32; scalars are host memory.
class CublasHandle {
 public:
  explicit CublasHandle(const Stream& stream, HalfSums sums = HalfSums::kFloat32);
  ~CublasHandle();
  CublasHandle(const CublasHandle&) = delete;
  CublasHandle& operator=(const CublasHandle&) = delete;

  cublasHandle_t get() const { return handle_; }

 private:
  cublasHandle_t handle_ = nullptr;
  DeviceMemory workspace_;
};

}  // namespace dmuon::kernels::cuda
