// A batch of equal-shape matrices with their state on a device, to be stepped again and again from
// that same state: for measurements.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/device.h"

namespace dmuon::kernels {

class ResidentBatch {
 public:
  // Gradients, masters and momenta are zeros. `device` outlives the object. Throws std::bad_alloc.
  ResidentBatch(Device& device, const MuonOptions& options, int64_t rows, int64_t cols,
                int64_t batch);

  // Device memory that a batch takes, workspace apart.
  static int64_t BytesFor(int64_t rows, int64_t cols, int64_t batch);

  void SetGradient(int64_t matrix, std::span<const float> values);
  // One whole Muon step, which has finished on return. Returns whether all results are finite.
  bool Step(const MuonValues& values);
  // The master that the last step wrote.
  std::vector<float> Result(int64_t matrix);
  // Differs between two runs of Step that wrote other masters or momenta, but for one chance in
  // 2^64.
  uint64_t Fingerprint();

 private:
  Device& device_;
  MuonOptions options_;
  int64_t rows_;
  int64_t cols_;
  std::vector<Buffer> buffers_;  // five for each matrix
  std::vector<MuonMatrix> matrices_;
  std::unique_ptr<bool[]> finite_;
};

}  // namespace dmuon::kernels
