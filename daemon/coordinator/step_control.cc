#include "daemon/coordinator/step_control.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "daemon/session/step_overrides.h"

namespace dmuon {
namespace {

constexpr size_t kReportsKept = 64;
constexpr double kMissingAnswer_s = 2.0;  // how long owners may take to say what is missing

std::string Text(double value) { return fmt::format("{}", value); }

// The values of a step as a flat map, in which two trainers' requests are compared.
std::map<std::string, double> FlatValues(const std::vector<scheduler::GroupOverrides>& groups,
                                         double grad_scale) {
  std::map<std::string, double> values{{"grad_scale", grad_scale}};
  for (const scheduler::GroupOverrides& group : groups) {
    auto add = [&](const char* key, const std::optional<double>& value) {
      if (value) values[group.group + "." + key] = *value;
    };
    add("lr", group.lr);
    add("weight_decay", group.weight_decay);
    add("momentum", group.momentum);
    add("beta1", group.beta1);
    add("beta2", group.beta2);
  }
  return values;
}

}  // namespace

StepControl::StepControl(CoordinatorHost& host, const Setup& setup)
    : host_(host), setup_(setup), holders_(setup.spec->parameters.size(), setup.trainers) {}

uint64_t StepControl::count(v1::StepOutcome outcome) const {
  auto found = counts_.find(outcome);
  return found == counts_.end() ? 0 : found->second;
}

std::string StepControl::Name(uint32_t trainer) const {
  auto found = names_.find(trainer);
  return found == names_.end() ? "trainer " + std::to_string(trainer) : found->second;
}

Status StepControl::CheckBegin(const v1::BeginStepRequest& request, const Values& values) const {
  uint64_t expected = active_ ? active_->step : next_step_;
  if (request.step() != expected) {
    return Status::FailedPrecondition("trainer " + std::to_string(request.trainer()) +
                                      " began step " + std::to_string(request.step()) +
                                      "; the session is at step " + std::to_string(expected));
  }
  if (!active_) return Status::Ok();
  if (active_->begun.count(request.trainer()) != 0) {
    return Status::FailedPrecondition("trainer " + std::to_string(request.trainer()) +
                                      " has already begun step " + std::to_string(expected));
  }
  if (values == active_->values) return Status::Ok();
  uint32_t first = *active_->begun.begin();
  for (const auto* side : {&values, &active_->values}) {
    for (const auto& [key, value] : *side) {
      auto mine = values.find(key);
      auto theirs = active_->values.find(key);
      if (mine != values.end() && theirs != active_->values.end() &&
          mine->second == theirs->second) {
        continue;
      }
      auto show = [](const Values& v, Values::const_iterator it) {
        return it == v.end() ? std::string("nothing") : Text(it->second);
      };
      return Status::InvalidArgument(
          "step " + std::to_string(expected) + ": trainer " + std::to_string(request.trainer()) +
          " sent " + key + " = " + show(values, mine) + ", trainer " + std::to_string(first) +
          " sent " + show(active_->values, theirs) + ": all trainers must use equal values");
    }
  }
  return Status::Ok();
}

void StepControl::Begin(const v1::BeginStepRequest& request, const Reply& reply) {
  double grad_scale = request.grad_scale() == 0 ? 1.0 : request.grad_scale();
  std::vector<scheduler::GroupOverrides> groups = OverridesOf(request.groups());
  Status status = scheduler::StepValues::Make(*setup_.spec, groups, grad_scale).status();
  Values values = FlatValues(groups, grad_scale);
  if (status.ok()) status = CheckBegin(request, values);
  if (!status.ok()) return reply(status, {});
  if (!active_) StartActive(request, std::move(values));
  active_->begun.insert(request.trainer());
  v1::BeginStepReply answer;
  answer.set_generation(generation_);
  Answer(reply, answer);
}

void StepControl::StartActive(const v1::BeginStepRequest& request, Values values) {
  ++generation_;
  active_.emplace(next_step_, std::move(values));
  active_->compute_s.resize(static_cast<size_t>(host_.owner_count()));
  v1::OwnerMessage message;
  v1::StartStep& start = *message.mutable_start_step();
  start.set_session(setup_.session);
  start.set_step(next_step_);
  start.set_generation(generation_);
  *start.mutable_groups() = request.groups();
  start.set_grad_scale(active_->values.at("grad_scale"));
  host_.Broadcast(message);
}

Status StepControl::CheckGeneration(uint32_t trainer, uint64_t generation, const char* call) const {
  if (active_ && generation == generation_ && active_->begun.count(trainer) != 0) {
    return Status::Ok();
  }
  return Status::FailedPrecondition(std::string(call) + " of trainer " + std::to_string(trainer) +
                                    " for generation " + std::to_string(generation) +
                                    ", which it has not begun; the current generation is " +
                                    std::to_string(generation_));
}

void StepControl::Seal(const v1::SealStepRequest& request, const std::set<uint32_t>& absent,
                       const Reply& reply) {
  if (reports_.count(request.generation()) != 0) {
    return Answer(reply, v1::SealStepReply());  // it has ended meanwhile; WaitStep tells how
  }
  Status status = CheckGeneration(request.trainer(), request.generation(), "SealStep");
  if (status.ok() && !active_->sealed.insert(request.trainer()).second) {
    status =
        Status::FailedPrecondition("trainer " + std::to_string(request.trainer()) +
                                   " has already sealed step " + std::to_string(active_->step));
  }
  if (!status.ok()) return reply(status, {});
  for (uint32_t parameter : absent) ++active_->absent_on[parameter];
  Answer(reply, v1::SealStepReply());
  if (active_->sealed.size() == setup_.trainers) AllSealed();
}

void StepControl::AllSealed() {
  active_->all_sealed = Clock::now();
  v1::OwnerMessage message;
  v1::AllSealed& sealed = *message.mutable_all_sealed();
  sealed.set_session(setup_.session);
  sealed.set_generation(generation_);
  for (const auto& [parameter, trainers] : active_->absent_on) {
    if (trainers == holders_[parameter]) sealed.add_absent(parameter);
  }
  active_->absent = sealed.absent_size();
  host_.Broadcast(message);
  Advance();
}

void StepControl::Wait(const v1::WaitStepRequest& request, const Reply& reply) {
  auto report = reports_.find(request.generation());
  if (report != reports_.end()) return Answer(reply, report->second);
  Status status = CheckGeneration(request.trainer(), request.generation(), "WaitStep");
  if (!status.ok()) return reply(status, {});
  waiting_[request.generation()].push_back(reply);
}

void StepControl::OnReduced(int owner, const v1::Reduced& message) {
  if (!active_ || message.generation() != generation_) return;
  active_->reduced.insert(owner);
  for (const v1::PieceNorm& norm : message.norms()) {
    active_->norms[norm.piece()] = norm.squared_sum();
  }
  if (!message.not_finite().empty()) {
    active_->not_finite[message.not_finite_parameter()] = message.not_finite();
  }
  if (static_cast<int>(active_->reduced.size()) == host_.owner_count()) AgreeOnNorm();
  Advance();
}

void StepControl::AgreeOnNorm() {
  std::vector<double> squared;
  for (const auto& [piece, sum] : active_->norms) squared.push_back(sum);
  active_->norm = scheduler::GradientNorm(squared);
  if (!setup_.spec->max_grad_norm || !active_->not_finite.empty()) return;
  active_->clip_factor = scheduler::ClipFactor(setup_.spec->max_grad_norm, active_->norm);
  v1::OwnerMessage message;
  message.mutable_clip_factor()->set_session(setup_.session);
  message.mutable_clip_factor()->set_generation(generation_);
  message.mutable_clip_factor()->set_factor(active_->clip_factor);
  active_->clip_sent = true;
  host_.Broadcast(message);
}

void StepControl::OnReady(int owner, const v1::StepReady& message) {
  if (!active_ || message.generation() != generation_) return;
  active_->ready.insert(owner);
  active_->muon_expected += message.muon_matrices_expected();
  for (const v1::Orthogonalised& entry : message.orthogonalised()) {
    v1::Orthogonalised& sum = active_->orthogonalised[entry.form() + "/" + entry.precision()];
    uint64_t before = sum.matrices();
    sum = entry;
    sum.set_matrices(before + entry.matrices());
    active_->muon_done += entry.matrices();
  }
  if (!message.not_finite().empty()) {
    active_->not_finite[message.not_finite_parameter()] = message.not_finite();
  }
  active_->compute_s[static_cast<size_t>(owner)] = message.busy_s();
  Advance();
}

void StepControl::Advance() {
  int owners = host_.owner_count();
  if (active_->sealed.size() != setup_.trainers ||
      static_cast<int>(active_->reduced.size()) != owners) {
    return;
  }
  bool all_ready = static_cast<int>(active_->ready.size()) == owners;
  // With clipping, owners wait for a factor that a step without a finite norm never gets.
  bool withheld = setup_.spec->max_grad_norm && !active_->clip_sent;
  if (!all_ready && !withheld) return;
  if (!active_->not_finite.empty()) {
    const std::string& name = active_->not_finite.begin()->second;
    Finish(v1::STEP_OUTCOME_SKIPPED, "parameter " + name + " is not finite in this step", name);
  } else if (active_->muon_done != active_->muon_expected) {
    Finish(v1::STEP_OUTCOME_ABORTED,
           fmt::format("owners orthogonalised {} matrices of {}: please report this as a bug",
                       active_->muon_done, active_->muon_expected),
           "");
  } else {
    Finish(v1::STEP_OUTCOME_COMMITTED, "", "");
  }
}

void StepControl::Finish(v1::StepOutcome outcome, const std::string& reason,
                         const std::string& parameter) {
  v1::OwnerMessage message;
  message.mutable_finish_step()->set_session(setup_.session);
  message.mutable_finish_step()->set_generation(generation_);
  message.mutable_finish_step()->set_outcome(outcome);
  host_.Broadcast(message);

  if (outcome != v1::STEP_OUTCOME_ABORTED) ++next_step_;
  ++counts_[outcome];
  v1::StepReport report;
  report.set_step(active_->step);
  report.set_generation(generation_);
  report.set_outcome(outcome);
  report.set_reason(reason);
  report.set_parameter(parameter);
  report.set_grad_norm(active_->norm);
  report.set_clip_factor(active_->clip_factor);
  for (const auto& [key, count] : active_->orthogonalised) *report.add_orthogonalised() = count;
  if (outcome != v1::STEP_OUTCOME_ABORTED) {
    report.set_optimizer_s(
        std::chrono::duration<double>(Clock::now() - active_->all_sealed).count());
  }
  report.mutable_owner_compute_s()->Assign(active_->compute_s.begin(), active_->compute_s.end());
  report.set_busiest_owner_s(*std::ranges::max_element(active_->compute_s));
  report.set_next_step(next_step_);
  report.set_absent_parameters(active_->absent);
  active_.reset();
  data_problems_.clear();

  if (outcome == v1::STEP_OUTCOME_COMMITTED) {
    spdlog::debug("step {} committed, gradient norm {:.6g}", report.step(), report.grad_norm());
  } else {
    spdlog::warn("step {} {}: {}", report.step(),
                 outcome == v1::STEP_OUTCOME_SKIPPED ? "skipped" : "aborted", reason);
  }
  for (const Reply& reply : std::exchange(waiting_[generation_], {})) Answer(reply, report);
  waiting_.erase(generation_);
  reports_[generation_] = std::move(report);
  if (reports_.size() > kReportsKept) reports_.erase(reports_.begin());
}

void StepControl::Abort(const std::string& reason) {
  if (active_) Finish(v1::STEP_OUTCOME_ABORTED, reason, "");
}

void StepControl::Close(const Status& status) {
  for (auto& [generation, replies] : std::exchange(waiting_, {})) {
    for (const Reply& reply : replies) reply(status, {});
  }
  active_.reset();
}

void StepControl::OnDataError(const v1::DataError& message) {
  if (message.stale()) {
    ++stale_pushes_;
    if (active_) data_problems_[message.trainer()] = message.message();
    // Trainers that were pushing when their step was aborted could not know.
    auto report = reports_.find(message.generation());
    bool expected =
        report != reports_.end() && report->second.outcome() == v1::STEP_OUTCOME_ABORTED;
    spdlog::log(expected ? spdlog::level::debug : spdlog::level::warn, "stale push dropped: {}",
                message.message());
    return;
  }
  spdlog::error("push refused: {}", message.message());
  if (message.generation() == generation_) Abort(message.message());
}

void StepControl::Tick(Clock::time_point now) {
  if (!active_) return;
  if (std::chrono::duration<double>(now - active_->started).count() < setup_.timeout_s) return;
  if (!active_->asked_missing) {
    active_->asked_missing = now;
    v1::OwnerMessage message;
    message.mutable_ask_missing()->set_session(setup_.session);
    message.mutable_ask_missing()->set_generation(generation_);
    message.mutable_ask_missing()->set_request(generation_);
    host_.Broadcast(message);
    return;
  }
  bool all = static_cast<int>(active_->answered_missing.size()) == host_.owner_count();
  double asked_s = std::chrono::duration<double>(now - *active_->asked_missing).count();
  if (all || asked_s > kMissingAnswer_s) Abort(TimeoutReason());
}

void StepControl::OnMissing(int owner, const v1::Missing& message) {
  if (!active_ || message.request() != generation_) return;
  active_->answered_missing.insert(owner);
  for (const v1::MissingFromTrainer& missing : message.trainers()) {
    std::string& text = active_->missing[missing.trainer()];
    text += text.empty() ? "" : "; ";
    text += fmt::format("owner {} misses {} parameter{} (", owner, missing.parameters(),
                        missing.parameters() == 1 ? "" : "s");
    for (int i = 0; i < missing.examples_size(); ++i) {
      text += (i == 0 ? "" : ", ") + missing.examples(i);
    }
    text += static_cast<uint64_t>(missing.examples_size()) < missing.parameters() ? ", ...)" : ")";
  }
}

std::string StepControl::TimeoutReason() const {
  std::string text =
      fmt::format("step {} is not complete after {:.6g} s", active_->step, setup_.timeout_s);
  for (uint32_t trainer = 0; trainer < setup_.trainers; ++trainer) {
    auto missing = active_->missing.find(trainer);
    bool begun = active_->begun.count(trainer) != 0;
    bool sealed = active_->sealed.count(trainer) != 0;
    if (missing == active_->missing.end() && begun && sealed) continue;
    text += "; " + Name(trainer) +
            (!begun    ? " has not begun it"
             : !sealed ? " has not sealed it"
                       : "");
    if (missing != active_->missing.end()) text += " - from it, " + missing->second;
    auto problem = data_problems_.find(trainer);
    if (problem != data_problems_.end()) text += " (last: " + problem->second + ")";
  }
  for (int owner = 0; owner < host_.owner_count(); ++owner) {
    if (active_->answered_missing.count(owner) == 0) {
      text += fmt::format("; owner {} does not answer", owner);
    } else if (active_->ready.count(owner) == 0 && active_->missing.empty()) {
      text += fmt::format("; owner {} is still computing", owner);
    }
  }
  return text;
}

std::string StepControl::WaitingFor() const {
  if (!active_) return {};
  std::string text;
  auto add = [&text](const std::string& what) { text += (text.empty() ? "" : ", ") + what; };
  for (uint32_t trainer = 0; trainer < setup_.trainers; ++trainer) {
    if (active_->begun.count(trainer) == 0) {
      add(Name(trainer) + " to begin");
    } else if (active_->sealed.count(trainer) == 0) {
      add(Name(trainer) + " to push and seal");
    }
  }
  for (int owner = 0; owner < host_.owner_count(); ++owner) {
    if (active_->ready.count(owner) == 0) add("owner " + std::to_string(owner));
  }
  return text;
}

}  // namespace dmuon
