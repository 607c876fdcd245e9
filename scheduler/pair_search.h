// Improving a distribution two owners at a time. Internal to scheduler/.
#pragma once

#include <functional>
#include <vector>

#include "scheduler/balance.h"

namespace dmuon::scheduler {

// Shares out again what two owners have: what the busiest and another have, until no other helps
// it; and, while the filler reaches above all owners, what any two have, for less work in all. Ends
// when neither helps or `stop` says so. `owners` has one pattern each; their makespan never grows.
void ImproveByPairs(const BalanceProblem& problem, const std::function<bool()>& stop,
                    std::vector<Pattern>* owners);

}  // namespace dmuon::scheduler
