// The --steps file of replay: a JSON list, one object per step,
// [{"grad_scale": 1.0, "groups": {"muon": {"lr": 0.02, "weight_decay": 0.1}}}, {}].
#pragma once

#include <string>
#include <vector>

#include "scheduler/step_values.h"

namespace dmuon::cli {

// `steps` resolved values; the spec's own where `path` is empty. Throws InputError naming file, key
// path and value, also when the file has another number of steps.
std::vector<scheduler::StepValues> ReadStepValues(const std::string& path, const SessionSpec& spec,
                                                  size_t steps);

}  // namespace dmuon::cli
