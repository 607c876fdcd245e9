// One session as owner 0 sees it: opening, attaching, readiness, leaving. Steps are in StepControl.
// Owner 0's engine thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/coordinator/coordinator_host.h"
#include "daemon/coordinator/step_control.h"
#include "daemon/session/trainer_layout.h"
#include "dmuon/v1/admin.pb.h"
#include "dmuon/v1/control.pb.h"
#include "proto/session_spec.h"
#include "scheduler/plan.h"

namespace dmuon {

class SessionControl {
 public:
  using Clock = StepControl::Clock;
  enum class State { kStarting, kAttaching, kRunning, kEnded };

  struct Setup {
    uint64_t id = 0;
    uint32_t trainers = 0;
    double step_timeout_s = 300;
    double attach_timeout_s = 300;
  };

  // Broadcasts spec and plan; the session attaches when every owner has acknowledged.
  SessionControl(CoordinatorHost& host, const Setup& setup, SessionSpec spec, scheduler::Plan plan);

  State state() const { return state_; }
  uint64_t id() const { return setup_.id; }
  uint32_t trainers() const { return setup_.trainers; }
  const std::string& canonical_spec() const { return canonical_spec_; }
  const std::string& end_reason() const { return end_reason_; }
  // Whether it ended otherwise than by its trainers' detaching or by a drain.
  bool failed() const { return failed_; }
  bool step_active() const { return steps_.active(); }
  bool any_attached() const;
  // Some trainers have detached, and the others are expected to.
  bool closing() const;
  // Who has not detached yet, for messages.
  std::string StillAttached() const;

  // Answered when all owners hold the session.
  void Join(bool created, const Reply& reply);
  // `ingress` is the owner at whose socket the call came in.
  void Attach(const v1::AttachRequest& request, uint32_t ingress, const Reply& reply);
  void WaitReady(const v1::WaitReadyRequest& request, const Reply& reply);
  void Begin(const v1::BeginStepRequest& request, const Reply& reply);
  void Seal(const v1::SealStepRequest& request, const Reply& reply);
  void Wait(const v1::WaitStepRequest& request, const Reply& reply);
  void Detach(const v1::DetachRequest& request, const Reply& reply);
  void LoseTrainer(uint32_t trainer);

  void OnOwnerMessage(int owner, const v1::OwnerMessage& message);
  void Tick(Clock::time_point now);
  // Ends the session: owners forget it, everybody who waits is told why.
  void End(const Status& status);

  v1::SessionStatus Describe() const;
  std::string WaitingFor() const;

 private:
  struct Trainer {
    bool attached = false;
    bool lost = false;
    bool detached = false;
    v1::AttachRequest request;
    std::vector<uint32_t> canonical;  // from the trainer's own parameter numbers
    std::vector<uint32_t> own;        // and back
    std::vector<v1::Region> regions;  // canonical order
    v1::Channel channel = v1::CHANNEL_UNSPECIFIED;
    std::string channel_reason;
    std::vector<Reply> wait_ready;
  };
  // Something that every owner must acknowledge before `done` runs.
  struct Pending {
    uint64_t request = 0;
    std::set<int> waiting;
    std::string error;
    std::function<void(const std::string& error)> done;
  };

  Status CheckTrainer(uint32_t trainer) const;
  Status CheckAttach(const v1::AttachRequest& request) const;
  Status CheckAgainstOthers(const Trainer& trainer, uint32_t number) const;
  Status ChooseChannel(const v1::AttachRequest& request, Trainer* trainer) const;
  std::string NameOf(const Trainer& trainer) const;
  v1::AttachReply MakeAttachReply(const Trainer& trainer) const;
  void BroadcastAndThen(v1::OwnerMessage message,
                        std::function<void(const std::string& error)> done);
  void AnswerJoins();
  void BecomeReady();
  void CountHolders();
  std::string MissingTrainers() const;

  CoordinatorHost& host_;
  Setup setup_;
  SessionSpec spec_;
  std::string canonical_spec_;
  scheduler::Plan plan_;
  std::string plan_hash_;
  StepControl steps_;
  State state_ = State::kStarting;
  std::string end_reason_;
  bool failed_ = false;
  Clock::time_point opened_ = Clock::now();
  Clock::time_point attaching_since_;
  std::vector<Trainer> trainers_;
  std::vector<std::pair<bool, Reply>> joins_;
  std::vector<Pending> pending_;
  uint64_t next_request_;  // unique over sessions
  std::set<int> initial_done_;
};

}  // namespace dmuon
