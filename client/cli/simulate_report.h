// How `dmuonctl simulate` shows its predictions.
#pragma once

#include <string>
#include <vector>

#include "scheduler/simulator/simulator.h"

namespace dmuon::cli {

struct SimulationReport {
  const simulator::Scenario& scenario;
  // The first is System::kTrainingOnly, which the others are compared with.
  const std::vector<simulator::SystemResult>& results;
};

// A line a system, ratios between them, and assumptions, to stdout.
void PrintSimulationTable(const SimulationReport& report);

// Everything but the timelines, as one line of JSON to stdout.
void PrintSimulationJson(const SimulationReport& report);

// The timelines, one below the other, as an SVG image. Throws InputError naming the file where it
// cannot be written.
void WriteTimelineSvg(const SimulationReport& report, const std::string& path);

}  // namespace dmuon::cli
