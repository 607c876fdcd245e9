#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/check.h"
#include "kernels/cuda/execution_choices.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/muon_steps.h"
#include "kernels/cuda/transfers.h"
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
  Transfers& transfers;
  ElementType type;
  int64_t begin;
  int64_t size;
  void* staging;
  std::vector<float*> sums;

  void Load(int slot, const void* source) {
    const auto* from = static_cast<const char*>(source) + begin * SizeOf(type);
    transfers.Upload(staging, from, size * SizeOf(type));
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
  explicit CudaDevice(const CudaDeviceOptions& options)
      : ordinal_(Select(options.ordinal)), options_(options), steps_(options, stream_) {}

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
  std::vector<MuonExecution> Candidates(int64_t rows, int64_t cols, int64_t batch,
                                        const NewtonSchulzOptions&) const override {
    return CudaCandidates(options_.deterministic, {rows, cols}, batch);
  }
  bool ChoicesKeepBits() const override { return options_.deterministic; }
  void UseTuning(const ExecutionTable& table) override;

 private:
  static int Select(int ordinal) {
    DMUON_CUDA_CHECK(cudaSetDevice(ordinal));
    return ordinal;
  }
  // Operations may come from another thread than the constructor did.
  void Use() const { Select(ordinal_); }
  void Free(void* data, int64_t bytes) override;

  int ordinal_;
  CudaDeviceOptions options_;
  Stream stream_;
  Transfers transfers_{stream_};
  DeviceWorkspace workspace_;  // of everything but Muon steps
  MuonSteps steps_;
  ExecutionTable tuning_;
};

std::string CudaDevice::Describe() const {
  cudaDeviceProp properties;
  DMUON_CUDA_CHECK(cudaGetDeviceProperties(&properties, ordinal_));
  std::string text = "cuda:" + std::to_string(ordinal_) + " (" + properties.name;
  text += options_.deterministic ? ", deterministic" : ", bits depend on the batch";
  if (!steps_.graph_problem().empty()) {
    text += ", no graphs: " + steps_.graph_problem();
  }
  return text + ")";
}

DeviceIdentity CudaDevice::Identity() const {
  cudaDeviceProp properties;
  DMUON_CUDA_CHECK(cudaGetDeviceProperties(&properties, ordinal_));
  int runtime = 0;
  DMUON_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  std::string libraries = "CUDA " + std::to_string(runtime) + ", cuBLAS";
  char separator = ' ';
  for (const libraryPropertyType part : {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL}) {
    int number = 0;
    DMUON_CUDA_CHECK(cublasGetProperty(part, &number));
    libraries += separator + std::to_string(number);
    separator = '.';
  }
  // Choices that change bits are not for a device that keeps them.
  return {"cuda", properties.name, 1, libraries + (options_.deterministic ? "" : ", batched")};
}

void CudaDevice::UseTuning(const ExecutionTable& table) {
  for (const auto& [key, choice] : table.entries()) {
    ValidateCudaExecution(options_.deterministic, choice);
  }
  tuning_ = table;
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
  transfers_.Upload(device, host, bytes);
  stream_.Synchronize();
}

void CudaDevice::CopyToHost(void* host, const void* device, int64_t bytes) {
  Use();
  transfers_.Download(host, device, bytes);
}

void CudaDevice::Reduce(ElementType type, std::span<const ReduceSource> sources, int64_t count,
                        float factor, float* destination) {
  Use();
  const int64_t piece = count < kStagingElements ? count : kStagingElements;
  const int64_t piece_bytes = DeviceWorkspace::RoundUp(piece * static_cast<int64_t>(sizeof(float)));
  const int slots = ReductionTree<DeviceSlots>::SlotsFor(std::ssize(sources));
  workspace_.Reset((slots + 1) * piece_bytes);
  DeviceSlots state{stream_.get(), transfers_, type, 0, 0, workspace_.TakeBytes(piece_bytes), {}};
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
  workspace_.Reset(DeviceWorkspace::RoundUp(Transfers::kPiece));
  const TypedPointer staging{workspace_.TakeBytes(Transfers::kPiece), type};
  // Queued after the copy of the piece before.
  transfers_.Download(host, count * SizeOf(type), [&](Range bytes) {
    LaunchConvert(stream_.get(),
                  {const_cast<float*>(data) + bytes.begin / SizeOf(type), ElementType::kFloat32},
                  staging, bytes.size() / SizeOf(type));
    return staging.data;
  });
}

void CudaDevice::MuonStep(const MuonOptions& options, const MuonValues& values, int64_t rows,
                          int64_t cols, std::span<const MuonMatrix> batch, std::span<bool> finite) {
  Use();
  ValidateMuonStep(options, rows, cols, batch.size(), finite.size());
  const Shape shape{rows, cols};
  const MuonExecution choice = tuning_.Find(rows, cols, std::ssize(batch), options.newton_schulz);
  steps_.Run(options, values, shape, ExecutionOf(options_, shape, choice), batch, finite);
}

bool CudaDevice::AdamWStep(const AdamWValues& values, const AdamWRange& range) {
  Use();
  workspace_.Reset(DeviceWorkspace::RoundUp(sizeof(int)));
  auto* device_flag = workspace_.Take<int>(1);
  DMUON_CUDA_CHECK(cudaMemsetAsync(device_flag, 0, sizeof(int), stream_.get()));
  LaunchAdamW(stream_.get(), AdamWFactorsOf(values), range, device_flag);
  int flag = 0;
  transfers_.Download(&flag, device_flag, sizeof(flag));
  return flag == 0;
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

std::unique_ptr<Device> MakeCudaDevice(const CudaDeviceOptions& options) {
  if (options.tile_side > 0 && options.tile_side % kTileUnit != 0) {
    throw std::invalid_argument("cuda device: tile side " + std::to_string(options.tile_side) +
                                ": choose a multiple of " + std::to_string(kTileUnit) +
                                ", 0 for whole products, or -1 for the shipped rule");
  }
  RequireDevice(options.ordinal);
  return std::make_unique<CudaDevice>(options);
}

}  // namespace dmuon::kernels
