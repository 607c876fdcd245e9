// The timelines of `dmuonctl simulate --svg`.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "client/cli/simulate_report.h"
#include "client/cli/svg.h"

namespace dmuon::cli {
namespace {

using simulator::Span;
using simulator::SpanKind;
using simulator::SystemResult;

constexpr double kLabelWidth = 110;
constexpr double kTimeWidth = 1100;
constexpr double kRowHeight = 16;
constexpr size_t kOwners = 12;  // the busiest ones are drawn

std::string ColourOf(SpanKind kind) {
  switch (kind) {
    case SpanKind::kForward:
      return "#3572a5";
    case SpanKind::kBackward:
      return "#1f4e79";
    case SpanKind::kOptimizer:
      return "#c0392b";
    case SpanKind::kCollective:
      return "#999999";
    case SpanKind::kPush:
      return "#e0a030";
    case SpanKind::kPublish:
      return "#40a060";
    case SpanKind::kCommit:
      break;
  }
  return "#000000";
}

// Owners have a row for work and one each for pushes and publishes.
enum class Row { kWork, kPush, kPublish };

Row RowOf(SpanKind kind) {
  return kind == SpanKind::kPush      ? Row::kPush
         : kind == SpanKind::kPublish ? Row::kPublish
                                      : Row::kWork;
}

std::vector<int> BusiestOwners(const SystemResult& result) {
  std::vector<int> owners(result.owner_busy_s.size());
  std::iota(owners.begin(), owners.end(), 0);
  std::stable_sort(owners.begin(), owners.end(), [&result](int a, int b) {
    return result.owner_busy_s[static_cast<size_t>(a)] >
           result.owner_busy_s[static_cast<size_t>(b)];
  });
  owners.resize(std::min(owners.size(), kOwners));
  std::sort(owners.begin(), owners.end());
  return owners;
}

// Rows from the top, with their labels.
std::map<std::pair<int, Row>, double> LayOut(const SystemResult& result, double* y,
                                             std::ostream* svg) {
  std::map<std::pair<int, Row>, double> rows;
  const auto add = [&](int lane, Row row, const std::string& label) {
    rows[{lane, row}] = *y;
    WriteSvgText(10, *y + kRowHeight * 0.7, label, svg);
    *y += kRowHeight;
  };
  add(simulator::kTrainersLane, Row::kWork, "trainers");
  add(simulator::kCollectivesLane, Row::kWork, "collectives");
  for (const int owner : BusiestOwners(result)) {
    add(owner, Row::kPush, "to owner " + std::to_string(owner));
    add(owner, Row::kWork, "owner " + std::to_string(owner));
    add(owner, Row::kPublish, "from owner " + std::to_string(owner));
  }
  return rows;
}

void DrawSystem(const SystemResult& result, double scale, double* y, std::ostream* svg) {
  WriteSvgText(10, *y + kRowHeight,
               std::string(NameOf(result.system)) + ": step " + SvgNumber(result.step_s * 1e3) +
                   " ms, optimizer step " + SvgNumber(result.optimizer_step_s * 1e3) + " ms",
               svg);
  *y += 1.5 * kRowHeight;
  const auto rows = LayOut(result, y, svg);
  for (const Span& span : result.spans) {
    const auto row = rows.find({span.lane, RowOf(span.kind)});
    if (row == rows.end()) {
      continue;
    }
    const SvgBox box{kLabelWidth + span.start_s * scale, row->second,
                     std::max((span.end_s - span.start_s) * scale, 0.2), kRowHeight * 0.85};
    WriteSvgBox(box, ColourOf(span.kind),
                span.label + ": " + SvgNumber(span.start_s * 1e3) + " to " +
                    SvgNumber(span.end_s * 1e3) + " ms",
                svg);
  }
  *y += 0.5 * kRowHeight;
}

}  // namespace

void WriteTimelineSvg(const SimulationReport& report, const std::string& path) {
  double longest = 0.0;
  for (const SystemResult& result : report.results) {
    longest = std::max(longest, result.step_s);
  }
  std::ostringstream body;
  WriteSvgText(10, 18,
               report.scenario.spec.model + " on " + std::to_string(report.scenario.options.gpus) +
                   " GPUs of " + report.scenario.cluster.name + ": backward, then the next forward",
               &body);
  WriteSvgText(10, 36,
               "blue: forward (light), backward (dark); red: optimizer; grey: collectives; yellow: "
               "push; green: publish",
               &body);
  double y = 44;
  for (const SystemResult& result : report.results) {
    DrawSystem(result, kTimeWidth / longest, &y, &body);
  }
  std::ostringstream svg;
  WriteSvgHead(kLabelWidth + kTimeWidth + 20, y + 10, &svg);
  svg << body.str() << "</svg>\n";
  SaveSvg(svg.str(), path);
}

}  // namespace dmuon::cli
