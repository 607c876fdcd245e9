// The Muon step of a batch of equal-shape matrices on the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/device.h"
#include "kernels/thread_pool.h"

namespace dmuon::kernels {

class CpuMuonStep {
 public:
  // `native_bf16`: the processor multiplies bf16, so that matrices of that storage stay in it.
  CpuMuonStep(ThreadPool& pool, bool native_bf16);
  ~CpuMuonStep();

  // As Device::MuonStep. Of a batch of small matrices each thread takes whole ones, which stay in
  // its cache; what is left over, and large ones, the threads share tile by tile, in parts that fit
  // the workspace. None of this has an effect on bits.
  void Run(const MuonOptions& options, const MuonValues& values, int64_t rows, int64_t cols,
           std::span<const MuonMatrix> batch, std::span<bool> finite);

  // As Device::Candidates and Device::UseTuning.
  std::vector<MuonExecution> Candidates(int64_t rows, int64_t cols, int64_t batch,
                                        const NewtonSchulzOptions& options) const;
  void UseTuning(const ExecutionTable& table);

 private:
  struct Layouts;
  std::unique_ptr<Layouts> layouts_;
  ExecutionTable tuning_;
};

}  // namespace dmuon::kernels
