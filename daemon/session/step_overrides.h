// From BeginStep's wire form to what the scheduler's StepValues take.
#pragma once

#include <vector>

#include "dmuon/v1/control.pb.h"
#include "scheduler/step_values.h"

namespace dmuon {

template <typename GroupValuesList>
std::vector<scheduler::GroupOverrides> OverridesOf(const GroupValuesList& groups) {
  std::vector<scheduler::GroupOverrides> overrides;
  for (const v1::GroupValues& from : groups) {
    scheduler::GroupOverrides& to = overrides.emplace_back();
    to.group = from.group();
    if (from.has_lr()) to.lr = from.lr();
    if (from.has_weight_decay()) to.weight_decay = from.weight_decay();
    if (from.has_momentum()) to.momentum = from.momentum();
    if (from.has_beta1()) to.beta1 = from.beta1();
    if (from.has_beta2()) to.beta2 = from.beta2();
  }
  return overrides;
}

}  // namespace dmuon
