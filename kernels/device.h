// The device seam: where an owner's memory lives and its arithmetic runs.
//
// One owner process has one Device. A Device and everything allocated from it is used by one thread
// at a time. CPU: memory is host memory and every operation has finished when it returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/execution.h"
#include "kernels/options.h"

namespace dmuon::kernels {

class Device;

// Device memory with one owner; returns to its device when destroyed. 64-byte aligned, zeroed.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device* device, void* data, int64_t bytes) : device_(device), data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { *this = static_cast<Buffer&&>(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  void* data() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

// One source of a sum over trainers: `data` is host memory of the reduction's element type, or null
// for a trainer without a gradient (counts as zeros).
struct ReduceSource {
  const void* data = nullptr;
};

struct NormAndFinite {
  double squared_sum = 0.0;  // fp64 sums of blocks of 65,536 elements, blocks added in order
  bool finite = true;
};

// Values of one step for one group.
struct MuonValues {
  double lr = 0.0;
  double weight_decay = 0.0;
  double momentum = 0.0;
  double gradient_factor = 1.0;  // clipping: multiplies the gradient before momentum
};

struct MuonOptions {
  MomentumForm momentum_form = MomentumForm::kSgd;
  bool nesterov = true;
  UpdateScale scale = UpdateScale::kMatchRmsAdamW;
  ElementType momentum_type = ElementType::kFloat32;  // fp32 or bf16
  NewtonSchulzOptions newton_schulz;
};

// One matrix of a batch; all pointers are device memory, contiguous row-major. The step reads
// gradient, master and momentum and writes new_master and new_momentum, which must not overlap
// them: nothing that counts changes before the caller swaps old and new.
struct MuonMatrix {
  const float* gradient = nullptr;
  const float* master = nullptr;
  const void* momentum = nullptr;  // MuonOptions::momentum_type
  float* new_master = nullptr;
  void* new_momentum = nullptr;
};

struct AdamWValues {
  double lr = 0.0;
  double weight_decay = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  int64_t step = 1;  // t: how many steps, this one included, had a gradient
  double gradient_factor = 1.0;
};

// `count` consecutive elements; same rules as MuonMatrix.
struct AdamWRange {
  int64_t count = 0;
  const float* gradient = nullptr;
  const float* master = nullptr;
  const float* exp_avg = nullptr;
  const float* exp_avg_sq = nullptr;
  float* new_master = nullptr;
  float* new_exp_avg = nullptr;
  float* new_exp_avg_sq = nullptr;
};

// What measured times and choices are valid for.
struct DeviceIdentity {
  std::string kind;       // "cpu" or "cuda"
  std::string name;       // model of the processor, with its vector extension, or of the GPU
  int threads = 1;        // that compute (cuda: 1)
  std::string libraries;  // "oneDNN 2.6.3, libxsmm 1.17": name and version of each

  bool operator==(const DeviceIdentity&) const = default;
};

class Device {
 public:
  virtual ~Device() = default;

  // For people: "cpu (2 threads, avx2)" or "cuda:0 (NVIDIA H200)".
  virtual std::string Describe() const = 0;
  virtual DeviceIdentity Identity() const = 0;
  // What `precision: auto` means here.
  virtual ElementType AutoPrecision() const = 0;
  // Whether `type` can be asked for; if not, *why says what is missing.
  virtual bool Supports(ElementType type, std::string* why) const = 0;

  // Throws std::bad_alloc.
  virtual Buffer Allocate(int64_t bytes) = 0;
  virtual void CopyToDevice(void* device, const void* host, int64_t bytes) = 0;
  virtual void CopyToHost(void* host, const void* device, int64_t bytes) = 0;

  // destination[i] = factor * sum over sources, in fp32, added as a balanced binary tree over
  // `sources` in their order (neighbours first; an odd last one moves up unchanged). `destination`
  // is device memory, the sources are host memory of type `type`, `count` elements each.
  virtual void Reduce(ElementType type, std::span<const ReduceSource> sources, int64_t count,
                      float factor, float* destination) = 0;
  // Norm and finiteness of `count` fp32 elements on the device.
  virtual NormAndFinite MeasureNorm(const float* data, int64_t count) = 0;
  // host[i] = data[i] rounded to nearest even in `type`. bf16 and fp16 overflow to infinity.
  virtual void Publish(ElementType type, const float* data, int64_t count, void* host) = 0;

  // One Muon step of equal-shape matrices. finite[i] is false when anything that was written for
  // matrix i is not finite. The result of a matrix does not depend on the batch or on threads.
  virtual void MuonStep(const MuonOptions& options, const MuonValues& values, int64_t rows,
                        int64_t cols, std::span<const MuonMatrix> batch,
                        std::span<bool> finite) = 0;
  // One AdamW step. Returns whether everything that was written is finite.
  virtual bool AdamWStep(const AdamWValues& values, const AdamWRange& range) = 0;

  // The ways in which this device can execute a Muon step of `batch` matrices, the default first.
  // All give the same bits if ChoicesKeepBits.
  virtual std::vector<MuonExecution> Candidates(int64_t rows, int64_t cols, int64_t batch,
                                                const NewtonSchulzOptions& options) const = 0;
  virtual bool ChoicesKeepBits() const { return true; }
  // MuonStep executes as `table` says from now on; with an empty one as the device sees fit. Throws
  // std::invalid_argument naming a choice that this device does not have; nothing changes then.
  virtual void UseTuning(const ExecutionTable& table) = 0;

 private:
  friend class Buffer;
  virtual void Free(void* data, int64_t bytes) = 0;
};

struct CpuDeviceOptions {
  int threads = 1;  // 0: all cores that this process may run on
};

// Throws std::runtime_error in builds of the kernels alone that lack oneDNN.
std::unique_ptr<Device> MakeCpuDevice(const CpuDeviceOptions& options);

struct CudaDeviceOptions {
  int ordinal = 0;
  // The bits of a matrix depend on nothing but the matrix and the step: each goes through calls of
  // its own. Otherwise one call may cover many, and cuBLAS chooses by their number how to add.
  bool deterministic = true;
  // Steps of the same kind are replayed as CUDA graphs.
  bool graphs = true;
  // Of symmetric products: 0 computes them whole, a multiple of 16 by tiles of that side on and
  // below the diagonal. Below 0 the shipped rule. Changes bits: for measurements.
  int64_t tile_side = -1;
  int64_t workspace_bytes = int64_t{4} << 30;  // about; one matrix gets what it needs
};

// Throws std::runtime_error saying why there is no such device: built without CUDA, no driver, no
// device of that ordinal.
std::unique_ptr<Device> MakeCudaDevice(const CudaDeviceOptions& options);

}  // namespace dmuon::kernels
