// Distributions that are made in one pass. Internal to scheduler/.
#pragma once

#include <vector>

#include "scheduler/balance.h"

namespace dmuon::scheduler {

// Longest processing time first: the dearest matrix that is left, by its cost alone, goes to the
// least loaded owner that has room for it. Empty where one finds no room.
std::vector<Pattern> LongestFirst(const BalanceProblem& problem);

// The largest matrix that is left goes to the owner with the most room: for tight memory. Empty
// where one finds no room.
std::vector<Pattern> LargestFirst(const BalanceProblem& problem);

}  // namespace dmuon::scheduler
