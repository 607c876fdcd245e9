// The heart of an owner process: one thread that owns MPI and every session object.
//
// Everything reaches it as a message: over MPI from other owners and trainers, through its inbox
// from gRPC threads and the compute worker. On owner 0 it also carries the coordinator.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/compute_worker.h"
#include "daemon/config.h"
#include "daemon/control/control_port.h"
#include "daemon/control/ingress.h"
#include "daemon/coordinator/coordinator.h"
#include "daemon/heartbeat.h"
#include "daemon/inbox.h"
#include "daemon/owner/owner_session.h"
#include "daemon/transport/bucket_pool.h"
#include "daemon/transport/transport.h"

namespace dmuon {

class MpiWorld;

class Engine final : public TransportHandler,
                     public OwnerSessionHost,
                     public CoordinatorHost,
                     public ControlPort {
 public:
  using Clock = std::chrono::steady_clock;

  // `world` and `device` outlive the engine.
  Engine(const Config& config, const MpiWorld& world, kernels::Device& device);
  ~Engine() override;

  // Runs until all owners agree to leave. Returns the exit code. Throws std::runtime_error when an
  // owner is lost; the message names it and what was pending.
  int Run();

  // Any thread: finish the step in progress, then leave.
  void RequestDrain();
  // Any thread: what the session waits for, as of a moment ago.
  std::string Pending() const;

  // ControlPort, any thread.
  void Submit(std::string method, std::string request, Reply reply) override;
  void ForwardBucket(uint32_t owner, BucketPtr bucket) override;
  Ingress& ingress() override { return ingress_; }
  BucketPool& pool() override { return pool_; }

 private:
  // TransportHandler.
  void OnOwnerMessage(int owner, const v1::OwnerMessage& message) override;
  void OnTrainerBucket(int world_rank, BucketPtr bucket) override;
  void OnTrainerGarbage(int world_rank, const std::string& what) override;
  void OnOwnerBucket(int owner, BucketPtr bucket) override;

  // OwnerSessionHost.
  void SendToCoordinator(const v1::OwnerMessage& message) override;
  void SendToTrainer(const TrainerInfo& trainer, BucketPtr bucket) override;

  // CoordinatorHost.
  void Broadcast(const v1::OwnerMessage& message) override;
  int owner_count() const override;
  int world_rank_of_owner(int owner) const override;
  bool is_trainer_rank(int world_rank) const override;
  kernels::ElementType auto_precision() const override { return device_.AutoPrecision(); }
  bool supports_precision(kernels::ElementType type, std::string* why) const override {
    return device_.Supports(type, why);
  }
  std::vector<v1::OwnerStatus> owner_statuses() const override;

  void OnCallRequest(int owner, const v1::CallRequest& message);
  void OnCallReply(const v1::CallReply& message);
  void OnStartSession(const v1::StartSession& message);
  void OnEndSession(const v1::EndSession& message);
  void OnAddTrainer(const v1::AddTrainer& message);
  void OnAskMissing(const v1::AskMissing& message);
  void OnHeartbeat(int owner, const v1::Heartbeat& message);
  void Acknowledge(uint64_t request, const std::string& error);
  void TakeBucket(BucketPtr bucket);
  void ReportDataError(const BucketHeader& header, bool stale, const std::string& message);
  void Tick(Clock::time_point now);
  void SendHeartbeats();
  v1::OwnerStatus OwnStatus() const;
  void FinishSending();

  const Config& config_;
  const MpiWorld& world_;
  kernels::Device& device_;
  int own_;
  Inbox inbox_;
  Ingress ingress_;
  BucketPool pool_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<ComputeWorker> worker_;
  std::unique_ptr<OwnerSession> session_;
  std::unique_ptr<Coordinator> coordinator_;  // owner 0
  Heartbeat heartbeat_;
  std::vector<v1::OwnerStatus> statuses_;  // by owner; complete on owner 0
  std::map<uint64_t, Reply> calls_;
  uint64_t next_call_ = 1;
  uint64_t step_ = 0;  // of the last StartStep
  bool step_active_ = false;
  Clock::time_point next_tick_;
  Clock::time_point next_heartbeat_;
  bool leaving_ = false;
  int exit_code_ = 0;

  mutable std::mutex pending_mutex_;
  std::string pending_;
};

}  // namespace dmuon
