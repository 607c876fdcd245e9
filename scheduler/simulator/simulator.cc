#include "scheduler/simulator/simulator.h"

#include <algorithm>

#include "scheduler/simulator/optimizer.h"

namespace dmuon::simulator {
namespace {

constexpr double kForwardFlopsPerElement = 2.0;  // and token: one multiply-add

void Check(const Scenario& scenario) {
  if (scenario.plan.owners != scenario.options.gpus) {
    throw ClusterError("a plan for " + std::to_string(scenario.plan.owners) + " owners and " +
                       std::to_string(scenario.options.gpus) +
                       " GPUs: each GPU has one owner here");
  }
  if (!scenario.profile.gemm_flops_per_s(scenario.options.training_precision).has_value()) {
    throw ClusterError(
        "profile " + scenario.profile.name() + ": has no rate for products of " +
        std::string(kernels::NameOf(scenario.options.training_precision)) +
        ", so forward and backward have no duration; use a shipped profile or another precision");
  }
}

TrainingOptions TrainingOf(System system, const Scenario& scenario) {
  const RunOptions& options = scenario.options;
  return {.sharded = options.sharded,
          .all_reduce = system != System::kDmuond,
          .flops_per_element = kForwardFlopsPerElement * options.tokens,
          .flops_per_s = *scenario.profile.gemm_flops_per_s(options.training_precision) *
                         options.training_share};
}

std::unique_ptr<Optimizer> MakeOptimizer(System system, const Scene& scene) {
  switch (system) {
    case System::kAdamW:
      return MakeAdamW(scene);
    case System::kGather:
      return MakeGatherThenCompute(scene);
    case System::kDmuond:
      return MakeDmuond(scene);
    case System::kTrainingOnly:
      break;
  }
  return MakeNoOptimizer(scene);
}

class NoOptimizer : public Optimizer {
 public:
  explicit NoOptimizer(const Scene& scene) : scene_(scene) {}

  void GradientReady(size_t) override {}
  void BackwardDone() override {
    updated_s_ = scene_.events->now();
    scene_.loop->AllParametersReady();
  }

 private:
  Scene scene_;
};

}  // namespace

std::string_view NameOf(System system) {
  switch (system) {
    case System::kAdamW:
      return "adamw";
    case System::kGather:
      return "gather";
    case System::kDmuond:
      return "dmuond";
    case System::kTrainingOnly:
      break;
  }
  return "training_only";
}

std::unique_ptr<Optimizer> MakeNoOptimizer(const Scene& scene) {
  return std::make_unique<NoOptimizer>(scene);
}

SystemResult Simulate(System system, const Scenario& scenario) {
  Check(scenario);
  SystemResult result;
  result.system = system;
  std::vector<Span>* spans = scenario.options.timeline ? &result.spans : nullptr;
  const std::vector<Layer> layers = LayersOf(scenario.spec);
  EventQueue events;
  Activity activity(&events);
  Network network(scenario.cluster, PlaceOn(scenario.cluster, scenario.options.gpus),
                  system == System::kDmuond ? Load::kCollectivesAndBuckets : Load::kCollectives,
                  &events, &activity);
  Devices devices(system == System::kDmuond ? scenario.options.gpus : 0,
                  scenario.options.owners_apart, &events, &activity, spans);
  TrainingLoop loop(layers, TrainingOf(system, scenario), &network, &devices, &events, spans);
  const std::unique_ptr<Optimizer> optimizer =
      MakeOptimizer(system, {scenario, layers, &events, &network, &devices, &loop, spans});
  loop.Start({[&optimizer](size_t layer) { optimizer->GradientReady(layer); },
              [&optimizer] { optimizer->BackwardDone(); }});
  events.Run();
  if (loop.step_done_s() < 0.0) {
    throw std::logic_error("the simulated step of " + std::string(NameOf(system)) +
                           " never ended; this is a bug");
  }
  result.step_s = loop.step_done_s();
  result.forward_s = activity.seconds(Part::kForward);
  result.backward_s = activity.seconds(Part::kBackward);
  result.optimizer_s = activity.seconds(Part::kOptimizer);
  result.communication_s = activity.seconds(Part::kCommunication);
  const double explained =
      result.forward_s + result.backward_s + result.optimizer_s + result.communication_s;
  result.idle_s = std::max(0.0, result.step_s - explained);  // rounding may leave less than nothing
  result.optimizer_step_s = optimizer->updated_s() - loop.backward_done_s();
  result.bytes = network.bytes();
  if (system == System::kDmuond) {
    result.owner_busy_s = devices.owner_busy_s();
  }
  return result;
}

}  // namespace dmuon::simulator
