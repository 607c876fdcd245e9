#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/matrix_newton_schulz.h"
#include "kernels/cuda/memory.h"
#include "kernels/device.h"
#include "kernels/reduction_tree.h"
#include "kernels/step_factors.h"

namespace dmuon::kernels {
namespace {

using namespace cuda;  // NOLINT(google-build-using-namespace): this file is its front

constexpr int64_t kStagingElements = 4 << 20;  // a piece of a transfer between host and device

// The sums in progress of one piece of a reduction, on the device.
struct DeviceSlots {
  cudaStream_t stream;
  ElementType type;
  int64_t begin;
  int64_t size;
  void* staging;
  std::vector<float*> sums;

  void Load(int slot, const void* source) {
    const auto* from = static_cast<const char*>(source) + begin * SizeOf(type);
    DMUON_CUDA_CHECK(
        cudaMemcpyAsync(staging, from, size * SizeOf(type), cudaMemcpyHostToDevice, stream));
    LaunchConvert(stream, {staging, type}, {sums[slot], ElementType::kFloat32}, size);
  }
  void Add(int slot, int other) { LaunchAdd(stream, sums[slot], sums[other], size); }
  void Copy(int slot, int other) {
    DMUON_CUDA_CHECK(cudaMemcpyAsync(sums[slot], sums[other], size * sizeof(float),
                                     cudaMemcpyDeviceToDevice, stream));
  }
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int ordinal) : ordinal_(Select(ordinal)), cublas_(stream_) {}

  std::string Describe() const override;
  DeviceIdentity Identity() const override;
  ElementType AutoPrecision() const override { return ElementType::kFloat16; }
  bool Supports(ElementType, std::string*) const override { return true; }

  Buffer Allocate(int64_t bytes) override;
  void CopyToDevice(void* device, const void* host, int64_t bytes) override;
  void CopyToHost(void* host, const void* device, int64_t bytes) override;
  void Reduce(ElementType type, std::span<const ReduceSource> sources, int64_t count, float factor,
              float* destination) override;
  NormAndFinite MeasureNorm(const float* data, int64_t count) override;
  void Publish(ElementType type, const float* data, int64_t count, void* host) override;
  void MuonStep(const MuonOptions& options, const MuonValues& values, int64_t rows, int64_t cols,
                std::span<const MuonMatrix> batch, std::span<bool> finite) override;
  bool AdamWStep(const AdamWValues& values, const AdamWRange& range) override;
  // cuBLAS chooses its algorithms itself, and another one may change bits: nothing to choose here.
  std::vector<MuonExecution> Candidates(int64_t, int64_t, int64_t,
                                        const NewtonSchulzOptions&) const override {
    return {{}};
  }
  void UseTuning(const ExecutionTable& table) override;

 private:
  static int Select(int ordinal) {
    DMUON_CUDA_CHECK(cudaSetDevice(ordinal));
    return ordinal;
  }
  // Operations may come from another thread than the constructor did.
  void Use() const { Select(ordinal_); }
  void Free(void* data, int64_t bytes) override;
  void StepMatrix(const MuonOptions& options, const MuonFactors& factors, const Shape& shape,
                  const MuonMatrix& matrix, int* not_finite);
  // `count` flags on the device, all zero.
  int* ClearFlags(int64_t count);
  // Waits for everything queued before.
  const int* FetchFlags(int64_t count);

  int ordinal_;
  Stream stream_;
  CublasHandle cublas_;
  DeviceWorkspace workspace_;
  DeviceMemory flags_;
  std::vector<int> host_flags_;
};

std::string CudaDevice::Describe() const {
  cudaDeviceProp properties;
  DMUON_CUDA_CHECK(cudaGetDeviceProperties(&properties, ordinal_));
  return "cuda:" + std::to_string(ordinal_) + " (" + properties.name + ")";
}

DeviceIdentity CudaDevice::Identity() const {
  cudaDeviceProp properties;
  DMUON_CUDA_CHECK(cudaGetDeviceProperties(&properties, ordinal_));
  int runtime = 0;
  DMUON_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  int cublas = 0;
  DMUON_CUDA_CHECK(cublasGetVersion(cublas_.get(), &cublas));
  return {"cuda", properties.name, 1,
          "CUDA " + std::to_string(runtime) + ", cuBLAS " + std::to_string(cublas)};
}

void CudaDevice::UseTuning(const ExecutionTable& table) {
  for (const auto& [key, choice] : table.entries()) {
    if (choice != MuonExecution()) {
      throw std::invalid_argument("the cuda device cannot execute a step with " + TextOf(choice) +
                                  ": remove that record, or tune again with --again");
    }
  }
}

Buffer CudaDevice::Allocate(int64_t bytes) {
  Use();
  if (bytes < 0) {
    throw std::bad_alloc();
  }
  void* data = nullptr;
  const auto size = static_cast<std::size_t>(bytes > 0 ? bytes : 1);
  DMUON_CUDA_CHECK(cudaMalloc(&data, size));
  Buffer buffer(this, data, bytes);
  DMUON_CUDA_CHECK(cudaMemsetAsync(data, 0, size, stream_.get()));
  stream_.Synchronize();
  return buffer;
}

void CudaDevice::Free(void* data, int64_t) {
  cudaSetDevice(ordinal_);  // from a destructor: nothing useful can be done about an error
  cudaFree(data);
}

void CudaDevice::CopyToDevice(void* device, const void* host, int64_t bytes) {
  Use();
  DMUON_CUDA_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_.get()));
  stream_.Synchronize();
}

void CudaDevice::CopyToHost(void* host, const void* device, int64_t bytes) {
  Use();
  DMUON_CUDA_CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_.get()));
  stream_.Synchronize();
}

void CudaDevice::Reduce(ElementType type, std::span<const ReduceSource> sources, int64_t count,
                        float factor, float* destination) {
  Use();
  const int64_t piece = count < kStagingElements ? count : kStagingElements;
  const int64_t piece_bytes = DeviceWorkspace::RoundUp(piece * static_cast<int64_t>(sizeof(float)));
  const int slots = ReductionTree<DeviceSlots>::SlotsFor(std::ssize(sources));
  workspace_.Reset((slots + 1) * piece_bytes);
  DeviceSlots state{stream_.get(), type, 0, 0, workspace_.TakeBytes(piece_bytes), {}};
  for (int i = 0; i < slots; ++i) {
    state.sums.push_back(workspace_.Take<float>(piece));
  }
  for (state.begin = 0; state.begin < count; state.begin += piece) {
    state.size = count - state.begin < piece ? count - state.begin : piece;
    ReductionTree<DeviceSlots> tree(state);
    for (const ReduceSource& source : sources) {
      tree.Push(source.data);
    }
    float* out = destination + state.begin;
    if (tree.Finish()) {
      LaunchScale(stream_.get(), factor, state.sums[0], out, state.size);
    } else {
      DMUON_CUDA_CHECK(cudaMemsetAsync(out, 0, state.size * sizeof(float), stream_.get()));
    }
  }
  stream_.Synchronize();
}

NormAndFinite CudaDevice::MeasureNorm(const float* data, int64_t count) {
  Use();
  workspace_.Reset(DeviceWorkspace::RoundUp(NormBlocks(count) * 8) + DeviceWorkspace::RoundUp(8));
  auto* block_sums = workspace_.Take<double>(NormBlocks(count));
  auto* total = workspace_.Take<double>(1);
  LaunchSquaredSum(stream_.get(), data, count, block_sums, total);
  NormAndFinite result;
  CopyToHost(&result.squared_sum, total, sizeof(double));
  result.finite = result.squared_sum - result.squared_sum == 0.0;
  return result;
}

void CudaDevice::Publish(ElementType type, const float* data, int64_t count, void* host) {
  Use();
  if (type == ElementType::kFloat32) {
    CopyToHost(host, data, count * SizeOf(type));
    return;
  }
  workspace_.Reset(DeviceWorkspace::RoundUp(kStagingElements * SizeOf(type)));
  void* staging = workspace_.TakeBytes(kStagingElements * SizeOf(type));
  for (int64_t begin = 0; begin < count; begin += kStagingElements) {
    const int64_t size = count - begin < kStagingElements ? count - begin : kStagingElements;
    LaunchConvert(stream_.get(), {const_cast<float*>(data) + begin, ElementType::kFloat32},
                  {staging, type}, size);
    CopyToHost(static_cast<char*>(host) + begin * SizeOf(type), staging, size * SizeOf(type));
  }
}

void CudaDevice::MuonStep(const MuonOptions& options, const MuonValues& values, int64_t rows,
                          int64_t cols, std::span<const MuonMatrix> batch, std::span<bool> finite) {
  Use();
  ValidateMuonStep(options, rows, cols, batch.size(), finite.size());
  const MuonFactors factors = MuonFactorsOf(options, values, rows, cols);
  int* flags = ClearFlags(std::ssize(batch));
  for (std::size_t i = 0; i < batch.size(); ++i) {
    StepMatrix(options, factors, {rows, cols}, batch[i], flags + i);
  }
  const int* not_finite = FetchFlags(std::ssize(batch));
  for (std::size_t i = 0; i < batch.size(); ++i) {
    finite[i] = not_finite[i] == 0;
  }
}

// Queues everything: the next matrix reuses the workspace in stream order.
void CudaDevice::StepMatrix(const MuonOptions& options, const MuonFactors& factors,
                            const Shape& shape, const MuonMatrix& matrix, int* not_finite) {
  const NewtonSchulzOptions& rule = options.newton_schulz;
  const NewtonSchulzStorage storage = StorageOf(rule);
  const int64_t blocks = NormBlocks(shape.count());
  workspace_.Reset(MatrixNewtonSchulz::BytesFor(rule.form, storage, shape) +
                   DeviceWorkspace::RoundUp(blocks * 8) + 2 * DeviceWorkspace::RoundUp(8));
  auto* block_sums = workspace_.Take<double>(blocks);
  auto* squared_sum = workspace_.Take<double>(1);
  auto* normalize = workspace_.Take<NormalizeFactors>(1);
  MatrixNewtonSchulz iteration(stream_, cublas_, workspace_, rule.form, storage, shape);

  float* u = iteration.spare();
  LaunchMomentum(stream_.get(), factors, options, matrix, shape.count(), u, not_finite);
  LaunchSquaredSum(stream_.get(), u, shape.count(), block_sums, squared_sum);
  LaunchNormalize(stream_.get(), rule, shape, u, squared_sum, normalize, iteration.x(), not_finite);
  const float* o = iteration.Run(rule);
  LaunchUpdate(stream_.get(), factors, shape, matrix, o, not_finite);
}

bool CudaDevice::AdamWStep(const AdamWValues& values, const AdamWRange& range) {
  Use();
  int* flag = ClearFlags(1);
  LaunchAdamW(stream_.get(), AdamWFactorsOf(values), range, flag);
  return FetchFlags(1)[0] == 0;
}

int* CudaDevice::ClearFlags(int64_t count) {
  const auto bytes = count * static_cast<int64_t>(sizeof(int));
  if (flags_.bytes() < bytes) {
    flags_ = DeviceMemory();
    flags_ = DeviceMemory(bytes);
    host_flags_.resize(count);
  }
  if (bytes > 0) {
    DMUON_CUDA_CHECK(cudaMemsetAsync(flags_.data(), 0, bytes, stream_.get()));
  }
  return static_cast<int*>(flags_.data());
}

const int* CudaDevice::FetchFlags(int64_t count) {
  CopyToHost(host_flags_.data(), flags_.data(), count * static_cast<int64_t>(sizeof(int)));
  return host_flags_.data();
}

void RequireDevice(int ordinal) {
  const std::string name = "cuda:" + std::to_string(ordinal);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();
    throw std::runtime_error(name + ": no CUDA device: " + cudaGetErrorString(error) +
                             "; check the driver with nvidia-smi, or use the cpu device");
  }
  if (ordinal < 0 || ordinal >= count) {
    throw std::runtime_error(name + ": no CUDA device of that number: this process sees " +
                             std::to_string(count) +
                             "; check CUDA_VISIBLE_DEVICES, or use the cpu device");
  }
  int major = 0;
  DMUON_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal));
  if (major < 8) {
    throw std::runtime_error(name + ": compute capability " + std::to_string(major) +
                             ".x: this build needs 8.0 or later (A100, H100); use the cpu device");
  }
}

}  // namespace

std::unique_ptr<Device> MakeCudaDevice(int ordinal) {
  RequireDevice(ordinal);
  return std::make_unique<CudaDevice>(ordinal);
}

}  // namespace dmuon::kernels
