// The Muon step of a batch of equal-shape matrices on the CPU.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/tiled_product.h"
#include "kernels/cpu/workspace.h"
#include "kernels/device.h"
#include "kernels/thread_pool.h"

namespace dmuon::kernels {

class CpuMuonStep {
 public:
  CpuMuonStep(ThreadPool& pool, bool native_bf16) : runner_(pool, native_bf16) {}

  // As Device::MuonStep. Large batches run in parts that fit the workspace; the parts' size has no
  // effect on bits.
  void Run(const MuonOptions& options, const MuonValues& values, int64_t rows, int64_t cols,
           std::span<const MuonMatrix> batch, std::span<bool> finite);

 private:
  TileRunner runner_;
  Workspace workspace_;
};

}  // namespace dmuon::kernels
