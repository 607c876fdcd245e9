// dmuonctl plan: which owner would update what, without starting anything.
#include <cinttypes>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "client/cli/command.h"
#include "client/cli/text_file.h"
#include "scheduler/plan.h"
#include "scheduler/step_values.h"

namespace dmuon::cli {
namespace {

constexpr size_t kMaxRows = 32;  // of the owner table

struct PlanCommandOptions {
  std::string spec;
  int owners = 1;
  int64_t bucket_mib = 32;
  std::string precision = "auto";
  bool json = false;
};

kernels::ElementType AutoPrecision(const std::string& name) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    if (name == NameOf(dtype)) {
      return scheduler::ElementTypeOf(dtype);
    }
  }
  return kernels::MakeCpuDevice({1})->AutoPrecision();
}

nlohmann::json ToJson(const SessionSpec& spec, const scheduler::Plan& plan) {
  nlohmann::json json = {{"model", spec.model},
                         {"plan_hash", scheduler::PlanHash(plan)},
                         {"owners", plan.owners},
                         {"parameters", spec.parameters.size()},
                         {"pieces", plan.pieces.size()},
                         {"buckets", plan.buckets.size()},
                         {"makespan_flops", plan.makespan},
                         {"lower_bound_flops", plan.lower_bound},
                         {"loads", nlohmann::json::array()}};
  for (const scheduler::OwnerLoad& load : plan.loads) {
    json["loads"].push_back(
        {{"cost_flops", load.cost}, {"matrices", load.matrices}, {"elements", load.elements}});
  }
  return json;
}

void PrintTable(const SessionSpec& spec, const scheduler::Plan& plan) {
  uint64_t matrices = 0;
  double total = 0.0;
  for (const scheduler::OwnerLoad& load : plan.loads) {
    matrices += load.matrices;
    total += load.cost;
  }
  std::printf("plan %s: %zu parameters, %" PRIu64 " matrices, %zu pieces, %zu buckets, %d owners\n",
              scheduler::PlanHash(plan).c_str(), spec.parameters.size(), matrices,
              plan.pieces.size(), plan.buckets.size(), plan.owners);
  std::printf("busiest owner %.4g Gflop, lower bound %.4g, gap %.2f%%, idle share %.2f%%\n",
              plan.makespan / 1e9, plan.lower_bound / 1e9,
              100.0 * (plan.makespan / plan.lower_bound - 1.0),
              100.0 * (1.0 - total / (plan.makespan * plan.owners)));
  if (matrices > 0 && matrices < static_cast<uint64_t>(plan.owners)) {
    std::printf("fewer matrices than owners: some owners orthogonalise nothing\n");
  }
  std::printf("%8s %12s %10s %14s %8s\n", "owner", "Gflop", "matrices", "elements", "busy");
  for (size_t i = 0; i < plan.loads.size() && i < kMaxRows; ++i) {
    const scheduler::OwnerLoad& load = plan.loads[i];
    std::printf("%8zu %12.4g %10" PRIu64 " %14" PRIu64 " %7.1f%%\n", i, load.cost / 1e9,
                load.matrices, load.elements, 100.0 * load.cost / plan.makespan);
  }
  if (plan.loads.size() > kMaxRows) {
    std::printf("     ... %zu more; --json lists all\n", plan.loads.size() - kMaxRows);
  }
}

int MakeAndPrintPlan(const PlanCommandOptions& options) {
  const SessionSpec spec = ReadSpecFile(options.spec);
  scheduler::PlanOptions plan_options;
  plan_options.owners = options.owners;
  plan_options.bucket_bytes = options.bucket_mib << 20;
  plan_options.auto_precision = AutoPrecision(options.precision);
  const scheduler::Plan plan = scheduler::MakePlan(spec, plan_options);
  if (options.json) {
    std::cout << ToJson(spec, plan).dump() << std::endl;
  } else {
    PrintTable(spec, plan);
  }
  return 0;
}

}  // namespace

void AddPlanCommand(CLI::App* app, Action* action) {
  auto options = std::make_shared<PlanCommandOptions>();
  CLI::App* command = app->add_subcommand("plan", "Show which owner would update what");
  command->add_option("--spec", options->spec, "session spec (JSON)")->required();
  command->add_option("--owners", options->owners, "number of owners")
      ->required()
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--bucket-mib", options->bucket_mib, "as [plan] bucket_mib of dmuond")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      ->add_option("--precision", options->precision,
                   "what `precision: auto` means on the owners (auto: as on this machine's CPU)")
      ->check(CLI::IsMember({"auto", "bf16", "fp16", "fp32"}))
      ->capture_default_str();
  command->add_flag("--json", options->json, "print JSON, with every owner");
  command->callback(
      [options, action] { *action = [options] { return MakeAndPrintPlan(*options); }; });
}

}  // namespace dmuon::cli
