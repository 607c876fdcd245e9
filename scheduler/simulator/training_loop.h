// What the framework does in a step: backward, then the next forward, with its own collectives.
#pragma once

#include <vector>

#include "scheduler/simulator/devices.h"
#include "scheduler/simulator/network.h"
#include "scheduler/simulator/workload.h"

namespace dmuon::simulator {

struct TrainingOptions {
  // True: every rank holds a share of each parameter; a layer is gathered before its forward and
  // before its backward, one layer ahead, and its gradient is reduced and scattered. False: every
  // rank holds everything.
  bool sharded = true;
  // Of replicas: whether the framework sums gradients over the ranks.
  bool all_reduce = true;
  double flops_per_element = 0.0;  // of the forward pass; the backward pass takes twice that
  double flops_per_s = 0.0;
};

// A step begins with the backward pass, when all activations are there, and ends with the next
// forward pass: nothing is under way at either end, so one step repeats exactly.
class TrainingLoop {
 public:
  struct Hooks {
    std::function<void(size_t layer)> gradient_ready;  // on every rank
    Action backward_done;                              // and every gradient ready
  };

  // All references outlive the loop. `spans` as in Devices.
  TrainingLoop(const std::vector<Layer>& layers, const TrainingOptions& options, Network* network,
               Devices* devices, EventQueue* events, std::vector<Span>* spans);

  void Start(Hooks hooks);

  // The layer's new parameters are where the next forward pass takes them from. Once for each.
  void ParametersReady(size_t layer);
  void AllParametersReady();

  double backward_done_s() const { return backward_done_s_; }
  double step_done_s() const { return step_done_s_; }  // < 0: not done

 private:
  enum class Pass { kBackward, kForward };

  void Gather(size_t layer, const char* label, Action done);
  void Collected(double start, const std::string& label);
  void GatherForBackward(size_t layer);
  void TryBackward();
  void ReduceGradient(size_t layer);
  void GradientReady(size_t layer);
  void GatherForForward();
  void TryForward();
  Devices::Work WorkOf(SpanKind kind, size_t layer) const;

  const std::vector<Layer>& layers_;
  TrainingOptions options_;
  Network* network_;
  Devices* devices_;
  EventQueue* events_;
  std::vector<Span>* spans_;
  Hooks hooks_;

  Pass pass_ = Pass::kBackward;
  bool computing_ = false;
  size_t layers_left_ = 0;     // of the pass; backward computes layer layers_left_ - 1 next
  size_t gradients_left_ = 0;  // not ready
  std::vector<bool> gathered_;
  std::vector<bool> ready_;  // new parameters
  size_t next_gather_ = 0;   // of the forward pass
  double backward_done_s_ = -1.0;
  double step_done_s_ = -1.0;
};

}  // namespace dmuon::simulator
