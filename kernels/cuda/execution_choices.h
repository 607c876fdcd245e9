// Which ways of executing a Muon step the CUDA backend has. Free of CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/execution.h"
#include "kernels/cuda/layout.h"
#include "kernels/device.h"
#include "kernels/execution.h"

namespace dmuon::kernels::cuda {

// The default first. Deterministic: lanes only. Otherwise also symmetric_tile, of which one that is
// not below the matrix's side means whole products, and part, the matrices of one call.
std::vector<MuonExecution> CudaCandidates(bool deterministic, const Shape& shape, int64_t batch);

// Throws std::invalid_argument naming a choice that no case has.
void ValidateCudaExecution(bool deterministic, const MuonExecution& choice);

// What a valid choice means for matrices of this shape: its zeros are the shipped rule.
Execution ExecutionOf(const CudaDeviceOptions& options, const Shape& shape,
                      const MuonExecution& choice);

}  // namespace dmuon::kernels::cuda
