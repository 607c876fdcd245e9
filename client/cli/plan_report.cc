#include "client/cli/plan_report.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

namespace dmuon::cli {
namespace {

constexpr size_t kMaxRows = 32;  // of the owner table
constexpr double kBarWidth = 40;

uint64_t MatricesOf(const scheduler::Plan& plan) {
  uint64_t matrices = 0;
  for (const scheduler::OwnerLoad& load : plan.loads) {
    matrices += load.matrices;
  }
  return matrices;
}

nlohmann::json ToJson(const scheduler::OwnerLoad& load) {
  return {{"seconds", load.seconds()},
          {"muon_s", load.muon_seconds},
          {"elementwise_s", load.elementwise_seconds},
          {"communication_s", load.communication_seconds},
          {"matrices", load.matrices},
          {"elements", load.elements},
          {"bytes",
           {{"gradients", load.bytes.gradients},
            {"masters", load.bytes.masters},
            {"moments", load.bytes.moments},
            {"buckets", load.bytes.buckets}}}};
}

// "######--  ": Muon, elementwise and communication in the busiest owner's time.
std::string BarOf(const scheduler::OwnerLoad& load, double makespan) {
  const auto width = [makespan](double seconds) {
    return static_cast<size_t>(std::lround(seconds / makespan * kBarWidth));
  };
  std::string bar(width(load.muon_seconds), '#');
  bar.resize(std::max(bar.size(), width(load.muon_seconds + load.elementwise_seconds)), '-');
  bar.resize(std::max(bar.size(), width(load.seconds())), '~');
  bar.resize(static_cast<size_t>(kBarWidth), ' ');
  return bar;
}

void PrintTotals(const PlanReport& report) {
  const scheduler::Plan& plan = report.plan;
  const uint64_t matrices = MatricesOf(plan);
  std::printf("plan %s: %zu parameters, %" PRIu64 " matrices, %zu pieces, %zu buckets, %d owners\n",
              scheduler::PlanHash(plan).c_str(), report.spec.parameters.size(), matrices,
              plan.pieces.size(), plan.buckets.size(), plan.owners);
  std::printf("profile %s: busiest owner %.4g ms, lower bound %.4g ms, gap %.3f%%%s\n",
              plan.profile.c_str(), plan.makespan * 1e3, plan.lower_bound * 1e3,
              100.0 * (plan.makespan / plan.lower_bound - 1.0),
              plan.proven_optimal() ? " (proven optimal)" : "");
  if (plan.greedy_makespan > 0.0) {
    std::printf("greedy %.4g ms (%+.2f%%); ", plan.greedy_makespan * 1e3,
                100.0 * (plan.greedy_makespan / plan.makespan - 1.0));
  }
  std::printf("idle share %.2f%%; planned in %.2f s%s\n", 100.0 * plan.idle_share(),
              report.solve_seconds,
              plan.stopped_by_clock ? ", stopped by the clock: another run may differ" : "");
  if (matrices > 0 && matrices < static_cast<uint64_t>(plan.owners)) {
    std::printf("fewer matrices than owners: some owners orthogonalise nothing\n");
  }
  for (const std::string& guess : plan.guesses) {
    std::printf("warning: %s\n", guess.c_str());
  }
}

}  // namespace

void PrintPlanTable(const PlanReport& report) {
  const scheduler::Plan& plan = report.plan;
  PrintTotals(report);
  std::printf("%6s %10s %9s %12s %9s  %-40s %6s\n", "owner", "ms", "matrices", "elements", "MiB",
              "# Muon  - elementwise  ~ communication", "busy");
  for (size_t i = 0; i < plan.loads.size() && i < kMaxRows; ++i) {
    const scheduler::OwnerLoad& load = plan.loads[i];
    std::printf("%6zu %10.4g %9" PRIu64 " %12" PRIu64 " %9.0f  %s %5.1f%%\n", i,
                load.seconds() * 1e3, load.matrices, load.elements,
                static_cast<double>(load.bytes.total()) / (1 << 20),
                BarOf(load, plan.makespan).c_str(), 100.0 * load.seconds() / plan.makespan);
  }
  if (plan.loads.size() > kMaxRows) {
    std::printf("     ... %zu more; --json lists all\n", plan.loads.size() - kMaxRows);
  }
}

void PrintPlanJson(const PlanReport& report) {
  const scheduler::Plan& plan = report.plan;
  nlohmann::json json = {{"model", report.spec.model},
                         {"plan_hash", scheduler::PlanHash(plan)},
                         {"profile", plan.profile},
                         {"owners", plan.owners},
                         {"parameters", report.spec.parameters.size()},
                         {"matrices", MatricesOf(plan)},
                         {"pieces", plan.pieces.size()},
                         {"buckets", plan.buckets.size()},
                         {"makespan_s", plan.makespan},
                         {"lower_bound_s", plan.lower_bound},
                         {"greedy_makespan_s", nullptr},
                         {"proven_optimal", plan.proven_optimal()},
                         {"stopped_by_clock", plan.stopped_by_clock},
                         {"idle_share", plan.idle_share()},
                         {"solve_s", report.solve_seconds},
                         {"warnings", plan.guesses},
                         {"loads", nlohmann::json::array()}};
  if (plan.greedy_makespan > 0.0) {
    json["greedy_makespan_s"] = plan.greedy_makespan;
  }
  for (const scheduler::OwnerLoad& load : plan.loads) {
    json["loads"].push_back(ToJson(load));
  }
  std::cout << json.dump() << std::endl;
}

}  // namespace dmuon::cli
