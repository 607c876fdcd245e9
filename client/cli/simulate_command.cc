// dmuonctl simulate: what a step would take on a cluster, without the cluster.
#include <algorithm>
#include <filesystem>

#include "client/cli/auto_precision.h"
#include "client/cli/command.h"
#include "client/cli/simulate_report.h"
#include "client/cli/text_file.h"
#include "scheduler/step_values.h"

namespace dmuon::cli {
namespace {

struct SimulateCommandOptions {
  std::string spec;
  std::string cluster;
  std::string profile;
  std::string system = "all";
  std::string layout = "shards";
  std::string dtype = "spec";
  std::string precision = "auto";
  std::string training_precision = "auto";
  int64_t bucket_mib = 32;
  double control_us = 100.0;
  double message_us = 1.0;
  scheduler::PlanOptions plan;  // the solver's limits
  simulator::RunOptions run;
  std::string svg;
  bool json = false;
};

DType DTypeNamed(const std::string& name) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    if (name == NameOf(dtype)) {
      return dtype;
    }
  }
  return DType::kFloat16;
}

SessionSpec ReadSpec(const SimulateCommandOptions& options) {
  SessionSpec spec = ReadSpecFile(options.spec);
  if (options.dtype != "spec") {
    for (ParameterSpec& parameter : spec.parameters) {
      parameter.dtype = DTypeNamed(options.dtype);
    }
  }
  return spec;
}

// A name that is not shipped is a file, looked for beside the cluster's.
scheduler::CostProfilePtr LoadProfile(const SimulateCommandOptions& options,
                                      const simulator::Cluster& cluster) {
  if (!options.profile.empty()) {
    return scheduler::LoadCostProfile(options.profile);
  }
  const std::vector<std::string> shipped = scheduler::ShippedProfiles();
  const std::filesystem::path file =
      std::filesystem::path(options.cluster).parent_path() / cluster.profile;
  const bool is_file =
      std::find(shipped.begin(), shipped.end(), cluster.profile) == shipped.end() &&
      std::filesystem::exists(file);
  return scheduler::LoadCostProfile(is_file ? file.string() : cluster.profile);
}

// GPUs train in bf16; where `auto` means fp32, halves are no faster.
kernels::ElementType TrainingPrecision(const std::string& name,
                                       const scheduler::CostProfile& profile) {
  if (name == "auto" && profile.auto_precision() != kernels::ElementType::kFloat32) {
    return kernels::ElementType::kBFloat16;
  }
  return AutoPrecision(name, &profile);
}

std::vector<simulator::System> SystemsOf(const std::string& name) {
  std::vector<simulator::System> systems = {simulator::System::kTrainingOnly};
  for (const simulator::System system :
       {simulator::System::kAdamW, simulator::System::kGather, simulator::System::kDmuond}) {
    if (name == "all" || name == NameOf(system)) {
      systems.push_back(system);
    }
  }
  return systems;
}

int Simulate(const SimulateCommandOptions& options) {
  const SessionSpec spec = ReadSpec(options);
  const simulator::Cluster cluster =
      simulator::ParseCluster(ReadTextFile(options.cluster), options.cluster);
  simulator::PlaceOn(cluster, options.run.gpus);
  const scheduler::CostProfilePtr profile = LoadProfile(options, cluster);
  scheduler::PlanOptions plan_options = options.plan;
  plan_options.owners = options.run.gpus;
  plan_options.bucket_bytes = options.bucket_mib << 20;
  plan_options.profile = profile;
  plan_options.auto_precision = AutoPrecision(options.precision, profile.get());
  const scheduler::Plan plan = scheduler::MakePlan(spec, plan_options);
  simulator::RunOptions run = options.run;
  run.sharded = options.layout == "shards";
  run.control_s = options.control_us * 1e-6;
  run.message_overhead_s = options.message_us * 1e-6;
  run.training_precision = TrainingPrecision(options.training_precision, *profile);
  run.timeline = !options.svg.empty();
  const simulator::Scenario scenario{spec, plan, cluster, *profile, run};
  std::vector<simulator::SystemResult> results;
  for (const simulator::System system : SystemsOf(options.system)) {
    results.push_back(simulator::Simulate(system, scenario));
  }
  const SimulationReport report{scenario, results};
  if (!options.svg.empty()) {
    WriteTimelineSvg(report, options.svg);
  }
  if (options.json) {
    PrintSimulationJson(report);
  } else {
    PrintSimulationTable(report);
  }
  return 0;
}

int SimulateOrRefuse(const SimulateCommandOptions& options) {
  try {
    return Simulate(options);
  } catch (const InputError&) {
    throw;
  } catch (const std::invalid_argument& error) {  // spec, cluster, profile or plan
    throw InputError(error.what());
  }
}

void AddModelOptions(CLI::App* command, SimulateCommandOptions* options) {
  command
      ->add_option("--layout", options->layout,
                   "how trainers hold parameters: shards (as FSDP) or replicas (as DDP)")
      ->check(CLI::IsMember({"shards", "replicas"}))
      ->capture_default_str();
  command
      ->add_option("--dtype", options->dtype,
                   "type of all parameters and gradients, instead of the spec's")
      ->check(CLI::IsMember({"spec", "fp32", "bf16", "fp16"}))
      ->capture_default_str();
  command->add_option("--precision", options->precision, "as of plan")
      ->check(CLI::IsMember({"auto", "bf16", "fp16", "fp32"}))
      ->capture_default_str();
  command
      ->add_option("--training-precision", options->training_precision,
                   "of forward, backward and gather's Newton-Schulz (auto: bf16, or fp32 where "
                   "the profile's auto precision is)")
      ->check(CLI::IsMember({"auto", "bf16", "fp16", "fp32"}))
      ->capture_default_str();
  command
      ->add_option("--training-share", options->run.training_share,
                   "of the profile's product rate that forward and backward reach")
      ->check(CLI::Range(1e-3, 1.0))
      ->capture_default_str();
}

void AddDaemonOptions(CLI::App* command, SimulateCommandOptions* options) {
  command->add_option("--bucket-mib", options->bucket_mib, "as [plan] bucket_mib of dmuond")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_flag("--owners-apart", options->run.owners_apart,
                    "owners have devices of their own");
  command
      ->add_option("--control-us", options->control_us,
                   "from the end of backward until owner 0 knows that all trainers sealed")
      ->check(CLI::Range(0.0, 1e7))
      ->capture_default_str();
  command
      ->add_option("--message-us", options->message_us,
                   "what a small message of the commit costs owner 0")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_option("--solver-seconds", options->plan.solver_seconds, "as of plan")
      ->check(CLI::Range(0.0, 1e5))
      ->capture_default_str();
}

}  // namespace

void AddSimulateCommand(CLI::App* app, Action* action) {
  auto options = std::make_shared<SimulateCommandOptions>();
  CLI::App* command =
      app->add_subcommand("simulate", "Predict a training step on a described cluster");
  command->add_option("--spec", options->spec, "session spec (JSON)")->required();
  command->add_option("--cluster", options->cluster, "cluster (JSON), as in deploy/clusters")
      ->required();
  command
      ->add_option("--gpus", options->run.gpus, "of the cluster; each has a trainer and an owner")
      ->required();
  command->add_option("--tokens", options->run.tokens, "per GPU and step")
      ->check(CLI::Range(1.0, 1e12))
      ->capture_default_str();
  command->add_option("--system", options->system, "adamw, gather, dmuond or all")
      ->check(CLI::IsMember({"adamw", "gather", "dmuond", "all"}))
      ->capture_default_str();
  command->add_option("--profile", options->profile, "instead of the cluster's");
  AddModelOptions(command, options.get());
  AddDaemonOptions(command, options.get());
  command->add_option("--svg", options->svg, "draw the timelines into this file");
  command->add_flag("--json", options->json, "print JSON");
  command->callback(
      [options, action] { *action = [options] { return SimulateOrRefuse(*options); }; });
}

}  // namespace dmuon::cli
