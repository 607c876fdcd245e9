#include "daemon/coordinator/coordinator.h"

#include <spdlog/spdlog.h>

#include <cmath>
#include <utility>

namespace dmuon {
namespace {

constexpr size_t kEndedKept = 16;
constexpr uint32_t kMaxTrainers = 1 << 20;

// The first parameter or setting in which two canonical specs differ, for a message.
std::string FirstDifference(const std::string& a, const std::string& b) {
  size_t at = 0;
  while (at < a.size() && at < b.size() && a[at] == b[at]) ++at;
  size_t begin = at > 40 ? at - 40 : 0;
  return "..." + a.substr(begin, 80) + "... against ..." + b.substr(begin, 80) + "...";
}

// The session that an owner's message is about; 0 for an acknowledgement, whose number is unique.
uint64_t SessionOf(const v1::OwnerMessage& message) {
  switch (message.kind_case()) {
    case v1::OwnerMessage::kInitialValuesDone:
      return message.initial_values_done().session();
    case v1::OwnerMessage::kReduced:
      return message.reduced().session();
    case v1::OwnerMessage::kStepReady:
      return message.step_ready().session();
    case v1::OwnerMessage::kDataError:
      return message.data_error().session();
    default:
      return 0;
  }
}

kernels::ElementType ElementTypeOf(Precision precision) {
  return precision == Precision::kBf16   ? kernels::ElementType::kBFloat16
         : precision == Precision::kFp16 ? kernels::ElementType::kFloat16
                                         : kernels::ElementType::kFloat32;
}

void LogPlan(const scheduler::Plan& plan) {
  spdlog::info(
      "plan {}: {} owners, profile {}: busiest {:.4g} ms, lower bound {:.4g} ms, idle {:.1f}%{}",
      scheduler::PlanHash(plan), plan.owners, plan.profile, plan.makespan * 1e3,
      plan.lower_bound * 1e3, 100 * plan.idle_share(),
      plan.stopped_by_clock ? "; plan.solver_s stopped the solver" : "");
  for (const std::string& guess : plan.guesses) spdlog::warn("plan: {}", guess);
}

}  // namespace

Coordinator::Coordinator(CoordinatorHost& host, const CoordinatorOptions& options)
    : host_(host), options_(options) {}

template <typename Request>
void Coordinator::WithSession(const std::string& bytes, const Reply& reply,
                              std::function<void(SessionControl&, const Request&)> handler) {
  Request request;
  if (!request.ParseFromString(bytes)) {
    return reply(Status::InvalidArgument("request does not parse"), {});
  }
  Status status = FindSession(request.session());
  if (!status.ok()) return reply(status, {});
  handler(*session_, request);
}

Status Coordinator::FindSession(uint64_t id) const {
  if (session_ && session_->id() == id) return Status::Ok();
  auto ended = ended_.find(id);
  return Status::NotFound(
      "session " + std::to_string(id) +
      (ended == ended_.end() ? " is not known here" : " has ended: " + ended->second));
}

void Coordinator::Handle(const std::string& method, const std::string& request, uint32_t ingress,
                         const Reply& reply) {
  if (method == "OpenSession") {
    OpenSession(request, ingress, reply);
  } else if (method == "Attach") {
    WithSession<v1::AttachRequest>(
        request, reply, [&](SessionControl& s, const auto& r) { s.Attach(r, ingress, reply); });
  } else if (method == "WaitReady") {
    WithSession<v1::WaitReadyRequest>(
        request, reply, [&](SessionControl& s, const auto& r) { s.WaitReady(r, reply); });
  } else if (method == "BeginStep") {
    WithSession<v1::BeginStepRequest>(request, reply,
                                      [&](SessionControl& s, const auto& r) { s.Begin(r, reply); });
  } else if (method == "SealStep") {
    WithSession<v1::SealStepRequest>(request, reply,
                                     [&](SessionControl& s, const auto& r) { s.Seal(r, reply); });
  } else if (method == "WaitStep") {
    WithSession<v1::WaitStepRequest>(request, reply,
                                     [&](SessionControl& s, const auto& r) { s.Wait(r, reply); });
  } else if (method == "Detach") {
    WithSession<v1::DetachRequest>(request, reply,
                                   [&](SessionControl& s, const auto& r) { s.Detach(r, reply); });
  } else if (method == "TrainerLost") {
    TrainerLost(request, ingress, reply);
  } else if (method == "Status") {
    GetStatus(request, ingress, reply);
  } else if (method == "Drain") {
    Drain(request, ingress, reply);
  } else {
    reply({StatusCode::kUnimplemented, "no method " + method}, {});
  }
  CollectEnded();
  ShutDownIfDrained();
}

Status Coordinator::CheckOpen(const v1::OpenSessionRequest& request) const {
  if (draining_) {
    return {StatusCode::kUnavailable, "the daemon is draining: it takes no new sessions"};
  }
  if (request.trainers() == 0 || request.trainers() > kMaxTrainers) {
    return Status::InvalidArgument("trainers: " + std::to_string(request.trainers()) +
                                   " is not between 1 and " + std::to_string(kMaxTrainers));
  }
  double timeout = request.step_timeout_s();
  if (!std::isfinite(timeout) || timeout < 0) {
    return Status::InvalidArgument("step_timeout_s: " + std::to_string(timeout) +
                                   " is not a number of seconds >= 0 (0: the daemon's default)");
  }
  return Status::Ok();
}

Status Coordinator::CheckPrecisions(const SessionSpec& spec) const {
  for (const ParameterSpec& parameter : spec.parameters) {
    const GroupSpec& group = spec.groups[parameter.group];
    if (parameter.rule != Rule::kMuon || group.muon.precision == Precision::kAuto) continue;
    std::string why;
    if (!host_.supports_precision(ElementTypeOf(group.muon.precision), &why)) {
      return Status::InvalidArgument("groups." + group.name +
                                     ".precision: " + std::string(NameOf(group.muon.precision)) +
                                     " is not to be had on the owners' device: " + why);
    }
  }
  return Status::Ok();
}

void Coordinator::OpenSession(const std::string& bytes, uint32_t ingress, const Reply& reply) {
  v1::OpenSessionRequest request;
  if (!request.ParseFromString(bytes)) {
    return reply(Status::InvalidArgument("request does not parse"), {});
  }
  Status status = CheckOpen(request);
  if (!status.ok()) return reply(status, {});
  SessionSpec spec;
  try {
    spec = ParseSessionSpec(request.spec_json());
  } catch (const SpecError& error) {
    return reply(Status::InvalidArgument(error.what()), {});
  }
  status = CheckPrecisions(spec);
  if (!status.ok()) return reply(status, {});

  if (session_) {
    bool running = session_->state() == SessionControl::State::kRunning;
    if (session_->closing() && !request.resume()) {
      auto limit = std::chrono::duration<double>(options_.attach_timeout_s);
      queued_opens_.push_back({bytes, ingress, reply,
                               Clock::now() + std::chrono::duration_cast<Clock::duration>(limit)});
      return;
    }
    if (running && !request.resume() && !session_->any_attached()) {
      spdlog::warn("session {} has no trainers left and is replaced by a new one", session_->id());
      session_->End({StatusCode::kNotFound, "replaced by a new session"});
      CollectEnded();
    } else if (running && !request.resume()) {
      return reply(Status::FailedPrecondition(
                       "session " + std::to_string(session_->id()) +
                       " is running: attach a replacement trainer with resume, or end it first"),
                   {});
    } else if (CanonicalJson(spec) != session_->canonical_spec()) {
      return reply(Status::FailedPrecondition(
                       "the spec differs from that of session " + std::to_string(session_->id()) +
                       ": " + FirstDifference(CanonicalJson(spec), session_->canonical_spec())),
                   {});
    } else if (request.trainers() != session_->trainers()) {
      return reply(Status::FailedPrecondition("trainers: " + std::to_string(request.trainers()) +
                                              ", but session " + std::to_string(session_->id()) +
                                              " has " + std::to_string(session_->trainers())),
                   {});
    }
  } else if (request.resume()) {
    return reply(Status::NotFound("resume: the daemon has no session to resume"), {});
  }
  if (session_) {
    session_->Join(false, reply);
  } else {
    CreateSession(request, std::move(spec), reply);
  }
}

void Coordinator::CreateSession(const v1::OpenSessionRequest& request, SessionSpec spec,
                                const Reply& reply) {
  scheduler::PlanOptions plan_options = options_.plan;
  plan_options.owners = host_.owner_count();
  plan_options.auto_precision = host_.auto_precision();
  scheduler::Plan plan;
  try {
    plan = scheduler::MakePlan(spec, plan_options);
  } catch (const std::invalid_argument& error) {
    return reply(Status::InvalidArgument(error.what()), {});
  }
  LogPlan(plan);
  SessionControl::Setup setup;
  setup.id = next_session_++;
  setup.trainers = request.trainers();
  setup.step_timeout_s =
      request.step_timeout_s() == 0 ? options_.step_timeout_s : request.step_timeout_s();
  setup.attach_timeout_s = options_.attach_timeout_s;
  session_ = std::make_unique<SessionControl>(host_, setup, std::move(spec), std::move(plan));
  session_->Join(true, reply);
}

void Coordinator::TrainerLost(const std::string& bytes, uint32_t, const Reply& reply) {
  v1::DetachRequest request;
  if (request.ParseFromString(bytes) && session_ && session_->id() == request.session()) {
    session_->LoseTrainer(request.trainer());
  }
  Answer(reply, v1::DetachReply());
}

void Coordinator::GetStatus(const std::string&, uint32_t, const Reply& reply) {
  v1::StatusReply status;
  status.set_version(options_.version);
  status.set_uptime_s(std::chrono::duration<double>(Clock::now() - started_).count());
  for (const v1::OwnerStatus& owner : host_.owner_statuses()) *status.add_owners() = owner;
  if (session_) *status.add_sessions() = session_->Describe();
  Answer(reply, status);
}

void Coordinator::Drain(const std::string&, uint32_t, const Reply& reply) {
  if (!draining_) spdlog::info("draining: the step in progress is finished, then owners leave");
  draining_ = true;
  Answer(reply, v1::DrainReply());
}

void Coordinator::OnOwnerMessage(int owner, const v1::OwnerMessage& message) {
  // What owners still say of an earlier session concerns nobody.
  uint64_t session = SessionOf(message);
  if (session_ && (session == 0 || session == session_->id())) {
    session_->OnOwnerMessage(owner, message);
  }
  CollectEnded();
  ShutDownIfDrained();
}

void Coordinator::Tick(Clock::time_point now) {
  if (session_) session_->Tick(now);
  for (auto it = queued_opens_.begin(); it != queued_opens_.end();) {
    if (now < it->deadline || !session_) {
      ++it;
      continue;
    }
    it->reply({StatusCode::kDeadlineExceeded, "session " + std::to_string(session_->id()) +
                                                  " is closing, but still has " +
                                                  session_->StillAttached()},
              {});
    it = queued_opens_.erase(it);
  }
  CollectEnded();
  ShutDownIfDrained();
}

void Coordinator::CollectEnded() {
  if (!session_) return;
  if (session_->state() != SessionControl::State::kEnded) {
    // The trainers that were still expected to detach are lost: nothing is left to wait for.
    if (!queued_opens_.empty() && !session_->closing()) RetryQueuedOpens();
    return;
  }
  bool failed = session_->failed();
  ended_[session_->id()] = session_->end_reason();
  if (ended_.size() > kEndedKept) ended_.erase(ended_.begin());
  session_.reset();
  RetryQueuedOpens();
  if (options_.exit_after_session) {
    draining_ = true;
    failed_ = failed_ || failed;
  }
}

void Coordinator::RetryQueuedOpens() {
  for (const QueuedOpen& open : std::exchange(queued_opens_, {})) {
    OpenSession(open.request, open.ingress, open.reply);
  }
}

void Coordinator::ShutDownIfDrained() {
  if (!draining_ || shut_down_ || (session_ && session_->step_active())) return;
  shut_down_ = true;
  if (session_) session_->End({StatusCode::kUnavailable, "the daemon was drained"});
  CollectEnded();
  v1::OwnerMessage message;
  message.mutable_shutdown()->set_reason(failed_ ? "the session failed" : "drained");
  message.mutable_shutdown()->set_failed(failed_);
  host_.Broadcast(message);
}

std::string Coordinator::WaitingFor() const {
  if (!session_) return "no session";
  std::string waiting = session_->WaitingFor();
  std::string step = session_->state() == SessionControl::State::kRunning
                         ? "step " + std::to_string(session_->Describe().next_step())
                         : "session start";
  return step + (waiting.empty() ? ", idle" : ", waiting for " + waiting);
}

}  // namespace dmuon
