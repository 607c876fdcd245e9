#include "scheduler/simulator/assumptions.h"

#include <cstdio>

namespace dmuon::simulator {
namespace {

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

std::string OfLink(const std::string& what, const LinkSpeed& speed) {
  return what + ": " + Number(speed.bytes_per_s / 1e9) + " GB/s each way, latency " +
         Number(speed.latency_s * 1e6) + " us; all of it is reached";
}

void AddCompute(const Scenario& scenario, std::vector<std::string>* lines) {
  const RunOptions& options = scenario.options;
  const double rate = *scenario.profile.gemm_flops_per_s(options.training_precision);
  const std::string precision(kernels::NameOf(options.training_precision));
  lines->push_back("forward and backward: 2 and 4 flops for each parameter and token, " +
                   Number(options.tokens) + " tokens a rank, at " +
                   Number(options.training_share * rate / 1e12) + " Tflop/s (" +
                   Number(options.training_share) + " of the rate for large " + precision +
                   " products of profile " + scenario.profile.name() +
                   "); attention and recomputation cost nothing; every parameter counts, those of "
                   "idle experts and embeddings too");
  lines->push_back("layers: parameters whose names agree up to the first number, computed in " +
                   std::string("canonical order; one micro-batch a step"));
  lines->push_back(
      "gather: one parameter after the other, the next is gathered meanwhile; plain direct "
      "iterations in " +
      precision +
      " without symmetry at the rate for large products, no kernel "
      "launches; norm and cast 10 bytes an element of every matrix, momentum and step 32 of what "
      "the rank holds");
  lines->push_back("adamw: 28 bytes an element of what the rank holds");
  lines->push_back(
      "dmuond: batches as the profile says for the plan's numerics; AdamW 28 bytes an "
      "element; reduction, and the copy to publish, as bytes read and written");
  for (const std::string& guess : scenario.plan.guesses) {
    lines->push_back("guessed by the profile: " + guess);
  }
}

void AddPrograms(const RunOptions& options, std::vector<std::string>* lines) {
  lines->push_back(
      options.sharded
          ? "trainers hold equal shares of every parameter (FSDP): a layer is gathered before its "
            "forward and, the last one excepted, before its backward, one layer ahead, and its "
            "gradient is reduced and scattered in the parameters' type; pushes are shards of "
            "reduced gradients"
          : "trainers are replicas: with adamw and gather gradients are all-reduced; dmuond gets "
            "one fp32 sum a node; summing inside the node takes the link's time and no arithmetic");
  lines->push_back("all ranks do the same at the same time; no stragglers");
  lines->push_back(options.owners_apart
                       ? "each owner has a device of its own, as fast as a trainer's"
                       : "an owner has its GPU only while the trainer there waits; switching is "
                         "free");
  lines->push_back("commit: " + Number(options.control_s * 1e6) +
                   " us from the end of backward until owner 0 knows that all sealed, then a "
                   "message from and to each owner, " +
                   Number(options.message_overhead_s * 1e6) + " us each at owner 0");
}

void AddLinks(const Cluster& cluster, std::vector<std::string>* lines) {
  lines->push_back(OfLink("inside a node, each GPU", cluster.intra_node));
  lines->push_back(
      OfLink("between nodes, each of " + std::to_string(cluster.nics_per_node) + " cards a node",
             cluster.nic));
  lines->push_back(cluster.fabric_bytes_per_s.has_value()
                       ? "fabric: " + Number(*cluster.fabric_bytes_per_s / 1e9) +
                             " GB/s between all nodes together"
                       : std::string("the fabric does not block"));
  if (cluster.host_link.has_value()) {
    lines->push_back(OfLink("the daemon's traffic passes host memory", *cluster.host_link));
  }
  lines->push_back(
      "collectives: bytes as on a ring, bandwidth-optimal, both levels at once; latency of "
      "log2(nodes) messages between nodes and of (GPUs of a node - 1) inside");
  lines->push_back(
      "a link shares its bandwidth equally between collectives and the daemon's "
      "messages, which keep their order");
}

}  // namespace

std::vector<std::string> Assumptions(const Scenario& scenario) {
  std::vector<std::string> lines;
  AddCompute(scenario, &lines);
  AddPrograms(scenario.options, &lines);
  AddLinks(scenario.cluster, &lines);
  for (const std::string& line : scenario.cluster.assumptions) {
    lines.push_back("cluster file: " + line);
  }
  return lines;
}

}  // namespace dmuon::simulator
