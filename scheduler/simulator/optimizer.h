// The part of a step in which the three systems differ. Internal to scheduler/simulator/.
#pragma once

#include <memory>

#include "scheduler/simulator/simulator.h"
#include "scheduler/simulator/training_loop.h"

namespace dmuon::simulator {

inline constexpr double kFp32Bytes = 4.0;  // of masters and of sums

// What a step runs on. Outlives the optimizer.
struct Scene {
  const Scenario& scenario;
  const std::vector<Layer>& layers;
  EventQueue* events;
  Network* network;
  Devices* devices;
  TrainingLoop* loop;
  std::vector<Span>* spans;  // null: no timeline
};

// Runs between TrainingLoop's hooks and its ParametersReady().
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  virtual void GradientReady(size_t layer) = 0;
  virtual void BackwardDone() = 0;

  // When the new parameters existed; < 0: not yet.
  double updated_s() const { return updated_s_; }

 protected:
  double updated_s_ = -1.0;
};

std::unique_ptr<Optimizer> MakeNoOptimizer(const Scene& scene);
std::unique_ptr<Optimizer> MakeAdamW(const Scene& scene);
std::unique_ptr<Optimizer> MakeGatherThenCompute(const Scene& scene);
std::unique_ptr<Optimizer> MakeDmuond(const Scene& scene);

}  // namespace dmuon::simulator
