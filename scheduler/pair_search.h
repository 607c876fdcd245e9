// Improving a distribution two owners at a time. Internal to scheduler/.
#pragma once

#include <functional>
#include <vector>

#include "scheduler/balance.h"

namespace dmuon::scheduler {

// Shares out again what the busiest owner and one other have, until no other helps it or `stop`
// says so. `owners` has one pattern each and never gets longer.
void ImproveByPairs(const BalanceProblem& problem, const std::function<bool()>& stop,
                    std::vector<Pattern>* owners);

}  // namespace dmuon::scheduler
