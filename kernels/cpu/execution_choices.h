// Which ways of executing a Muon step the CPU backend has.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/execution.h"

namespace dmuon::kernels {

struct CpuExecutionCase {
  int64_t batch = 1;
  int64_t m = 1;  // m <= n
  int64_t n = 1;
  int64_t bytes = 0;  // workspace of one matrix
  int threads = 1;
  bool whole_by_default = false;  // matrices of this size are taken whole by threads
  int64_t part_by_default = 1;    // and otherwise shared so many at a time
  // Whether every product goes through micro-kernels: there the sum of an element runs through the
  // inner dimension in the same order whatever the tile, elsewhere a library decides by size.
  bool tiles = false;
};

// The default first. All give the same bits.
std::vector<MuonExecution> CpuCandidates(const CpuExecutionCase& given);

// Throws std::invalid_argument naming a value that no case has.
void ValidateCpuExecution(const MuonExecution& execution);

}  // namespace dmuon::kernels
