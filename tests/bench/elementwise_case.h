// One measured operation over arrays that no cache holds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "tests/bench/muon_pass_case.h"

namespace dmuon::kernels::testing {

enum class Operation { kAdamW, kReduce, kPublish, kNorm, kMuonPass };

struct ElementwiseOptions {
  Operation operation = Operation::kAdamW;
  ElementType type = ElementType::kFloat32;  // of Reduce's sources and of what Publish writes
  int sources = 1;                           // of Reduce
  MuonPass pass = MuonPass::kMomentum;       // of kMuonPass, which runs on the CPU
};

std::string NameOf(const ElementwiseOptions& options);

// The shipped list.
const std::vector<ElementwiseOptions>& AllElementwiseCases();

// An operation with its arrays on `device`, which outlives it. All arrays are the device's memory:
// host arrays of the CPU are the same memory.
class ElementwiseCase {
 public:
  // `array_bytes`: of the smallest array.
  ElementwiseCase(Device& device, const ElementwiseOptions& options, int64_t array_bytes,
                  int threads);

  void Run();
  // Each input read once, each output written once.
  int64_t bytes() const;

 private:
  void AllocateArrays();
  void RunAdamW();
  void RunReduce();

  Device& device_;
  ElementwiseOptions options_;
  int64_t count_;
  std::vector<Buffer> inputs_;
  std::vector<Buffer> outputs_;
  std::vector<ReduceSource> sources_;
  std::unique_ptr<MuonPassCase> pass_;  // kMuonPass only
};

}  // namespace dmuon::kernels::testing
