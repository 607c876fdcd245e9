// This owner's part in a session: the step pipeline.
//
// The engine thread owns the object; arithmetic runs as jobs on the compute worker, in the order in
// which they were posted, and comes back through the engine's inbox. A step is
//
//     StartStep -> buckets -> reduce (worker) -> update into scratch (worker) -> FinishStep
//
// Pieces are reduced as soon as their contributions are complete, a batch is updated as soon as all
// its pieces are reduced (with clipping: and the norm is agreed). Results carry the generation of
// their step, so that what an aborted step still produces is ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/compute_worker.h"
#include "daemon/inbox.h"
#include "daemon/owner/assembly.h"
#include "daemon/owner/step_worker.h"
#include "daemon/owner/trainer_set.h"
#include "dmuon/v1/owner.pb.h"
#include "kernels/device.h"
#include "proto/session_spec.h"
#include "scheduler/plan.h"

namespace dmuon {

// What a session asks of the owner process around it.
class OwnerSessionHost {
 public:
  virtual ~OwnerSessionHost() = default;
  virtual void SendToCoordinator(const v1::OwnerMessage& message) = 0;
  // Brings a published bucket to its trainer, whatever its channel.
  virtual void SendToTrainer(const TrainerInfo& trainer, BucketPtr bucket) = 0;
};

class OwnerSession {
 public:
  struct Environment {
    uint32_t owner = 0;
    kernels::Device* device = nullptr;
    ComputeWorker* worker = nullptr;
    Inbox* engine = nullptr;
    BucketPool* pool = nullptr;
    OwnerSessionHost* host = nullptr;
  };

  // Throws std::invalid_argument when spec or plan do not parse, or the plan's hash is not the one
  // that owner 0 announced.
  OwnerSession(const Environment& environment, const v1::StartSession& start);
  // Jobs that are still queued keep what they need alive.
  ~OwnerSession();
  OwnerSession(const OwnerSession&) = delete;
  OwnerSession& operator=(const OwnerSession&) = delete;

  uint64_t id() const { return id_; }
  uint64_t generation() const { return generation_; }
  uint32_t trainer_count() const { return static_cast<uint32_t>(trainers_.size()); }
  const TrainerInfo& trainer(uint32_t number) const { return trainers_[number]; }
  double busy_s() const { return last_busy_s_; }
  uint64_t matrices() const { return plan().loads[environment_.owner].matrices; }
  uint64_t elements() const { return plan().loads[environment_.owner].elements; }

  void AddTrainer(const v1::AddTrainer& message);
  void RemoveTrainer(uint32_t trainer);
  void StartStep(const v1::StartStep& message);
  void Seal(const v1::AllSealed& message);
  void Clip(const v1::ClipFactor& message);
  void Finish(const v1::FinishStep& message);

  // A gradient or initial value for this owner, from any channel. A message of the next generation
  // waits for its StartStep. `stale` tells whether an error is an outdated generation, or comes
  // after its step was aborted.
  Status TakeBucket(BucketPtr bucket, bool* stale);

  // A push that could not be taken, as the coordinator is told.
  static v1::OwnerMessage DataErrorOf(const BucketHeader& header, bool stale,
                                      const std::string& message);

  // What trainers still owe this owner in the current step (or of the initial values).
  std::vector<v1::MissingFromTrainer> Missing() const;

 private:
  // What jobs use; shared with them, so that they may outlive the session.
  struct Core {
    SessionSpec spec;
    scheduler::Plan plan;
    std::unique_ptr<StepWorker> worker;  // compute thread only
  };
  // Pieces that are updated by one call.
  struct Batch {
    std::vector<uint32_t> pieces;
    uint32_t waiting = 0;  // pieces that are not yet reduced or absent
  };
  struct Step {
    scheduler::StepValues values;
    Assembly assembly;
    std::vector<Batch> batches;
    std::optional<double> clip_factor;
    std::map<uint32_t, double> norms;  // squared, by reduced piece
    std::set<uint32_t> reduced;        // pieces with a finite gradient
    std::set<uint32_t> not_finite;     // parameters
    uint32_t pieces_open = 0;          // neither reduced nor absent
    uint32_t batches_open = 0;         // not yet updated
    uint64_t muon_expected = 0;
    std::map<std::string, v1::Orthogonalised> orthogonalised;
    double busy_s = 0;
    bool reported = false;
  };

  const SessionSpec& spec() const { return core_->spec; }
  const scheduler::Plan& plan() const { return core_->plan; }

  // Runs `job` on the worker, then `done` with its result on the engine, if the session still is
  // in that generation.
  template <typename T>
  void Run(std::function<T(StepWorker&)> job, std::function<void(T, double busy_s)> done);

  void CompleteTrainerSet();
  void MakeBatches();
  void TakeEarlyBuckets();
  void TakeInitialPiece(uint32_t piece);
  void AdvancePieces(const std::vector<uint32_t>& complete);
  void ReducePiece(uint32_t piece);
  void ClosePiece(uint32_t piece);
  void StartBatch(const Batch& batch);
  void OnBatchUpdated(const std::vector<uint32_t>& pieces, const std::vector<bool>& finite);
  void ReportReduced();
  void ReportReadyIfDone();
  void PublishTo(const std::vector<uint32_t>& receivers);

  Environment environment_;
  uint64_t id_ = 0;
  std::shared_ptr<Core> core_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::vector<TrainerInfo> trainers_;
  std::shared_ptr<const TrainerSet> set_;  // when all have attached
  std::vector<Batch> batches_;             // template for each step
  std::map<uint32_t, size_t> batch_of_;    // by piece

  std::optional<Assembly> initial_;
  uint32_t initial_open_ = 0;  // pieces without an initial value
  bool initial_done_ = false;

  uint64_t generation_ = 0;
  std::optional<Step> step_;
  bool aborted_ = false;          // the last step was
  std::vector<BucketPtr> early_;  // arrived before the message that they belong to
  double last_busy_s_ = 0;
};

}  // namespace dmuon
