// The Muon step of a batch of equal-shape matrices on the CPU.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/workspace.h"
#include "kernels/device.h"
#include "kernels/thread_pool.h"

namespace dmuon::kernels {

class CpuMuonStep {
 public:
  explicit CpuMuonStep(ThreadPool& pool) : pool_(pool) {}

  // As Device::MuonStep. Large batches run in parts that fit the workspace; the parts' size has no
  // effect on bits.
  void Run(const MuonOptions& options, const MuonValues& values, int64_t rows, int64_t cols,
           std::span<const MuonMatrix> batch, std::span<bool> finite);

 private:
  ThreadPool& pool_;
  Workspace workspace_;
};

}  // namespace dmuon::kernels
