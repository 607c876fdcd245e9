// The passes over the elements of a Muon step, on one matrix that no cache holds.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/device.h"

namespace dmuon::kernels::testing {

enum class MuonPass { kMomentum, kNormalize, kUpdate };

class MuonPassCase {
 public:
  // `array_bytes`: of the fp32 matrix. Buffers are allocated from `device`, which outlives this.
  MuonPassCase(Device& device, MuonPass pass, int64_t array_bytes, int threads);
  ~MuonPassCase();

  void Run();
  // Momentum reads gradient and momentum and writes momentum and u; Normalize reads u and writes X
  // and its transpose; Update reads the result and the master and writes the master.
  int64_t bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dmuon::kernels::testing
