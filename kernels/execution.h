// How a Muon step is executed, which never changes what it computes, and the choices that were
// measured to be fast.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/options.h"

namespace dmuon::kernels {

// Choices with an effect on time and memory, and on bits only where a device does not promise them
// (Device::ChoicesKeepBits). 0 everywhere: the backend's own.
struct MuonExecution {
  int symmetric_tile = 0;  // side of the tiles of symmetric products
  int product_tile = 0;    // side of the tiles of other products
  int sharing = 0;         // of a batch: kWholeMatrices or kSharedMatrices
  int part = 0;            // matrices that are shared at a time
  int lanes = 0;           // cuda: streams side by side, each with matrices of its own

  static constexpr int kWholeMatrices = 1;   // each thread takes whole matrices, the rest is shared
  static constexpr int kSharedMatrices = 2;  // threads share all matrices, tile by tile

  bool operator==(const MuonExecution&) const = default;
};

// "default" or "symmetric_tile 128, part 1".
std::string TextOf(const MuonExecution& execution);

// What a choice is recorded for: everything but values on which a step's time depends.
struct ExecutionCase {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t batch = 1;
  ElementType precision = ElementType::kFloat32;
  Form form = Form::kDirect;
  std::vector<int> restart;
  int iterations = 0;

  bool operator==(const ExecutionCase&) const = default;
};

ExecutionCase ExecutionCaseOf(int64_t rows, int64_t cols, int64_t batch,
                              const NewtonSchulzOptions& options);

// Choices by case.
class ExecutionTable {
 public:
  using Entry = std::pair<ExecutionCase, MuonExecution>;

  // Replaces the choice of an equal case.
  void Set(const ExecutionCase& key, const MuonExecution& choice);

  // Of the choices for this shape and these numerics the one with the largest batch that is not
  // above `batch`; the default if there is none. Allocates nothing.
  MuonExecution Find(int64_t rows, int64_t cols, int64_t batch,
                     const NewtonSchulzOptions& options) const;

  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

}  // namespace dmuon::kernels
