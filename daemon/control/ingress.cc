#include "daemon/control/ingress.h"

#include <utility>

namespace dmuon {
namespace {

constexpr auto kLookAround = std::chrono::milliseconds(100);  // of waits
constexpr auto kPublishLimit = std::chrono::seconds(60);
constexpr size_t kEndedSessionsKept = 16;

}  // namespace

void Ingress::AddTrainer(uint64_t session, uint32_t trainer, TrainerLayout layout,
                         uint64_t generation) {
  std::lock_guard lock(mutex_);
  session_ = session;
  generation_ = generation;
  trainers_[trainer] = {std::move(layout), {}, 0, {}};
  changed_.notify_all();
}

void Ingress::RemoveTrainer(uint32_t trainer) {
  std::lock_guard lock(mutex_);
  trainers_.erase(trainer);
  changed_.notify_all();
}

void Ingress::EndSession(const std::string& reason) {
  std::lock_guard lock(mutex_);
  trainers_.clear();
  if (session_ != 0) ended_[session_] = reason;  // 0: none of its trainers attached here
  session_ = 0;
  if (ended_.size() > kEndedSessionsKept) ended_.erase(ended_.begin());
  step_active_ = false;
  generation_ = 0;
  changed_.notify_all();
}

void Ingress::StartStep(uint64_t generation) {
  std::lock_guard lock(mutex_);
  generation_ = generation;
  step_active_ = true;
  for (auto& [number, trainer] : trainers_) trainer.final_buckets.clear();
}

void Ingress::FinishStep(uint64_t generation) {
  std::lock_guard lock(mutex_);
  if (generation == generation_) step_active_ = false;
}

void Ingress::Deliver(BucketPtr bucket) {
  BucketHeader header = bucket->header();
  std::lock_guard lock(mutex_);
  auto trainer = trainers_.find(header.trainer);
  if (trainer == trainers_.end() || header.session != session_) return;
  if (trainer->second.published_generation != header.generation) {
    trainer->second.published.clear();
    trainer->second.published_generation = header.generation;
  }
  trainer->second.published[header.bucket] = std::move(bucket);
  changed_.notify_all();
}

bool Ingress::Drained() const {
  std::lock_guard lock(mutex_);
  for (const auto& [number, trainer] : trainers_) {
    if (!trainer.published.empty()) return false;
  }
  return true;
}

Status Ingress::CheckPushLocked(const BucketHeader& header) const {
  if (header.session != session_ || trainers_.count(header.trainer) == 0) {
    return Status::NotFound("trainer " + std::to_string(header.trainer) + " of session " +
                            std::to_string(header.session) + " is not attached at this socket");
  }
  const Trainer& trainer = trainers_.at(header.trainer);
  Status status = CheckBucketHeader(trainer.layout, header);
  if (!status.ok()) return status;
  if (header.kind == static_cast<uint8_t>(BucketKind::kInitial)) return Status::Ok();
  std::string push = "trainer " + std::to_string(header.trainer) + " pushed bucket " +
                     std::to_string(header.bucket);
  if (header.generation != generation_) {
    return Status::FailedPrecondition(push + " for generation " +
                                      std::to_string(header.generation) + "; the current one is " +
                                      std::to_string(generation_));
  }
  if (!step_active_) {
    return {StatusCode::kAborted, push + " for generation " + std::to_string(header.generation) +
                                      ", which has ended; WaitStep tells how"};
  }
  if (trainer.final_buckets.count(header.bucket) != 0) {
    return Status::FailedPrecondition(push + " again after its final push of this step");
  }
  return Status::Ok();
}

Status Ingress::CheckPush(const BucketHeader& header, uint32_t* owner) const {
  std::lock_guard lock(mutex_);
  Status status = CheckPushLocked(header);
  if (status.ok()) *owner = trainers_.at(header.trainer).layout.buckets[header.bucket].owner;
  return status;
}

Status Ingress::AcceptPush(const BucketBuffer& message) {
  BucketHeader header = message.header();
  std::lock_guard lock(mutex_);
  Status status = CheckPushLocked(header);
  if (status.ok()) status = CheckBucketMessage(trainers_.at(header.trainer).layout, message);
  if (!status.ok()) return status;
  if ((header.flags & kBucketFinal) != 0 &&
      header.kind == static_cast<uint8_t>(BucketKind::kGradient)) {
    trainers_.at(header.trainer).final_buckets.insert(header.bucket);
  }
  return Status::Ok();
}

Result<std::vector<uint32_t>> Ingress::ExpectedBuckets(uint64_t session, uint32_t trainer) const {
  std::lock_guard lock(mutex_);
  auto found = trainers_.find(trainer);
  if (session != session_ || found == trainers_.end()) {
    return Status::NotFound("trainer " + std::to_string(trainer) + " of session " +
                            std::to_string(session) + " is not attached at this socket");
  }
  std::vector<uint32_t> expected;
  const std::vector<LayoutBucket>& buckets = found->second.layout.buckets;
  for (uint32_t bucket = 0; bucket < buckets.size(); ++bucket) {
    if (buckets[bucket].payload_bytes > 0) expected.push_back(bucket);
  }
  return expected;
}

Result<BucketPtr> Ingress::TakePublished(uint32_t trainer, uint64_t generation, uint32_t bucket,
                                         const std::function<bool()>& cancelled) {
  auto deadline = std::chrono::steady_clock::now() + kPublishLimit;
  std::unique_lock lock(mutex_);
  for (;;) {
    auto found = trainers_.find(trainer);
    if (found == trainers_.end()) {
      return Status(StatusCode::kAborted,
                    "trainer " + std::to_string(trainer) + " left the session while it fetched");
    }
    Trainer& state = found->second;
    if (state.published_generation > generation) {
      return Status::FailedPrecondition(
          "trainer " + std::to_string(trainer) + " fetched generation " +
          std::to_string(generation) + "; generation " +
          std::to_string(state.published_generation) + " has been published since");
    }
    auto published = state.published.find(bucket);
    if (state.published_generation == generation && published != state.published.end()) {
      BucketPtr message = std::move(published->second);
      state.published.erase(published);
      return message;
    }
    if (cancelled()) return Status(StatusCode::kCancelled, "the call was cancelled");
    if (std::chrono::steady_clock::now() > deadline) {
      return Status(StatusCode::kDeadlineExceeded,
                    "bucket " + std::to_string(bucket) + " of generation " +
                        std::to_string(generation) + " was not published within 60 s by owner " +
                        std::to_string(state.layout.buckets[bucket].owner));
    }
    changed_.wait_for(lock, kLookAround);
  }
}

Ingress::HoldState Ingress::WaitHold(uint64_t session, uint32_t trainer, std::string* reason) {
  std::unique_lock lock(mutex_);
  if (session == session_ && trainers_.count(trainer) != 0) {
    changed_.wait_for(lock, kLookAround);
  }
  auto ended = ended_.find(session);
  if (ended != ended_.end()) {
    *reason = ended->second;
    return HoldState::kEnded;
  }
  if (session != session_ || trainers_.count(trainer) == 0) return HoldState::kDetached;
  return HoldState::kHeld;
}

}  // namespace dmuon
