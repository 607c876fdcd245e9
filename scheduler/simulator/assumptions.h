// Everything that a prediction takes for granted.
#pragma once

#include <string>
#include <vector>

#include "scheduler/simulator/simulator.h"

namespace dmuon::simulator {

// One line each, with the values of this run, for people.
std::vector<std::string> Assumptions(const Scenario& scenario);

}  // namespace dmuon::simulator
