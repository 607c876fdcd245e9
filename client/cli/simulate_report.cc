#include "client/cli/simulate_report.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "scheduler/simulator/assumptions.h"

namespace dmuon::cli {
namespace {

using simulator::System;
using simulator::SystemResult;

const SystemResult* Find(const SimulationReport& report, System system) {
  const auto found =
      std::find_if(report.results.begin(), report.results.end(),
                   [system](const SystemResult& result) { return result.system == system; });
  return found == report.results.end() ? nullptr : &*found;
}

struct Comparison {
  std::string key;
  std::string text;
  double ratio = 0.0;
};

// What can be said of the systems that were simulated.
std::vector<Comparison> Compare(const SimulationReport& report) {
  const SystemResult* adamw = Find(report, System::kAdamW);
  const SystemResult* gather = Find(report, System::kGather);
  const SystemResult* dmuond = Find(report, System::kDmuond);
  std::vector<Comparison> comparisons;
  if (gather != nullptr && dmuond != nullptr) {
    comparisons.push_back({"optimizer_step_speedup", "optimizer step, gather over dmuond",
                           gather->optimizer_step_s / dmuond->optimizer_step_s});
    comparisons.push_back(
        {"step_speedup", "step, gather over dmuond", gather->step_s / dmuond->step_s});
  }
  if (adamw != nullptr && dmuond != nullptr) {
    comparisons.push_back(
        {"step_over_adamw", "step, dmuond over adamw", dmuond->step_s / adamw->step_s});
  }
  if (adamw != nullptr && gather != nullptr) {
    comparisons.push_back(
        {"gather_step_over_adamw", "step, gather over adamw", gather->step_s / adamw->step_s});
  }
  return comparisons;
}

double Busiest(const SystemResult& result) {
  return result.owner_busy_s.empty()
             ? 0.0
             : *std::max_element(result.owner_busy_s.begin(), result.owner_busy_s.end());
}

double MeanBusy(const SystemResult& result) {
  return result.owner_busy_s.empty()
             ? 0.0
             : std::accumulate(result.owner_busy_s.begin(), result.owner_busy_s.end(), 0.0) /
                   static_cast<double>(result.owner_busy_s.size());
}

nlohmann::json ToJson(const SystemResult& result, double training_only_s) {
  nlohmann::json json = {{"step_s", result.step_s},
                         {"forward_s", result.forward_s},
                         {"backward_s", result.backward_s},
                         {"optimizer_s", result.optimizer_s},
                         {"exposed_communication_s", result.communication_s},
                         {"idle_s", result.idle_s},
                         {"optimizer_step_s", result.optimizer_step_s},
                         {"added_s", result.step_s - training_only_s},
                         {"bytes",
                          {{"intra_node", result.bytes.intra_node},
                           {"between_nodes", result.bytes.nic},
                           {"device_to_host", result.bytes.host},
                           {"busiest_card_out", result.bytes.busiest_nic_out},
                           {"busiest_card_in", result.bytes.busiest_nic_in}}}};
  if (!result.owner_busy_s.empty()) {
    const double busiest = Busiest(result);
    json["owner_busy_s"] = result.owner_busy_s;
    json["owner_utilisation"] = {
        {"mean_of_busiest", busiest > 0.0 ? MeanBusy(result) / busiest : 1.0},
        {"mean_of_step", MeanBusy(result) / result.step_s}};
  }
  return json;
}

void PrintSystem(const SystemResult& result, double training_only_s) {
  const auto ms = [](double seconds) { return seconds * 1e3; };
  std::printf("%-14s %10.2f %9.2f %9.2f %9.2f %9.2f %8.2f %10.2f %9.2f %9.3f %9.3f\n",
              std::string(NameOf(result.system)).c_str(), ms(result.step_s), ms(result.forward_s),
              ms(result.backward_s), ms(result.optimizer_s), ms(result.communication_s),
              ms(result.idle_s), ms(result.optimizer_step_s), ms(result.step_s - training_only_s),
              result.bytes.intra_node / 1e9, result.bytes.nic / 1e9);
}

}  // namespace

void PrintSimulationTable(const SimulationReport& report) {
  const simulator::Scenario& scenario = report.scenario;
  std::printf("%s on %d GPUs of \"%s\" (profile %s), plan %s\n", scenario.spec.model.c_str(),
              scenario.options.gpus, scenario.cluster.name.c_str(), scenario.profile.name().c_str(),
              scheduler::PlanHash(scenario.plan).c_str());
  std::printf("milliseconds, and GB sent by all together in a step\n");
  std::printf("%-14s %10s %9s %9s %9s %9s %8s %10s %9s %9s %9s\n", "", "step", "forward",
              "backward", "optimizer", "exposed", "idle", "opt.step", "added", "in node",
              "between");
  const double training_only_s = report.results.front().step_s;
  for (const SystemResult& result : report.results) {
    PrintSystem(result, training_only_s);
  }
  std::printf(
      "exposed: communication while nobody computes; opt.step: from the last gradient until the "
      "new parameters exist;\nadded: step beyond that of training_only\n");
  if (const SystemResult* dmuond = Find(report, System::kDmuond)) {
    std::printf("owners: busiest %.2f ms, mean %.2f ms\n", Busiest(*dmuond) * 1e3,
                MeanBusy(*dmuond) * 1e3);
  }
  for (const Comparison& comparison : Compare(report)) {
    std::printf("%s: %.3f\n", comparison.text.c_str(), comparison.ratio);
  }
  std::printf("assumptions\n");
  for (const std::string& line : simulator::Assumptions(scenario)) {
    std::printf("  - %s\n", line.c_str());
  }
}

void PrintSimulationJson(const SimulationReport& report) {
  const simulator::Scenario& scenario = report.scenario;
  const simulator::Placement placement =
      simulator::PlaceOn(scenario.cluster, scenario.options.gpus);
  nlohmann::json json = {{"model", scenario.spec.model},
                         {"cluster", scenario.cluster.name},
                         {"profile", scenario.profile.name()},
                         {"gpus", scenario.options.gpus},
                         {"nodes", placement.nodes},
                         {"tokens", scenario.options.tokens},
                         {"sharded", scenario.options.sharded},
                         {"plan_hash", scheduler::PlanHash(scenario.plan)},
                         {"buckets", scenario.plan.buckets.size()},
                         {"systems", nlohmann::json::object()},
                         {"comparison", nlohmann::json::object()},
                         {"assumptions", simulator::Assumptions(scenario)}};
  for (const SystemResult& result : report.results) {
    json["systems"][std::string(NameOf(result.system))] =
        ToJson(result, report.results.front().step_s);
  }
  for (const Comparison& comparison : Compare(report)) {
    json["comparison"][comparison.key] = comparison.ratio;
  }
  std::cout << json.dump() << std::endl;
}

}  // namespace dmuon::cli
