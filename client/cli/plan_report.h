// How `dmuonctl plan` shows a plan.
#pragma once

#include <string>

#include "proto/session_spec.h"
#include "scheduler/plan.h"

namespace dmuon::cli {

struct PlanReport {
  const SessionSpec& spec;
  const scheduler::Plan& plan;
  double solve_seconds = 0.0;  // what making the plan took
};

// Totals, then a line with figures and a bar for each of the first owners, to stdout.
void PrintPlanTable(const PlanReport& report);

// Everything, with every owner, as one line of JSON to stdout.
void PrintPlanJson(const PlanReport& report);

// A bar for each owner as an SVG image. Throws InputError naming the file where it cannot be
// written.
void WritePlanSvg(const PlanReport& report, const std::string& path);

}  // namespace dmuon::cli
