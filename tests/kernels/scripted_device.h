// The CPU device with candidates, times and faults of the test's making.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace dmuon::kernels::testing {

class ScriptedDevice : public Device {
 public:
  std::vector<MuonExecution> candidates = {{}};
  // What a step takes on `now_s`, by the choice in force.
  std::function<double(const MuonExecution&)> step_s = [](const MuonExecution&) { return 1.0; };
  // Called after each step with its choice: may spoil what was written.
  std::function<void(const MuonExecution&, int64_t rows, int64_t cols, std::span<const MuonMatrix>)>
      after_step = [](const MuonExecution&, int64_t, int64_t, std::span<const MuonMatrix>) {};
  double now_s = 0.0;
  ExecutionTable table;  // the last one set
  int steps = 0;

  std::string Describe() const override { return "scripted " + cpu_->Describe(); }
  DeviceIdentity Identity() const override { return cpu_->Identity(); }
  ElementType AutoPrecision() const override { return cpu_->AutoPrecision(); }
  bool Supports(ElementType type, std::string* why) const override {
    return cpu_->Supports(type, why);
  }
  Buffer Allocate(int64_t bytes) override { return cpu_->Allocate(bytes); }
  void CopyToDevice(void* device, const void* host, int64_t bytes) override {
    cpu_->CopyToDevice(device, host, bytes);
  }
  void CopyToHost(void* host, const void* device, int64_t bytes) override {
    cpu_->CopyToHost(host, device, bytes);
  }
  void Reduce(ElementType type, std::span<const ReduceSource> sources, int64_t count, float factor,
              float* destination) override {
    cpu_->Reduce(type, sources, count, factor, destination);
  }
  NormAndFinite MeasureNorm(const float* data, int64_t count) override {
    return cpu_->MeasureNorm(data, count);
  }
  void Publish(ElementType type, const float* data, int64_t count, void* host) override {
    cpu_->Publish(type, data, count, host);
  }
  void MuonStep(const MuonOptions& options, const MuonValues& values, int64_t rows, int64_t cols,
                std::span<const MuonMatrix> batch, std::span<bool> finite) override {
    cpu_->MuonStep(options, values, rows, cols, batch, finite);
    const MuonExecution choice = table.Find(rows, cols, std::ssize(batch), options.newton_schulz);
    after_step(choice, rows, cols, batch);
    now_s += step_s(choice);
    ++steps;
  }
  bool AdamWStep(const AdamWValues&, const AdamWRange&) override {
    now_s += step_s({});
    return true;
  }
  std::vector<MuonExecution> Candidates(int64_t, int64_t, int64_t,
                                        const NewtonSchulzOptions&) const override {
    return candidates;
  }
  void UseTuning(const ExecutionTable& wanted) override { table = wanted; }

 private:
  void Free(void*, int64_t) override {}  // buffers belong to the CPU device

  std::unique_ptr<Device> cpu_ = MakeCpuDevice({1});
};

}  // namespace dmuon::kernels::testing
