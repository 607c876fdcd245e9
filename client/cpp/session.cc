#include "client/cpp/session.h"

#include <map>
#include <utility>

#include "client/cpp/attach.h"
#include "client/cpp/rpc.h"
#include "client/cpp/sender.h"

namespace dmuon::client {
namespace {

StepReport FromProto(const v1::StepReport& from) {
  StepReport report;
  report.step = from.step();
  report.outcome = static_cast<StepOutcome>(from.outcome());
  report.reason = from.reason();
  report.parameter = from.parameter();
  report.grad_norm = from.grad_norm();
  report.clip_factor = from.clip_factor();
  for (const v1::Orthogonalised& some : from.orthogonalised()) report.matrices += some.matrices();
  report.optimizer_s = from.optimizer_s();
  report.busiest_owner_s = from.busiest_owner_s();
  report.owner_compute_s.assign(from.owner_compute_s().begin(), from.owner_compute_s().end());
  report.next_step = from.next_step();
  report.absent_parameters = from.absent_parameters();
  return report;
}

void ToProto(const GroupValues& from, v1::GroupValues* to) {
  to->set_group(from.group);
  if (from.lr) to->set_lr(*from.lr);
  if (from.weight_decay) to->set_weight_decay(*from.weight_decay);
  if (from.momentum) to->set_momentum(*from.momentum);
  if (from.beta1) to->set_beta1(*from.beta1);
  if (from.beta2) to->set_beta2(*from.beta2);
}

}  // namespace

class Session::Impl {
 public:
  Impl(std::vector<HeldParameter> parameters, Attachment attachment, uint32_t trainer)
      : parameters_(std::move(parameters)),
        states_(parameters_.size()),
        attachment_(std::move(attachment)),
        trainer_(trainer),
        next_step_(attachment_.next_step),
        sender_(*attachment_.channel) {
    for (size_t i = 0; i < parameters_.size(); ++i) by_name_[parameters_[i].name] = i;
  }

  Status Start(double timeout_s);
  Result<uint64_t> BeginStep(const std::vector<GroupValues>& groups, double grad_scale);
  Status Push(std::string_view name, std::span<const std::byte> gradient, bool final);
  Status Absent(std::string_view name);
  Result<StepReport> Step();
  Status Close();

  const Attachment& attachment() const { return attachment_; }
  uint64_t next_step() const { return next_step_; }

 private:
  enum class State { kUntouched, kPushed, kFinal, kAbsent };

  Connection& connection() { return *attachment_.connection; }
  std::string StepName() const { return "step " + std::to_string(next_step_); }
  // The parameter's number, in an open step.
  Result<size_t> Find(std::string_view name) const;
  // Waits for the bucket's buffer, changes it, sends it when it is complete.
  template <typename Change>
  Status ChangeBuckets(const HeldParameter& parameter, Change change);
  void Send(Bucket& bucket, BucketKind kind, bool final, uint64_t generation);
  Status SealStep();
  Result<StepReport> FinishStep();
  Status Receive(uint64_t generation);

  std::vector<HeldParameter> parameters_;
  std::vector<State> states_;  // in the open step
  std::map<std::string, size_t, std::less<>> by_name_;
  Attachment attachment_;
  uint32_t trainer_;
  uint64_t next_step_;
  std::optional<uint64_t> generation_;  // of the open step
  Sender sender_;                       // last: ends before what it uses
};

Status Session::Impl::Start(double timeout_s) {
  if (attachment_.resumed) return Receive(attachment_.generation);
  for (const HeldParameter& parameter : parameters_) {
    for (auto& [bucket, entry] : parameter.places) {
      bucket->Stage(entry, parameter.data.data(), true);
    }
  }
  for (Bucket& bucket : attachment_.buckets) {
    Send(bucket, BucketKind::kInitial, true, attachment_.generation);
  }
  if (Status status = sender_.WaitAll(); !status.ok()) return status;
  v1::WaitReadyRequest request;
  request.set_session(attachment_.session);
  request.set_trainer(trainer_);
  v1::WaitReadyReply reply;
  Status status = attachment_.lease->WaitReady(request, timeout_s, &reply);
  if (status.ok()) next_step_ = reply.next_step();
  return status;
}

Result<uint64_t> Session::Impl::BeginStep(const std::vector<GroupValues>& groups,
                                          double grad_scale) {
  if (generation_) {
    return Status::FailedPrecondition(StepName() + " is open: call Step before the next BeginStep");
  }
  if (!(grad_scale > 0)) {
    return Status::InvalidArgument("grad_scale " + std::to_string(grad_scale) +
                                   ": must be positive");
  }
  const std::string what = "begin of " + StepName();
  if (Status status = attachment_.lease->Check(what); !status.ok()) return status;
  v1::BeginStepRequest request;
  request.set_session(attachment_.session);
  request.set_trainer(trainer_);
  request.set_step(next_step_);
  request.set_grad_scale(grad_scale);
  for (const GroupValues& values : groups) ToProto(values, request.add_groups());
  v1::BeginStepReply reply;
  Status status = Call(connection(), &v1::Control::Stub::BeginStep, request, &reply, what);
  if (!status.ok()) return status;
  for (Bucket& bucket : attachment_.buckets) bucket.BeginStep();
  states_.assign(parameters_.size(), State::kUntouched);
  generation_ = reply.generation();
  return next_step_;
}

Result<size_t> Session::Impl::Find(std::string_view name) const {
  if (Status status = attachment_.connection->CheckProcess(); !status.ok()) return status;
  if (!generation_) {
    return Status::FailedPrecondition("gradient of '" + std::string(name) +
                                      "': no step is open: call BeginStep first");
  }
  auto found = by_name_.find(name);
  if (found != by_name_.end()) return found->second;
  return Status::InvalidArgument("'" + std::string(name) + "' is not a parameter of this session");
}

template <typename Change>
Status Session::Impl::ChangeBuckets(const HeldParameter& parameter, Change change) {
  for (auto& [bucket, entry] : parameter.places) {
    Status status = sender_.Wait(*bucket);
    if (!status.ok()) return status;
    change(*bucket, entry);
    if (bucket->Complete()) Send(*bucket, BucketKind::kGradient, bucket->Final(), *generation_);
  }
  return Status::Ok();
}

Status Session::Impl::Push(std::string_view name, std::span<const std::byte> gradient, bool final) {
  Result<size_t> found = Find(name);
  if (!found.ok()) return found.status();
  const HeldParameter& parameter = parameters_[found.value()];
  State& state = states_[found.value()];
  if (gradient.size() != parameter.data.size()) {
    return Status::InvalidArgument("gradient of '" + parameter.name +
                                   "': " + std::to_string(gradient.size()) + " bytes instead of " +
                                   std::to_string(parameter.data.size()));
  }
  if (state == State::kFinal || state == State::kAbsent) {
    return Status::FailedPrecondition("gradient of '" + parameter.name + "': already " +
                                      (state == State::kFinal ? "final" : "absent") + " in " +
                                      StepName() + ": push with final = false until the last time");
  }
  state = final ? State::kFinal : State::kPushed;
  return ChangeBuckets(parameter, [&](Bucket& bucket, size_t entry) {
    bucket.Stage(entry, gradient.data(), final);
  });
}

Status Session::Impl::Absent(std::string_view name) {
  Result<size_t> found = Find(name);
  if (!found.ok()) return found.status();
  const HeldParameter& parameter = parameters_[found.value()];
  State& state = states_[found.value()];
  if (state == State::kPushed || state == State::kFinal) {
    return Status::FailedPrecondition("parameter '" + parameter.name +
                                      "' cannot be absent: its gradient was pushed in this step");
  }
  if (state == State::kAbsent) return Status::Ok();
  state = State::kAbsent;
  return ChangeBuckets(parameter,
                       [](Bucket& bucket, size_t entry) { bucket.DeclareAbsent(entry); });
}

void Session::Impl::Send(Bucket& bucket, BucketKind kind, bool final, uint64_t generation) {
  if (!bucket.has_payload()) return;  // this trainer holds nothing of it
  sender_.Start(bucket, bucket.Seal(kind, final, {attachment_.session, generation, trainer_}));
}

Status Session::Impl::SealStep() {
  for (Bucket& bucket : attachment_.buckets) {
    if (bucket.sent_final()) continue;
    if (Status status = sender_.Wait(bucket); !status.ok()) return status;
    Send(bucket, BucketKind::kGradient, true, *generation_);
  }
  if (Status status = sender_.WaitAll(); !status.ok()) return status;
  v1::SealStepRequest request;
  request.set_session(attachment_.session);
  request.set_trainer(trainer_);
  request.set_generation(*generation_);
  for (uint32_t i = 0; i < states_.size(); ++i) {
    if (states_[i] == State::kUntouched || states_[i] == State::kAbsent) request.add_absent(i);
  }
  v1::SealStepReply reply;
  return Call(connection(), &v1::Control::Stub::SealStep, request, &reply, "seal of " + StepName());
}

Result<StepReport> Session::Impl::Step() {
  if (!generation_) return Status::FailedPrecondition("no step is open: call BeginStep first");
  Status status = SealStep();
  // Aborted: the step or the session has ended without us; the report, or the next call, says why.
  if (!status.ok() && status.code() != StatusCode::kAborted) return status;
  return FinishStep();
}

Result<StepReport> Session::Impl::FinishStep() {
  v1::WaitStepRequest request;
  request.set_session(attachment_.session);
  request.set_trainer(trainer_);
  request.set_generation(*generation_);
  v1::StepReport reply;
  Status status = attachment_.lease->WaitStep(request, StepName(), &reply);
  if (!status.ok()) return status;
  sender_.Reset();
  generation_.reset();
  next_step_ = reply.next_step();
  if (reply.outcome() == v1::STEP_OUTCOME_COMMITTED) status = Receive(reply.generation());
  if (!status.ok()) return status;
  return FromProto(reply);
}

Status Session::Impl::Receive(uint64_t generation) {
  Status status = attachment_.channel->Receive(attachment_.buckets, generation);
  if (!status.ok()) return status;
  for (const HeldParameter& parameter : parameters_) {
    for (const auto& [bucket, entry] : parameter.places) {
      if (bucket->has_payload() && bucket->IsPublished(entry)) {
        bucket->Unpack(entry, parameter.data.data());
      }
    }
  }
  return Status::Ok();
}

Status Session::Impl::Close() {
  v1::DetachRequest request;
  request.set_session(attachment_.session);
  request.set_trainer(trainer_);
  v1::DetachReply reply;
  return Call(connection(), &v1::Control::Stub::Detach, request, &reply, "leaving the session");
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::Open(std::string_view spec_json,
                                               const std::vector<Parameter>& parameters,
                                               const SessionOptions& options) {
  if (options.trainer >= options.trainers) {
    return Status::InvalidArgument("trainer " + std::to_string(options.trainer) + " of " +
                                   std::to_string(options.trainers) +
                                   ": trainers are numbered from 0");
  }
  Result<std::vector<HeldParameter>> held = MatchParameters(spec_json, parameters);
  if (!held.ok()) return held.status();
  Result<Attachment> attachment = Attach(spec_json, held.value(), options);
  if (!attachment.ok()) return attachment.status();
  auto impl = std::make_unique<Impl>(std::move(held.value()), std::move(attachment.value()),
                                     options.trainer);
  if (Status status = impl->Start(options.start_timeout_s); !status.ok()) return status;
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Result<uint64_t> Session::BeginStep(const std::vector<GroupValues>& groups, double grad_scale) {
  return impl_->BeginStep(groups, grad_scale);
}
Status Session::Push(std::string_view name, std::span<const std::byte> gradient, bool final) {
  return impl_->Push(name, gradient, final);
}
Status Session::Absent(std::string_view name) { return impl_->Absent(name); }
Result<StepReport> Session::Step() { return impl_->Step(); }
Status Session::Close() { return impl_->Close(); }
bool Session::resumed() const { return impl_->attachment().resumed; }
uint64_t Session::next_step() const { return impl_->next_step(); }
ChannelKind Session::channel() const { return impl_->attachment().channel_kind; }

}  // namespace dmuon::client
