// Predicts a training step on a described cluster by discrete events. What is assumed about
// devices, links and programs: scheduler/simulator/README.md.
#pragma once

#include <string_view>

#include "scheduler/cost_profile.h"
#include "scheduler/plan.h"
#include "scheduler/simulator/activity.h"
#include "scheduler/simulator/cluster.h"
#include "scheduler/simulator/network.h"

namespace dmuon::simulator {

enum class System {
  kTrainingOnly,  // forward and backward with their collectives, nothing updated
  kAdamW,         // every rank updates what it holds
  kGather,        // gather-then-compute Muon: every rank gathers and orthogonalises every matrix
  kDmuond,        // owners, by the plan
};

std::string_view NameOf(System system);  // "training_only", "adamw", "gather", "dmuond"

struct RunOptions {
  int gpus = 1;                 // ranks; each device has a trainer and an owner
  double tokens = 8192.0;       // per rank and step
  bool sharded = true;          // as FSDP; false: replicas
  bool owners_apart = false;    // owners have devices of their own, as fast as the trainers'
  double training_share = 1.0;  // of the profile's product rate that forward and backward reach
  double control_s = 1e-4;      // from the end of backward until owner 0 knows that all sealed
  double message_overhead_s = 1e-6;  // of owner 0, for each small message of an agreement
  // Of forward, backward, and the Newton-Schulz of gather-then-compute.
  kernels::ElementType training_precision = kernels::ElementType::kBFloat16;
  bool timeline = false;  // fill SystemResult::spans
};

// What is simulated. `plan` is of `spec` for options.gpus owners.
struct Scenario {
  const SessionSpec& spec;
  const scheduler::Plan& plan;
  const Cluster& cluster;
  const scheduler::CostProfile& profile;
  RunOptions options;
};

// Seconds of one step, as the trainers see it. The five parts add up to step_s.
struct SystemResult {
  System system = System::kTrainingOnly;
  double step_s = 0.0;
  double forward_s = 0.0;
  double backward_s = 0.0;
  double optimizer_s = 0.0;      // trainers wait, somebody computes an update
  double communication_s = 0.0;  // nobody computes, something is under way: exposed communication
  double idle_s = 0.0;           // neither
  // From the last reduced gradient until the new parameters exist: what a timer around the
  // optimizer's step() would show.
  double optimizer_step_s = 0.0;
  LinkBytes bytes;
  std::vector<double> owner_busy_s;  // one per owner of dmuond, else empty
  std::vector<Span> spans;
};

// Throws ClusterError where the cluster has no such devices, the plan another number of owners or
// the profile no product rate.
SystemResult Simulate(System system, const Scenario& scenario);

}  // namespace dmuon::simulator
