// The Muon step of a batch of equal-shape matrices on the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cpu/tiled_product.h"
#include "kernels/cpu/workspace.h"
#include "kernels/device.h"
#include "kernels/thread_pool.h"

namespace dmuon::kernels {

class CpuMuonStep {
 public:
  CpuMuonStep(ThreadPool& pool, bool native_bf16);

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
  // What one thread needs to run a matrix alone.
  struct Lane {
    explicit Lane(bool native_bf16) : runner(alone, native_bf16) {}
    ThreadPool alone{1};
    TileRunner runner;
    Workspace workspace;
  };

  // How many matrices of the batch threads take whole.
  int64_t WholeMatrices(const MuonExecution& execution, int64_t bytes, int64_t count) const;

  ThreadPool& pool_;
  bool micro_kernels_;
  ExecutionTable tuning_;
  TileRunner runner_;
  Workspace workspace_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // one per thread of the pool
};

}  // namespace dmuon::kernels
