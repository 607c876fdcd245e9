#include "daemon/coordinator/session_control.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "daemon/coordinator/attach_checks.h"

namespace dmuon {
namespace {

// Clients attach right after OpenSession; one that died in between must not block others for long.
constexpr double kFirstAttach_s = 20;

}  // namespace

SessionControl::SessionControl(CoordinatorHost& host, const Setup& setup, SessionSpec spec,
                               scheduler::Plan plan)
    : host_(host),
      setup_(setup),
      spec_(std::move(spec)),
      canonical_spec_(CanonicalJson(spec_)),
      plan_(std::move(plan)),
      plan_hash_(scheduler::PlanHash(plan_)),
      steps_(host, {setup.id, &spec_, setup.trainers, setup.step_timeout_s}),
      trainers_(setup.trainers),
      next_request_((setup.id << 32) + 1) {
  v1::OwnerMessage message;
  v1::StartSession& start = *message.mutable_start_session();
  start.set_session(setup_.id);
  start.set_spec_json(canonical_spec_);
  start.set_plan(scheduler::SerializePlan(plan_));
  start.set_plan_hash(plan_hash_);
  start.set_trainers(setup_.trainers);
  BroadcastAndThen(std::move(message), [this](const std::string& error) {
    if (!error.empty()) return End(Status::Internal("session not started: " + error));
    state_ = State::kAttaching;
    attaching_since_ = Clock::now();
    spdlog::info("session {}: {} parameters, {} pieces on {} owners, {} trainers, plan {}",
                 setup_.id, spec_.parameters.size(), plan_.pieces.size(), plan_.owners,
                 setup_.trainers, plan_hash_);
    AnswerJoins();
  });
}

void SessionControl::BroadcastAndThen(v1::OwnerMessage message,
                                      std::function<void(const std::string& error)> done) {
  uint64_t request = next_request_++;
  if (message.has_start_session()) message.mutable_start_session()->set_request(request);
  if (message.has_add_trainer()) message.mutable_add_trainer()->set_request(request);
  Pending& pending = pending_.emplace_back();
  pending.request = request;
  for (int owner = 0; owner < host_.owner_count(); ++owner) pending.waiting.insert(owner);
  pending.done = std::move(done);
  host_.Broadcast(message);
}

bool SessionControl::any_attached() const {
  return std::any_of(trainers_.begin(), trainers_.end(),
                     [](const Trainer& t) { return t.attached; });
}

bool SessionControl::closing() const {
  return any_attached() && std::any_of(trainers_.begin(), trainers_.end(),
                                       [](const Trainer& t) { return t.detached; });
}

std::string SessionControl::StillAttached() const {
  std::string text;
  for (const Trainer& trainer : trainers_) {
    if (trainer.attached) text += (text.empty() ? "" : ", ") + NameOf(trainer);
  }
  return text;
}

void SessionControl::Join(bool created, const Reply& reply) {
  joins_.emplace_back(created, reply);
  if (state_ != State::kStarting) AnswerJoins();
}

void SessionControl::AnswerJoins() {
  v1::OpenSessionReply answer;
  answer.set_session(setup_.id);
  answer.set_plan_hash(plan_hash_);
  answer.set_precision(std::string(kernels::NameOf(host_.auto_precision())));
  answer.set_owners(plan_.owners);
  for (const auto& [created, reply] : std::exchange(joins_, {})) {
    answer.set_created(created);
    Answer(reply, answer);
  }
}

Status SessionControl::CheckTrainer(uint32_t trainer) const {
  if (trainer >= setup_.trainers) {
    return Status::InvalidArgument("trainer: " + std::to_string(trainer) + ", but session " +
                                   std::to_string(setup_.id) + " has trainers 0 to " +
                                   std::to_string(setup_.trainers - 1));
  }
  if (!trainers_[trainer].attached) {
    return Status::FailedPrecondition("trainer " + std::to_string(trainer) +
                                      (trainers_[trainer].lost ? " was lost" : " is not attached") +
                                      ": attach first");
  }
  return Status::Ok();
}

void SessionControl::WaitReady(const v1::WaitReadyRequest& request, const Reply& reply) {
  Status status = CheckTrainer(request.trainer());
  if (!status.ok()) return reply(status, {});
  trainers_[request.trainer()].wait_ready.push_back(reply);
  if (state_ == State::kRunning) BecomeReady();
}

void SessionControl::BecomeReady() {
  if (state_ != State::kRunning) CountHolders();
  state_ = State::kRunning;
  v1::WaitReadyReply answer;
  answer.set_next_step(steps_.next_step());
  for (Trainer& trainer : trainers_) {
    for (const Reply& reply : std::exchange(trainer.wait_ready, {})) Answer(reply, answer);
  }
}

void SessionControl::CountHolders() {
  std::vector<uint32_t> holders(spec_.parameters.size(), 0);
  for (const Trainer& trainer : trainers_) {
    for (size_t parameter = 0; parameter < holders.size(); ++parameter) {
      if (RegionOf(trainer.regions[parameter]).elements() > 0) ++holders[parameter];
    }
  }
  steps_.SetHolders(std::move(holders));
}

void SessionControl::Begin(const v1::BeginStepRequest& request, const Reply& reply) {
  Status status = CheckTrainer(request.trainer());
  if (status.ok() && state_ != State::kRunning) {
    status = Status::FailedPrecondition(
        "BeginStep before the session is ready: still waiting for " + MissingTrainers());
  }
  for (const Trainer& trainer : trainers_) {
    if (status.ok() && trainer.detached) {
      status = Status::FailedPrecondition("BeginStep: " + NameOf(trainer) +
                                          " has detached; the session is closing");
    }
  }
  if (!status.ok()) return reply(status, {});
  steps_.Begin(request, reply);
}

void SessionControl::Seal(const v1::SealStepRequest& request, const Reply& reply) {
  Status status = CheckTrainer(request.trainer());
  std::set<uint32_t> absent;
  for (uint32_t parameter : request.absent()) {
    if (parameter >= spec_.parameters.size()) {
      status = Status::InvalidArgument("absent: parameter number " + std::to_string(parameter) +
                                       "; the session has " +
                                       std::to_string(spec_.parameters.size()) + " parameters");
    }
    if (!status.ok()) break;
    const Trainer& trainer = trainers_[request.trainer()];
    uint32_t canonical = trainer.canonical[parameter];
    if (RegionOf(trainer.regions[canonical]).elements() > 0) absent.insert(canonical);
  }
  if (!status.ok()) return reply(status, {});
  steps_.Seal(request, absent, reply);
}

void SessionControl::Wait(const v1::WaitStepRequest& request, const Reply& reply) {
  Status status = CheckTrainer(request.trainer());
  if (!status.ok()) return reply(status, {});
  steps_.Wait(request, reply);
}

void SessionControl::Detach(const v1::DetachRequest& request, const Reply& reply) {
  Status status = CheckTrainer(request.trainer());
  if (!status.ok()) return reply(status, {});
  Trainer& trainer = trainers_[request.trainer()];
  trainer.attached = false;
  trainer.detached = true;
  Answer(reply, v1::DetachReply());
  steps_.Abort(NameOf(trainer) + " detached in the middle of the step");
  v1::OwnerMessage message;
  message.mutable_remove_trainer()->set_session(setup_.id);
  message.mutable_remove_trainer()->set_trainer(request.trainer());
  host_.Broadcast(message);
  if (!any_attached()) End({StatusCode::kNotFound, "all trainers have detached"});
}

void SessionControl::LoseTrainer(uint32_t number) {
  if (number >= trainers_.size() || !trainers_[number].attached) return;
  Trainer& trainer = trainers_[number];
  trainer.attached = false;
  trainer.lost = true;
  trainer.wait_ready.clear();
  std::string reason = NameOf(trainer) + " was lost: its connection broke without a detach";
  spdlog::error("session {}: {}", setup_.id, reason);
  if (state_ != State::kRunning) return End({StatusCode::kAborted, reason});
  steps_.Abort(reason);
  v1::OwnerMessage message;
  message.mutable_remove_trainer()->set_session(setup_.id);
  message.mutable_remove_trainer()->set_trainer(number);
  host_.Broadcast(message);
}

void SessionControl::OnOwnerMessage(int owner, const v1::OwnerMessage& message) {
  if (message.has_acknowledge()) {
    for (auto it = pending_.begin(); it != pending_.end(); ++it) {
      if (it->request != message.acknowledge().request()) continue;
      it->waiting.erase(owner);
      if (it->error.empty()) it->error = message.acknowledge().error();
      if (!it->waiting.empty()) return;
      Pending done = std::move(*it);
      pending_.erase(it);
      done.done(done.error);
      return;
    }
  } else if (message.has_initial_values_done()) {
    const std::string& error = message.initial_values_done().error();
    if (!error.empty()) return End(Status::InvalidArgument(error));
    initial_done_.insert(owner);
    if (static_cast<int>(initial_done_.size()) == host_.owner_count()) BecomeReady();
  } else if (message.has_reduced()) {
    steps_.OnReduced(owner, message.reduced());
  } else if (message.has_step_ready()) {
    steps_.OnReady(owner, message.step_ready());
  } else if (message.has_missing()) {
    steps_.OnMissing(owner, message.missing());
  } else if (message.has_data_error()) {
    if (state_ == State::kAttaching && !message.data_error().stale()) {
      return End(Status::InvalidArgument(message.data_error().message()));
    }
    steps_.OnDataError(message.data_error());
  }
}

void SessionControl::Tick(Clock::time_point now) {
  if (state_ == State::kRunning) return steps_.Tick(now);
  if (state_ == State::kEnded) return;
  auto seconds_since = [now](Clock::time_point then) {
    return std::chrono::duration<double>(now - then).count();
  };
  if (state_ == State::kAttaching && !any_attached() &&
      seconds_since(attaching_since_) > kFirstAttach_s &&
      kFirstAttach_s < setup_.attach_timeout_s) {
    return End({StatusCode::kDeadlineExceeded,
                fmt::format("session {}: nobody attached to it within {:.6g} s of its opening",
                            setup_.id, kFirstAttach_s)});
  }
  if (seconds_since(opened_) > setup_.attach_timeout_s) {
    End({StatusCode::kDeadlineExceeded,
         fmt::format("session {} did not start within {:.6g} s: waiting for {}", setup_.id,
                     setup_.attach_timeout_s, MissingTrainers())});
  }
}

std::string SessionControl::MissingTrainers() const {
  std::string text;
  for (uint32_t number = 0; number < trainers_.size(); ++number) {
    const Trainer& trainer = trainers_[number];
    std::string entry = !trainer.attached ? fmt::format("trainer {} to attach", number)
                        : trainer.wait_ready.empty()
                            ? NameOf(trainer) + " to push its initial values"
                            : "";
    if (!entry.empty()) text += (text.empty() ? "" : ", ") + entry;
  }
  return text.empty() ? "initial values to arrive" : text;
}

void SessionControl::End(const Status& status) {
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  end_reason_ = status.message();
  failed_ = status.code() != StatusCode::kNotFound && status.code() != StatusCode::kUnavailable;
  spdlog::info("session {} ended: {}", setup_.id, end_reason_);
  steps_.Close(status);
  for (const auto& [created, reply] : std::exchange(joins_, {})) reply(status, {});
  for (Trainer& trainer : trainers_) {
    for (const Reply& reply : std::exchange(trainer.wait_ready, {})) reply(status, {});
  }
  for (const Pending& pending : std::exchange(pending_, {})) pending.done(end_reason_);
  v1::OwnerMessage message;
  message.mutable_end_session()->set_session(setup_.id);
  message.mutable_end_session()->set_reason(end_reason_);
  host_.Broadcast(message);
}

v1::SessionStatus SessionControl::Describe() const {
  v1::SessionStatus status;
  status.set_session(setup_.id);
  status.set_state(state_ == State::kRunning ? "running"
                   : state_ == State::kEnded ? "failed"
                                             : "attaching");
  status.set_model(spec_.model);
  status.set_next_step(steps_.next_step());
  status.set_generation(steps_.generation());
  status.set_committed(steps_.count(v1::STEP_OUTCOME_COMMITTED));
  status.set_skipped(steps_.count(v1::STEP_OUTCOME_SKIPPED));
  status.set_aborted(steps_.count(v1::STEP_OUTCOME_ABORTED));
  status.set_plan_hash(plan_hash_);
  status.set_parameters(static_cast<uint32_t>(spec_.parameters.size()));
  for (const scheduler::OwnerLoad& load : plan_.loads) {
    status.set_matrices(status.matrices() + load.matrices);
  }
  for (uint32_t number = 0; number < trainers_.size(); ++number) {
    const Trainer& trainer = trainers_[number];
    v1::TrainerStatus& entry = *status.add_trainers();
    entry.set_trainer(number);
    entry.set_host_id(trainer.request.host_id());
    entry.set_pid(trainer.request.pid());
    entry.set_channel(ChannelName(trainer.channel));
    entry.set_state(!trainer.attached           ? (trainer.lost ? "lost" : "absent")
                    : steps_.sealed(number)     ? "sealed"
                    : steps_.begun(number)      ? "pushing"
                    : state_ == State::kRunning ? "ready"
                                                : "attached");
  }
  status.set_stale_pushes(steps_.stale_pushes());
  status.set_waiting_for(WaitingFor());
  return status;
}

std::string SessionControl::WaitingFor() const {
  return state_ == State::kRunning ? steps_.WaitingFor() : MissingTrainers();
}

}  // namespace dmuon
