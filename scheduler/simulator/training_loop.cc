#include "scheduler/simulator/training_loop.h"

namespace dmuon::simulator {

TrainingLoop::TrainingLoop(const std::vector<Layer>& layers, const TrainingOptions& options,
                           Network* network, Devices* devices, EventQueue* events,
                           std::vector<Span>* spans)
    : layers_(layers),
      options_(options),
      network_(network),
      devices_(devices),
      events_(events),
      spans_(spans),
      layers_left_(layers.size()),
      gradients_left_(layers.size()),
      gathered_(layers.size(), !options.sharded),
      ready_(layers.size(), false) {}

void TrainingLoop::Start(Hooks hooks) {
  hooks_ = std::move(hooks);
  gathered_.back() = true;  // still there from the forward pass
  TryBackward();
}

Devices::Work TrainingLoop::WorkOf(SpanKind kind, size_t layer) const {
  const double times = kind == SpanKind::kForward ? 1.0 : 2.0;
  const double flops = times * options_.flops_per_element * layers_[layer].elements;
  return {kind, flops / options_.flops_per_s, layers_[layer].name};
}

void TrainingLoop::Collected(double start, const std::string& label) {
  if (spans_ != nullptr) {
    spans_->push_back({kCollectivesLane, SpanKind::kCollective, start, events_->now(), label});
  }
}

void TrainingLoop::Gather(size_t layer, const char* label, Action done) {
  const double start = events_->now();
  network_->GatherOrScatter(layers_[layer].bytes,
                            [this, layer, label, start, done = std::move(done)] {
                              Collected(start, label + layers_[layer].name);
                              gathered_[layer] = true;
                              done();
                            });
}

void TrainingLoop::TryBackward() {
  const size_t layer = layers_left_ - 1;
  if (computing_ || layers_left_ == 0 || !gathered_[layer]) {
    return;
  }
  computing_ = true;
  devices_->RunOnAll(WorkOf(SpanKind::kBackward, layer), [this, layer] {
    computing_ = false;
    --layers_left_;
    TryBackward();
    ReduceGradient(layer);
  });
  if (layer > 0 && options_.sharded) {
    Gather(layer - 1, "gather ", [this] { TryBackward(); });
  }
}

void TrainingLoop::ReduceGradient(size_t layer) {
  if (!options_.sharded && !options_.all_reduce) {
    GradientReady(layer);
    return;
  }
  const double start = events_->now();
  Action done = [this, layer, start] {
    Collected(start, "reduce " + layers_[layer].name);
    GradientReady(layer);
  };
  if (options_.sharded) {
    network_->GatherOrScatter(layers_[layer].bytes, std::move(done));
  } else {
    network_->AllReduce(layers_[layer].bytes, std::move(done));
  }
}

void TrainingLoop::GradientReady(size_t layer) {
  if (hooks_.gradient_ready) {
    hooks_.gradient_ready(layer);
  }
  if (--gradients_left_ > 0) {
    return;
  }
  backward_done_s_ = events_->now();
  pass_ = Pass::kForward;
  layers_left_ = layers_.size();
  gathered_.assign(layers_.size(), !options_.sharded);
  GatherForForward();
  TryForward();
  hooks_.backward_done();
}

void TrainingLoop::ParametersReady(size_t layer) {
  ready_[layer] = true;
  if (pass_ == Pass::kForward) {
    GatherForForward();
    TryForward();
  }
}

void TrainingLoop::AllParametersReady() {
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    ParametersReady(layer);
  }
}

// In order, while there is at most one layer that waits for its turn.
void TrainingLoop::GatherForForward() {
  const size_t current = layers_.size() - layers_left_;
  while (options_.sharded && next_gather_ < layers_.size() && ready_[next_gather_] &&
         next_gather_ <= current + 1) {
    Gather(next_gather_++, "gather ", [this] { TryForward(); });
  }
}

void TrainingLoop::TryForward() {
  const size_t layer = layers_.size() - layers_left_;
  if (computing_ || layers_left_ == 0 || !ready_[layer] || !gathered_[layer]) {
    return;
  }
  computing_ = true;
  devices_->RunOnAll(WorkOf(SpanKind::kForward, layer), [this] {
    computing_ = false;
    if (--layers_left_ == 0) {
      step_done_s_ = events_->now();
      return;
    }
    GatherForForward();
    TryForward();
  });
}

}  // namespace dmuon::simulator
