// The devices that the conformance suite runs on, and how to drive a step on them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "tests/kernels/reference.h"

namespace dmuon::kernels::testing {

struct Backend {
  std::string name;
  bool may_be_missing = false;  // the machine or the build need not have it
  std::function<std::unique_ptr<Device>()> make;
  bool batch_changes_bits = false;  // it was asked for that
};

const std::vector<Backend>& Backends();
// Builds of the kernels alone may lack it.
bool BuiltWithCpuBackend();
void PrintTo(const Backend& backend, std::ostream* out);

// Fixture of tests that every backend must pass. Skips with the reason where hardware is missing.
class BackendTest : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override;

  std::unique_ptr<Device> device_;
};

std::string BackendName(const ::testing::TestParamInfo<Backend>& info);

struct MuonInput {
  Matrix gradient;
  Matrix master;    // empty: zeros
  Matrix momentum;  // empty: zeros
};

struct MuonOutput {
  Matrix master;
  Matrix momentum;
  bool finite = false;
};

// One step on the device; also checks that what the step must not write stays as it was.
std::vector<MuonOutput> RunMuonStep(Device& device, const MuonOptions& options,
                                    const MuonValues& values, const std::vector<MuonInput>& batch);

// NS(u) of each matrix through a Muon step from zero state with lr 1, scale 1.
std::vector<Matrix> RunNewtonSchulz(Device& device, const NewtonSchulzOptions& options,
                                    const std::vector<Matrix>& batch);
Matrix RunNewtonSchulz(Device& device, const NewtonSchulzOptions& options, const Matrix& u);

Buffer Upload(Device& device, const std::vector<float>& values);
std::vector<float> Download(Device& device, const float* data, int64_t count);

// fp32, strict, direct.
NewtonSchulzOptions PlainOptions(const Coefficients& coefficients);

}  // namespace dmuon::kernels::testing
