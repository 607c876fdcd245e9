// dmuonctl plan: which owner would update what, without starting anything.
#include <chrono>

#include "client/cli/auto_precision.h"
#include "client/cli/command.h"
#include "client/cli/plan_report.h"
#include "client/cli/text_file.h"
#include "scheduler/plan.h"

namespace dmuon::cli {
namespace {

struct PlanCommandOptions {
  std::string spec;
  int owners = 1;
  int64_t bucket_mib = 32;
  std::string precision = "auto";
  std::string profile;
  std::string profile_entry;
  double link_gbytes_per_s = 0.0;
  double memory_gib = 0.0;
  scheduler::PlanOptions solver;  // its limits
  std::string svg;
  bool json = false;
};

scheduler::PlanOptions PlanOptionsOf(const PlanCommandOptions& options) {
  scheduler::PlanOptions plan_options = options.solver;
  plan_options.owners = options.owners;
  plan_options.bucket_bytes = options.bucket_mib << 20;
  if (!options.profile.empty()) {
    plan_options.profile = scheduler::LoadCostProfile(options.profile, options.profile_entry);
  } else if (!options.profile_entry.empty()) {
    throw InputError("--profile-entry names an entry of a --profile, which is missing");
  }
  plan_options.auto_precision = AutoPrecision(options.precision, plan_options.profile.get());
  plan_options.link_bytes_per_s = options.link_gbytes_per_s * 1e9;
  plan_options.memory_limit_bytes = static_cast<int64_t>(options.memory_gib * (int64_t{1} << 30));
  return plan_options;
}

int MakeAndPrintPlan(const PlanCommandOptions& options) {
  const SessionSpec spec = ReadSpecFile(options.spec);
  scheduler::Plan plan;
  const auto start = std::chrono::steady_clock::now();
  try {
    plan = scheduler::MakePlan(spec, PlanOptionsOf(options));
  } catch (const SpecError& error) {
    throw InputError(options.spec + ": " + error.what());
  } catch (const std::invalid_argument& error) {
    throw InputError(error.what());
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const PlanReport report{spec, plan, took.count()};
  if (!options.svg.empty()) {
    WritePlanSvg(report, options.svg);
  }
  if (options.json) {
    PrintPlanJson(report);
  } else {
    PrintPlanTable(report);
  }
  return 0;
}

void AddCostOptions(CLI::App* command, PlanCommandOptions* options) {
  command->add_option("--profile", options->profile,
                      "cost profile: a shipped name (a800, ...) or a file; else useful flops");
  command->add_option("--profile-entry", options->profile_entry,
                      "device of a tuning file, by its key, where it has several");
  command
      ->add_option("--link-gbytes-per-s", options->link_gbytes_per_s,
                   "count gradients and parameters over an owner's link of 1e9 bytes/s times this "
                   "each way (0: not counted)")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command
      ->add_option("--memory-gib", options->memory_gib,
                   "limit of each owner's state and buckets (0: none)")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command
      ->add_option("--solver-seconds", options->solver.solver_seconds,
                   "stop the solver after this; the plan then says so")
      ->check(CLI::Range(0.0, 1e5))
      ->capture_default_str();
  command
      ->add_option("--solver-nodes", options->solver.solver_nodes,
                   "of branch and bound, for each integer program")
      ->check(CLI::Range(1, 100000000))
      ->capture_default_str();
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
                   "what `precision: auto` means on the owners (auto: as the profile says, or "
                   "else as on this machine's CPU)")
      ->check(CLI::IsMember({"auto", "bf16", "fp16", "fp32"}))
      ->capture_default_str();
  AddCostOptions(command, options.get());
  command->add_option("--svg", options->svg, "draw a bar for each owner into this file");
  command->add_flag("--json", options->json, "print JSON, with every owner");
  command->callback(
      [options, action] { *action = [options] { return MakeAndPrintPlan(*options); }; });
}

}  // namespace dmuon::cli
