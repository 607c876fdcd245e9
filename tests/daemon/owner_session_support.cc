#include "tests/daemon/owner_session_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <utility>

namespace dmuon::test {
namespace {

constexpr auto kLimit = std::chrono::seconds(60);

// A job leads to an engine task that may post another job, at most this often in a row: reduce,
// update, publish.
constexpr int kChain = 4;

v1::StartSession StartOf(const Job& job) {
  v1::StartSession start;
  start.set_session(1);
  start.set_spec_json(CanonicalJson(job.spec));
  start.set_plan(scheduler::SerializePlan(job.plan));
  start.set_plan_hash(scheduler::PlanHash(job.plan));
  start.set_trainers(job.trainers());
  return start;
}

}  // namespace

TestOwner::TestOwner(const Job& job, uint32_t owner)
    : job_(job),
      device_(kernels::MakeCpuDevice({})),
      worker_(std::make_unique<ComputeWorker>()),
      session_(std::make_unique<OwnerSession>(
          OwnerSession::Environment{owner, device_.get(), worker_.get(), &inbox_, &pool_, this},
          StartOf(job))) {}

TestOwner::~TestOwner() {
  session_.reset();
  worker_.reset();  // before the inbox that its jobs post to
}

void TestOwner::SendToCoordinator(const v1::OwnerMessage& message) { sent_.push_back(message); }

void TestOwner::SendToTrainer(const TrainerInfo& trainer, BucketPtr bucket) {
  EXPECT_EQ(trainer.mpi_rank, static_cast<int>(bucket->header().trainer));
  published_.push_back(std::move(bucket));
}

void TestOwner::AddTrainer(uint32_t trainer, bool resumed) {
  v1::AddTrainer message;
  message.set_session(1);
  message.set_trainer(trainer);
  message.set_host_id(job_.host_ids[trainer]);
  message.set_channel(v1::CHANNEL_MPI);
  message.set_mpi_rank(static_cast<int>(trainer));
  message.set_resumed(resumed);
  for (uint32_t i = 0; i < job_.spec.parameters.size(); ++i) {
    v1::Region& region = *message.add_regions();
    region.set_parameter(i);
    for (int64_t start : job_.regions[trainer][i].start) region.add_start(start);
    for (int64_t extent : job_.regions[trainer][i].extent) region.add_extent(extent);
    region.set_contribution(job_.contribution == Contribution::kReplica ? v1::CONTRIBUTION_REPLICA
                                                                        : v1::CONTRIBUTION_PARTIAL);
  }
  session_->AddTrainer(message);
}

void TestOwner::Take(const BucketPtr& bucket) {
  bool stale = false;
  Status status = session_->TakeBucket(bucket, &stale);
  EXPECT_TRUE(status.ok()) << status.message();
}

std::string TestOwner::Refusal(const BucketPtr& bucket) {
  bool stale = false;
  Status status = session_->TakeBucket(bucket, &stale);
  EXPECT_FALSE(status.ok());
  return (stale ? "stale: " : "") + status.message();
}

void TestOwner::StartStep(uint64_t generation, double lr, double grad_scale) {
  v1::StartStep message;
  message.set_session(1);
  message.set_step(generation);
  message.set_generation(generation);
  message.set_grad_scale(grad_scale);
  if (lr >= 0) {
    v1::GroupValues& values = *message.add_groups();
    values.set_group("muon");
    values.set_lr(lr);
  }
  session_->StartStep(message);
}

void TestOwner::Seal(uint64_t generation, const std::vector<uint32_t>& absent) {
  v1::AllSealed message;
  message.set_generation(generation);
  for (uint32_t parameter : absent) message.add_absent(parameter);
  session_->Seal(message);
}

void TestOwner::Clip(uint64_t generation, double factor) {
  v1::ClipFactor message;
  message.set_generation(generation);
  message.set_factor(factor);
  session_->Clip(message);
}

void TestOwner::Finish(uint64_t generation, v1::StepOutcome outcome) {
  v1::FinishStep message;
  message.set_generation(generation);
  message.set_outcome(outcome);
  session_->Finish(message);
}

void TestOwner::Settle() {
  for (int i = 0; i < kChain; ++i) {
    bool passed = false;
    worker_->Post([this, &passed] { inbox_.Post([&passed] { passed = true; }); });
    while (!passed) {
      if (!inbox_.RunAll()) inbox_.WaitFor(kLimit);
    }
  }
}

bool TestOwner::Sent(v1::OwnerMessage::KindCase kind) const {
  return std::any_of(sent_.begin(), sent_.end(),
                     [&](const v1::OwnerMessage& m) { return m.kind_case() == kind; });
}

v1::OwnerMessage TestOwner::Next(v1::OwnerMessage::KindCase kind) {
  Settle();
  v1::OwnerMessage found;
  int count = 0;
  for (auto it = sent_.begin(); it != sent_.end();) {
    if (it->kind_case() != kind) {
      ++it;
      continue;
    }
    found = *it;
    ++count;
    it = sent_.erase(it);
  }
  EXPECT_EQ(count, 1) << "messages of kind " << kind;
  return found;
}

std::vector<BucketPtr> TestOwner::TakePublished() {
  Settle();
  return std::exchange(published_, {});
}

TestCluster::TestCluster(Job job, const Tensors& initial)
    : job_(std::move(job)), values_(job_.trainers(), initial) {
  for (int owner = 0; owner < job_.plan.owners; ++owner) {
    owners_.push_back(std::make_unique<TestOwner>(job_, owner));
  }
  for (auto& owner : owners_) {
    for (uint32_t trainer = 0; trainer < job_.trainers(); ++trainer) owner->AddTrainer(trainer);
  }
  PushAll(values_, {BucketKind::kInitial, true, 1, 0});
  for (auto& owner : owners_) {
    EXPECT_EQ(owner->Next(v1::OwnerMessage::kInitialValuesDone).initial_values_done().error(), "");
  }
}

void TestCluster::PushAll(const std::vector<Tensors>& tensors, const MessageOptions& options) {
  for (uint32_t trainer = 0; trainer < job_.trainers(); ++trainer) {
    for (uint32_t bucket = 0; bucket < job_.plan.buckets.size(); ++bucket) {
      owners_[job_.plan.buckets[bucket].owner]->Take(
          PackBucket(job_, trainer, bucket, tensors[trainer], options));
    }
  }
}

std::vector<uint32_t> TestCluster::AbsentIn(const std::vector<Tensors>& gradients) const {
  std::vector<uint32_t> absent;
  for (uint32_t i = 0; i < job_.spec.parameters.size(); ++i) {
    const std::string& name = job_.spec.parameters[i].name;
    if (std::none_of(gradients.begin(), gradients.end(),
                     [&](const Tensors& own) { return own.count(name) != 0; })) {
      absent.push_back(i);
    }
  }
  return absent;
}

StepResult TestCluster::Step(const std::vector<Tensors>& gradients, double grad_scale) {
  ++generation_;
  for (auto& owner : owners_) owner->StartStep(generation_, -1, grad_scale);
  PushAll(gradients, {BucketKind::kGradient, true, 1, generation_});
  for (auto& owner : owners_) owner->Seal(generation_, AbsentIn(gradients));
  StepResult result = Agree();
  for (auto& owner : owners_) {
    owner->Finish(generation_, result.outcome);
    for (const BucketPtr& bucket : owner->TakePublished()) {
      EXPECT_EQ(bucket->header().generation, generation_);
      UnpackBucket(job_, *bucket, &values_[bucket->header().trainer]);
    }
  }
  return result;
}

StepResult TestCluster::Agree() {
  StepResult result;
  std::map<uint32_t, double> norms;
  std::map<uint32_t, std::string> not_finite;
  for (auto& owner : owners_) {
    v1::Reduced reduced = owner->Next(v1::OwnerMessage::kReduced).reduced();
    EXPECT_EQ(reduced.generation(), generation_);
    for (const v1::PieceNorm& norm : reduced.norms()) norms[norm.piece()] = norm.squared_sum();
    if (!reduced.not_finite().empty()) {
      not_finite[reduced.not_finite_parameter()] = reduced.not_finite();
    }
  }
  double squared = 0;
  for (const auto& [piece, norm] : norms) squared += norm;
  result.norm = std::sqrt(squared);
  if (not_finite.empty()) {
    double limit = job_.spec.max_grad_norm.value_or(0);
    if (limit > 0) {
      for (auto& owner : owners_) owner->Clip(generation_, std::min(1.0, limit / result.norm));
    }
    for (auto& owner : owners_) {
      v1::StepReady ready = owner->Next(v1::OwnerMessage::kStepReady).step_ready();
      uint64_t done = 0;
      for (const v1::Orthogonalised& count : ready.orthogonalised()) done += count.matrices();
      EXPECT_EQ(ready.muon_matrices_expected(), done);
      result.matrices += done;
      if (!ready.not_finite().empty()) {
        not_finite[ready.not_finite_parameter()] = ready.not_finite();
      }
    }
  }
  if (!not_finite.empty()) {
    result.outcome = v1::STEP_OUTCOME_SKIPPED;
    result.not_finite = not_finite.begin()->second;
    for (auto& owner : owners_) {
      if (owner->Sent(v1::OwnerMessage::kStepReady)) owner->Next(v1::OwnerMessage::kStepReady);
    }
  }
  return result;
}

}  // namespace dmuon::test
