// Owner 0's part: answers control calls from all nodes and keeps the session. Engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/coordinator/coordinator_host.h"
#include "daemon/coordinator/session_control.h"
#include "dmuon/v1/admin.pb.h"
#include "scheduler/plan.h"

namespace dmuon {

struct CoordinatorOptions {
  double step_timeout_s = 300;
  double attach_timeout_s = 300;
  scheduler::PlanOptions plan;  // owners and precision are the host's
  bool exit_after_session = false;
  std::string version;
};

class Coordinator {
 public:
  using Clock = SessionControl::Clock;

  Coordinator(CoordinatorHost& host, const CoordinatorOptions& options);

  // One control call; `request` is its serialised message and `ingress` the owner at whose socket
  // it came in. Methods are named as in the services, plus TrainerLost (a DetachRequest), which a
  // node's first owner sends when a trainer's Hold breaks.
  void Handle(const std::string& method, const std::string& request, uint32_t ingress,
              const Reply& reply);
  void OnOwnerMessage(int owner, const v1::OwnerMessage& message);
  void Tick(Clock::time_point now);

  // One line for people: what the session waits for, "idle" without one.
  std::string WaitingFor() const;

 private:
  void OpenSession(const std::string& request, uint32_t ingress, const Reply& reply);
  void TrainerLost(const std::string& request, uint32_t ingress, const Reply& reply);
  void GetStatus(const std::string& request, uint32_t ingress, const Reply& reply);
  void Drain(const std::string& request, uint32_t ingress, const Reply& reply);
  // Parses, finds the session and calls `handler` with both.
  template <typename Request>
  void WithSession(const std::string& bytes, const Reply& reply,
                   std::function<void(SessionControl&, const Request&)> handler);

  Status CheckOpen(const v1::OpenSessionRequest& request) const;
  Status CheckPrecisions(const SessionSpec& spec) const;
  void CreateSession(const v1::OpenSessionRequest& request, SessionSpec spec, const Reply& reply);
  Status FindSession(uint64_t id) const;
  void CollectEnded();
  void RetryQueuedOpens();
  void ShutDownIfDrained();

  CoordinatorHost& host_;
  CoordinatorOptions options_;
  Clock::time_point started_ = Clock::now();
  uint64_t next_session_ = 1;
  std::unique_ptr<SessionControl> session_;
  std::map<uint64_t, std::string> ended_;  // why, by session; the last few
  // OpenSession calls that wait for the trainers of the session before to leave.
  struct QueuedOpen {
    std::string request;
    uint32_t ingress = 0;
    Reply reply;
    Clock::time_point deadline;
  };
  std::vector<QueuedOpen> queued_opens_;
  bool draining_ = false;
  bool shut_down_ = false;
  bool failed_ = false;  // the session that we leave after did not end well
};

}  // namespace dmuon
