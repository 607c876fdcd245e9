// The bar chart of `dmuonctl plan --svg`.
#include <algorithm>
#include <sstream>

#include "client/cli/plan_report.h"
#include "client/cli/svg.h"

namespace dmuon::cli {
namespace {

constexpr double kLeft = 60;
constexpr double kTop = 64;
constexpr double kWidth = 800;

// One owner's bar: Muon, elementwise, communication.
void WriteBar(const scheduler::OwnerLoad& load, double makespan, double y, double height,
              std::ostream* svg) {
  const std::pair<double, const char*> parts[] = {{load.muon_seconds, "#3572a5"},
                                                  {load.elementwise_seconds, "#e0a030"},
                                                  {load.communication_seconds, "#999999"}};
  double x = kLeft;
  for (const auto& [seconds, colour] : parts) {
    const double width = seconds / makespan * kWidth;
    WriteSvgBox({x, y, width, height * 0.85}, colour, "", svg);
    x += width;
  }
}

void WriteLine(double seconds, double makespan, double bottom, const char* colour,
               std::ostream* svg) {
  const std::string x = SvgNumber(kLeft + seconds / makespan * kWidth);
  *svg << "<line x1=\"" << x << "\" x2=\"" << x << "\" y1=\"" << SvgNumber(kTop) << "\" y2=\""
       << SvgNumber(bottom) << "\" stroke=\"" << colour << "\" stroke-dasharray=\"4 3\"/>\n";
}

std::string SvgOf(const PlanReport& report) {
  const scheduler::Plan& plan = report.plan;
  const auto owners = static_cast<double>(plan.loads.size());
  const double row = std::clamp(1200.0 / owners, 1.0, 18.0);
  const double bottom = kTop + owners * row;
  const double scale = std::max(plan.makespan, plan.greedy_makespan);
  std::ostringstream svg;
  WriteSvgHead(kLeft + kWidth + 40, bottom + 20, &svg);
  WriteSvgText(10, 20,
               report.spec.model + " on " + std::to_string(plan.owners) + " owners, profile " +
                   plan.profile + ": " + SvgNumber(plan.makespan * 1e3) + " ms, bound " +
                   SvgNumber(plan.lower_bound * 1e3) + " ms, greedy " +
                   SvgNumber(plan.greedy_makespan * 1e3) + " ms, idle " +
                   SvgNumber(100 * plan.idle_share()) + "%",
               &svg);
  WriteSvgText(10, 40,
               "blue Muon, yellow elementwise, grey communication; lines: lower bound "
               "(green), greedy (red)",
               &svg);
  const size_t step = row >= 12 ? 1 : static_cast<size_t>(12 / row) + 1;
  for (size_t i = 0; i < plan.loads.size(); ++i) {
    const double y = kTop + static_cast<double>(i) * row;
    if (i % step == 0) {
      WriteSvgText(10, y + std::max(row * 0.7, 9.0), std::to_string(i), &svg);
    }
    WriteBar(plan.loads[i], scale, y, row, &svg);
  }
  WriteLine(plan.lower_bound, scale, bottom, "#208020", &svg);
  if (plan.greedy_makespan > 0.0) {
    WriteLine(plan.greedy_makespan, scale, bottom, "#c02020", &svg);
  }
  svg << "</svg>\n";
  return svg.str();
}

}  // namespace

void WritePlanSvg(const PlanReport& report, const std::string& path) {
  SaveSvg(SvgOf(report), path);
}

}  // namespace dmuon::cli
