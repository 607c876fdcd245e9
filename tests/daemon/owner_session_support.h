// Owners in one process: real sessions, compute workers and CPU devices, with the test as the
// engine and the coordinator.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/owner/owner_session.h"
#include "tests/daemon/bucket_support.h"

namespace dmuon::test {

// One owner: what it sends is kept.
class TestOwner : public OwnerSessionHost {
 public:
  TestOwner(const Job& job, uint32_t owner);
  ~TestOwner() override;

  OwnerSession& session() { return *session_; }

  void AddTrainer(uint32_t trainer, bool resumed = false);
  // Hands a message over, which must be taken.
  void Take(const BucketPtr& bucket);
  // Hands a message over that must be refused. Returns why, after "stale: " if it was that.
  std::string Refusal(const BucketPtr& bucket);
  void StartStep(uint64_t generation, double lr = -1, double grad_scale = 1);
  void Seal(uint64_t generation, const std::vector<uint32_t>& absent = {});
  void Clip(uint64_t generation, double factor);
  void Finish(uint64_t generation, v1::StepOutcome outcome = v1::STEP_OUTCOME_COMMITTED);

  // Runs until everything that was posted, and what that led to, is done.
  void Settle();
  // The only message of that kind since the last call of this function for it; runs until it is
  // there. The test fails when it does not come.
  v1::OwnerMessage Next(v1::OwnerMessage::KindCase kind);
  bool Sent(v1::OwnerMessage::KindCase kind) const;
  // What was published since the last call, settled.
  std::vector<BucketPtr> TakePublished();

 private:
  void SendToCoordinator(const v1::OwnerMessage& message) override;
  void SendToTrainer(const TrainerInfo& trainer, BucketPtr bucket) override;

  const Job& job_;
  std::unique_ptr<kernels::Device> device_;
  BucketPool pool_;
  Inbox inbox_;
  std::unique_ptr<ComputeWorker> worker_;
  std::unique_ptr<OwnerSession> session_;
  std::vector<v1::OwnerMessage> sent_;
  std::vector<BucketPtr> published_;
};

// What owners said about a step, together.
struct StepResult {
  v1::StepOutcome outcome = v1::STEP_OUTCOME_COMMITTED;
  double norm = 0;
  uint64_t matrices = 0;
  std::string not_finite;  // first in canonical order
};

// All owners of a job, and trainers that follow the protocol.
class TestCluster {
 public:
  // Attaches all trainers and gives them equal initial values.
  TestCluster(Job job, const Tensors& initial);

  // One step with every trainer's gradients; what all trainers lack is absent.
  StepResult Step(const std::vector<Tensors>& gradients, double grad_scale = 1);
  // As published last to `trainer`, laid over the initial values.
  const Tensors& Values(uint32_t trainer) const { return values_[trainer]; }
  TestOwner& owner(uint32_t number) { return *owners_[number]; }
  const Job& job() const { return job_; }
  uint64_t generation() const { return generation_; }

 private:
  void PushAll(const std::vector<Tensors>& tensors, const MessageOptions& options);
  std::vector<uint32_t> AbsentIn(const std::vector<Tensors>& gradients) const;
  StepResult Agree();

  Job job_;
  std::vector<std::unique_ptr<TestOwner>> owners_;
  std::vector<Tensors> values_;
  uint64_t generation_ = 0;
};

}  // namespace dmuon::test
