// The autotuner's choices, as an owner uses them.
#pragma once

#include <string>

#include "kernels/device.h"

namespace dmuon {

struct TuningUse {
  bool tuned = false;
  std::string line;  // for the log: what is used, or why there is nothing to use and what to do
};

// Lets `device` execute as the tuning cache at `path` says. Where there is no such file, or nothing
// in it for this device, kernels keep their defaults. Throws std::runtime_error naming file and
// cause for a damaged file and for choices that the device does not have.
TuningUse UseTuningCache(const std::string& path, kernels::Device& device);

}  // namespace dmuon
