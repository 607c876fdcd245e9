// Where the data of trainers that attached at this owner's socket comes in and goes out.
//
// The engine thread tells it what the session does; gRPC threads check pushes against it and wait
// for published buckets.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "daemon/session/trainer_layout.h"
#include "daemon/transport/bucket_buffer.h"
#include "proto/status.h"

namespace dmuon {

class Ingress {
 public:
  // Engine thread.
  void AddTrainer(uint64_t session, uint32_t trainer, TrainerLayout layout, uint64_t generation);
  void RemoveTrainer(uint32_t trainer);
  void EndSession(const std::string& reason);
  void StartStep(uint64_t generation);
  void FinishStep(uint64_t generation);
  // A published bucket for one of our trainers. Dropped when the trainer is gone.
  void Deliver(BucketPtr bucket);
  // Whether every published bucket has been fetched.
  bool Drained() const;

  // gRPC threads.

  // Whether a bucket message that starts with `header` would be taken; `owner` is where it belongs.
  Status CheckPush(const BucketHeader& header, uint32_t* owner) const;
  // The whole message has arrived. Final pushes are remembered, so that a second one is refused.
  Status AcceptPush(const BucketBuffer& message);

  // Buckets that Fetch has to deliver to a trainer, ascending.
  Result<std::vector<uint32_t>> ExpectedBuckets(uint64_t session, uint32_t trainer) const;
  // Waits for one of them; `cancelled` is looked at several times a second.
  Result<BucketPtr> TakePublished(uint32_t trainer, uint64_t generation, uint32_t bucket,
                                  const std::function<bool()>& cancelled);

  enum class HoldState { kHeld, kDetached, kEnded };
  // Waits a moment for news about a trainer. kEnded fills `reason`.
  HoldState WaitHold(uint64_t session, uint32_t trainer, std::string* reason);

 private:
  struct Trainer {
    TrainerLayout layout;
    std::set<uint32_t> final_buckets;  // of the current generation
    uint64_t published_generation = 0;
    std::map<uint32_t, BucketPtr> published;
  };

  Status CheckPushLocked(const BucketHeader& header) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t session_ = 0;
  uint64_t generation_ = 0;
  bool step_active_ = false;
  std::map<uint32_t, Trainer> trainers_;
  std::map<uint64_t, std::string> ended_;  // reason by session
};

}  // namespace dmuon
