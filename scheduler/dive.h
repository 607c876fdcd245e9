// Whole numbers out of a linear program by rounding, a few patterns at a time. Internal to
// scheduler/.
#pragma once

#include <functional>
#include <vector>

#include "scheduler/relaxation.h"

namespace dmuon::scheduler {

// One pattern for each owner, made from the pool's patterns of at most `cap` seconds: whole uses of
// the relaxation are fixed and the rest is solved again. What is left at the end goes to the least
// loaded owners, so that the result may be longer than `cap`. Empty where memory leaves no room.
std::vector<Pattern> Dive(const BalanceProblem& problem, const PatternPool& pool, double cap,
                          const std::function<bool()>& stop);

}  // namespace dmuon::scheduler
