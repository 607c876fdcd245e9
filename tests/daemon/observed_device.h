// The CPU device, with what was measured last for tests to look at: the only way in which a reduced
// gradient can be seen bit by bit.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace dmuon::test {

class ObservedDevice : public kernels::Device {
 public:
  std::string Describe() const override { return cpu_->Describe(); }
  kernels::DeviceIdentity Identity() const override { return cpu_->Identity(); }
  kernels::ElementType AutoPrecision() const override { return cpu_->AutoPrecision(); }
  bool Supports(kernels::ElementType type, std::string* why) const override {
    return cpu_->Supports(type, why);
  }
  kernels::Buffer Allocate(int64_t bytes) override { return cpu_->Allocate(bytes); }
  void CopyToDevice(void* device, const void* host, int64_t bytes) override {
    cpu_->CopyToDevice(device, host, bytes);
  }
  void CopyToHost(void* host, const void* device, int64_t bytes) override {
    cpu_->CopyToHost(host, device, bytes);
  }
  void Reduce(kernels::ElementType type, std::span<const kernels::ReduceSource> sources,
              int64_t count, float factor, float* destination) override {
    cpu_->Reduce(type, sources, count, factor, destination);
  }
  kernels::NormAndFinite MeasureNorm(const float* data, int64_t count) override {
    measured.assign(data, data + count);
    return cpu_->MeasureNorm(data, count);
  }
  void Publish(kernels::ElementType type, const float* data, int64_t count, void* host) override {
    cpu_->Publish(type, data, count, host);
  }
  void MuonStep(const kernels::MuonOptions& options, const kernels::MuonValues& values,
                int64_t rows, int64_t cols, std::span<const kernels::MuonMatrix> batch,
                std::span<bool> finite) override {
    cpu_->MuonStep(options, values, rows, cols, batch, finite);
  }
  bool AdamWStep(const kernels::AdamWValues& values, const kernels::AdamWRange& range) override {
    return cpu_->AdamWStep(values, range);
  }
  std::vector<kernels::MuonExecution> Candidates(
      int64_t rows, int64_t cols, int64_t batch,
      const kernels::NewtonSchulzOptions& options) const override {
    return cpu_->Candidates(rows, cols, batch, options);
  }
  void UseTuning(const kernels::ExecutionTable& table) override { cpu_->UseTuning(table); }

  std::vector<float> measured;

 private:
  void Free(void*, int64_t) override {}  // buffers belong to the CPU device

  std::unique_ptr<kernels::Device> cpu_ = kernels::MakeCpuDevice({});
};

}  // namespace dmuon::test
