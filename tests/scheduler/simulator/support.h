// Small clusters, devices and models for the simulator's tests.
#pragma once

#include <string>

#include "scheduler/cost_profile.h"
#include "scheduler/simulator/simulator.h"

namespace dmuon::simulator::test {

inline constexpr double kFlopsPerS = 1e12;
inline constexpr double kNever = 1e30;  // a bandwidth at which nothing takes time

// Products at kFlopsPerS whatever their size, elementwise work at `memory_bytes_per_s`, no
// launches.
inline scheduler::CostProfilePtr SimpleProfile(double memory_bytes_per_s) {
  const std::string rate = R"({"peak_flops_per_s": 1e12})";
  return scheduler::ParseCostProfile(
      R"({"format": "dmuon-profile-1", "name": "simple", "gemm": {"fp32": )" + rate +
          R"(, "bf16": )" + rate + R"(, "fp16": )" + rate + R"(}, "memory_bytes_per_s": )" +
          std::to_string(memory_bytes_per_s) + "}",
      "simple.json");
}

inline Cluster SmallCluster(int nodes, int gpus_per_node) {
  Cluster cluster;
  cluster.name = "small";
  cluster.nodes = nodes;
  cluster.gpus_per_node = gpus_per_node;
  cluster.intra_node = {1e9, 1e-5};
  cluster.nics_per_node = gpus_per_node;
  cluster.nic = {1e8, 1e-4};
  return cluster;
}

inline Cluster WithoutLinks(Cluster cluster) {
  cluster.intra_node = {kNever, 0.0};
  cluster.nic = {kNever, 0.0};
  return cluster;
}

inline scheduler::Plan PlanOf(const SessionSpec& spec, int owners, int64_t bucket_bytes) {
  scheduler::PlanOptions options;
  options.owners = owners;
  options.bucket_bytes = bucket_bytes;
  return scheduler::MakePlan(spec, options);
}

// A session with everything that a simulation needs, of one device a rank.
class Session {
 public:
  Session(const std::string& spec, Cluster cluster, double memory_bytes_per_s = kNever,
          int64_t bucket_bytes = 32 << 20)
      : spec_(ParseSessionSpec(spec)),
        cluster_(std::move(cluster)),
        profile_(SimpleProfile(memory_bytes_per_s)),
        plan_(PlanOf(spec_, cluster_.nodes * cluster_.gpus_per_node, bucket_bytes)) {
    options_.gpus = plan_.owners;
    options_.tokens = 1000.0;
    options_.control_s = 0.0;
    options_.message_overhead_s = 0.0;
  }

  RunOptions& options() { return options_; }
  SessionSpec& spec() { return spec_; }
  Cluster& cluster() { return cluster_; }
  scheduler::Plan& plan() { return plan_; }

  SystemResult Run(System system) const {
    return Simulate(system, {spec_, plan_, cluster_, *profile_, options_});
  }

 private:
  SessionSpec spec_;
  Cluster cluster_;
  scheduler::CostProfilePtr profile_;
  scheduler::Plan plan_;
  RunOptions options_;
};

}  // namespace dmuon::simulator::test
