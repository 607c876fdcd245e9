// Lower bounds on the makespan that need no program. Internal to scheduler/.
#pragma once

#include "scheduler/balance.h"

namespace dmuon::scheduler {

// The largest of: all work at its best batching, spread evenly; the dearest matrix; and two of the
// owners + 1 dearest, which share an owner.
double SimpleBound(const BalanceProblem& problem);

}  // namespace dmuon::scheduler
