// What `precision: auto` means for a plan.
#pragma once

#include <string>

#include "scheduler/cost_profile.h"

namespace dmuon::cli {

// By the option ("bf16", ...), or where that is "auto" by the profile (may be null), or else by
// this machine.
kernels::ElementType AutoPrecision(const std::string& name, const scheduler::CostProfile* profile);

}  // namespace dmuon::cli
