// An owner's arithmetic on its pieces: reduce, update, commit, publish. Compute thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/owner/assembly.h"
#include "daemon/owner/trainer_set.h"
#include "daemon/transport/bucket_pool.h"
#include "kernels/device.h"
#include "scheduler/owned_state.h"
#include "scheduler/plan.h"
#include "scheduler/step_values.h"

namespace dmuon {

// A published bucket and the trainer that it is for.
struct PublishedBucket {
  uint32_t trainer = 0;
  BucketPtr message;
};

class StepWorker {
 public:
  // All arguments outlive the worker.
  StepWorker(kernels::Device& device, BucketPool& pool, const SessionSpec& spec,
             const scheduler::Plan& plan, uint32_t owner);

  // Takes the parameter values that training starts from. Returns an empty string, or one line that
  // names the parameter and what is wrong with it: trainers differ, or a value is not finite.
  std::string TakeInitialValues(const TrainerSet& trainers, uint32_t piece,
                                const Contributions& contributions);

  // Sums the contributions of a piece along the canonical tree, scales once, measures the result.
  kernels::NormAndFinite Reduce(const TrainerSet& trainers, uint32_t piece,
                                const Contributions& contributions,
                                const scheduler::StepValues& values);

  // Updates reduced pieces of one batch (equal shape, numerics and group) into scratch. Returns
  // whether each result is finite.
  std::vector<bool> Update(const std::vector<uint32_t>& pieces, const scheduler::StepValues& values,
                           double clip_factor);

  void Commit() { state_.Commit(); }
  void Discard() { state_.Discard(); }

  // The committed parameters of one bucket for each of `receivers` that holds a part of it.
  std::vector<PublishedBucket> Publish(const TrainerSet& trainers,
                                       const std::vector<uint32_t>& receivers, uint32_t bucket,
                                       uint64_t session, uint64_t generation);

 private:
  const ParameterSpec& ParameterOf(uint32_t piece) const;
  void ReduceSegment(const TrainerSet& trainers, uint32_t piece, const Segment& segment,
                     const Contributions& contributions, double grad_scale);
  void ReduceOverNodes(const TrainerSet& trainers, const Segment& segment,
                       const std::vector<const void*>& data, DType dtype, float factor,
                       float* destination);

  kernels::Device& device_;
  BucketPool& pool_;
  const SessionSpec& spec_;
  const scheduler::Plan& plan_;
  scheduler::OwnedState state_;
  std::vector<std::vector<float>> node_sums_;  // scratch of ReduceOverNodes
  std::vector<std::byte> published_;           // scratch of Publish
};

}  // namespace dmuon
