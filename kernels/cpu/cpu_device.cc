#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/micro_kernel.h"
#include "kernels/cpu/muon_step.h"
#include "kernels/cpu/workspace.h"
#include "kernels/device.h"
#include "kernels/step_factors.h"
#include "kernels/thread_pool.h"

namespace dmuon::kernels {
namespace {

int ThreadsOf(const CpuDeviceOptions& options) {
  if (options.threads < 0) {
    throw std::invalid_argument("cpu device: threads = " + std::to_string(options.threads) +
                                ", must be 0 (all cores) or more");
  }
  return options.threads == 0 ? AvailableCores() : options.threads;
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuDeviceOptions& options)
      : pool_(ThreadsOf(options)),
        native_bf16_(NativeBFloat16Works()),
        muon_step_(pool_, native_bf16_) {}

  std::string Describe() const override {
    const int threads = pool_.threads();
    return "cpu (" + std::to_string(threads) + (threads == 1 ? " thread, " : " threads, ") +
           VectorExtension() + ", bf16 " + (native_bf16_ ? "native" : "emulated") + ")";
  }

  DeviceIdentity Identity() const override {
    const std::string micro_kernels = MicroKernelLibrary();
    return {"cpu", ProcessorName() + ", " + VectorExtension(), pool_.threads(),
            OneDnnVersion() + (micro_kernels.empty() ? "" : ", " + micro_kernels)};
  }

  ElementType AutoPrecision() const override {
    return native_bf16_ ? ElementType::kBFloat16 : ElementType::kFloat32;
  }

  bool Supports(ElementType type, std::string* why) const override {
    if (type != ElementType::kFloat16) {
      return true;
    }
    if (why != nullptr) {
      *why = "the cpu device has no fp16 arithmetic: use precision bf16 or fp32, or a CUDA device";
    }
    return false;
  }

  Buffer Allocate(int64_t bytes) override {
    AlignedBytes memory = AllocateAligned(bytes);
    std::memset(memory.get(), 0, bytes);
    return Buffer(this, memory.release(), bytes);
  }

  void CopyToDevice(void* device, const void* host, int64_t bytes) override {
    Copy(device, host, bytes);
  }

  void CopyToHost(void* host, const void* device, int64_t bytes) override {
    Copy(host, device, bytes);
  }

  void Reduce(ElementType type, std::span<const ReduceSource> sources, int64_t count, float factor,
              float* destination) override {
    ReduceSources(pool_, type, sources, count, factor, destination);
  }

  NormAndFinite MeasureNorm(const float* data, int64_t count) override {
    return MeasureNormAndFinite(pool_, data, count, block_sums_);
  }

  void Publish(ElementType type, const float* data, int64_t count, void* host) override {
    ConvertTo(pool_, type, data, count, host);
  }

  void MuonStep(const MuonOptions& options, const MuonValues& values, int64_t rows, int64_t cols,
                std::span<const MuonMatrix> batch, std::span<bool> finite) override {
    ValidateMuonStep(options, rows, cols, batch.size(), finite.size());
    std::string why;
    if (!Supports(options.newton_schulz.precision, &why)) {
      throw std::invalid_argument(why);
    }
    muon_step_.Run(options, values, rows, cols, batch, finite);
  }

  bool AdamWStep(const AdamWValues& values, const AdamWRange& range) override {
    return RunAdamWStep(pool_, values, range);
  }

  std::vector<MuonExecution> Candidates(int64_t rows, int64_t cols, int64_t batch,
                                        const NewtonSchulzOptions& options) const override {
    return muon_step_.Candidates(rows, cols, batch, options);
  }

  void UseTuning(const ExecutionTable& table) override { muon_step_.UseTuning(table); }

 private:
  static void Copy(void* to, const void* from, int64_t bytes) {
    if (bytes > 0) {
      std::memcpy(to, from, bytes);
    }
  }

  void Free(void* data, int64_t) override { AlignedDelete()(static_cast<std::byte*>(data)); }

  ThreadPool pool_;
  bool native_bf16_;
  CpuMuonStep muon_step_;
  std::vector<double> block_sums_;
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(const CpuDeviceOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace dmuon::kernels
