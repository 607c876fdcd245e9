// What has to be measured so that the owners of a spec run tuned.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/tuning.h"
#include "proto/session_spec.h"

namespace dmuon::cli {

struct TuneCaseOptions {
  int owners = 1;
  std::vector<int64_t> batches;  // empty: 1, 2, 4, ... and the largest that an owner has
};

// Every shape with its numerics in canonical order, each with its batches ascending. Matrices are
// spread evenly over owners; those of different groups make batches of their own. Throws InputError
// for a precision that the device lacks and for a spec without matrices.
std::vector<kernels::TuningCase> TuningCasesOf(const SessionSpec& spec,
                                               const kernels::Device& device,
                                               const TuneCaseOptions& options);

}  // namespace dmuon::cli
