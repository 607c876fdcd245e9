// The C interface over Session. No exception leaves a function of this file.
#include <cmath>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/dmuon_client.h"
#include "client/cpp/mpi_job.h"
#include "client/cpp/session.h"

struct dmuon_session {
  std::unique_ptr<dmuon::client::Session> session;
};

namespace {

using dmuon::Result;
using dmuon::Status;
using dmuon::client::GroupValues;
using dmuon::client::Parameter;
using dmuon::client::Session;
using dmuon::client::SessionOptions;
using dmuon::client::StepOutcome;
using dmuon::client::StepReport;

std::string& LastError() {
  thread_local std::string error;
  return error;
}

dmuon_status Finish(const Status& status) {
  LastError() = status.message();
  return static_cast<dmuon_status>(status.code());
}

// Runs `body`, which returns a Status, and turns anything thrown into one.
template <typename Body>
dmuon_status Guard(Body body) {
  try {
    return Finish(body());
  } catch (const std::exception& error) {
    return Finish(Status::Internal(error.what()));
  }
}

Status NullArgument(const char* name) {
  return Status::InvalidArgument(std::string(name) + " is NULL: give a valid pointer");
}

Result<std::vector<Parameter>> ToParameters(const dmuon_parameter* parameters, size_t count) {
  if (parameters == nullptr && count > 0) return NullArgument("parameters");
  std::vector<Parameter> result(count);
  for (size_t i = 0; i < count; ++i) {
    const dmuon_parameter& from = parameters[i];
    if (from.name == nullptr) return NullArgument("a parameter's name");
    if (from.data == nullptr && from.bytes > 0) return NullArgument("a parameter's data");
    if ((from.region_start == nullptr) != (from.region_extent == nullptr)) {
      return Status::InvalidArgument("parameter '" + std::string(from.name) +
                                     "': give both region_start and region_extent, or neither");
    }
    result[i].name = from.name;
    result[i].data = {static_cast<std::byte*>(from.data), from.bytes};
    if (from.region_start == nullptr) continue;
    result[i].region = dmuon::Region{{from.region_start, from.region_start + from.dimensions},
                                     {from.region_extent, from.region_extent + from.dimensions}};
  }
  return result;
}

SessionOptions ToOptions(const dmuon_options& from) {
  SessionOptions options;
  if (from.address != nullptr) options.address = from.address;
  options.trainer = from.trainer;
  options.trainers = from.trainers;
  options.channel = static_cast<dmuon::client::ChannelKind>(from.channel);
  options.contribution = from.contribution == DMUON_CONTRIBUTION_REPLICA
                             ? dmuon::Contribution::kReplica
                             : dmuon::Contribution::kPartial;
  if (from.host_id != nullptr) options.host_id = from.host_id;
  options.step_timeout_s = from.step_timeout;
  options.connect_timeout_s = from.connect_timeout;
  options.start_timeout_s = from.start_timeout;
  options.resume = from.resume != 0;
  return options;
}

std::optional<double> Given(double value) {
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

Result<std::vector<GroupValues>> ToGroups(const dmuon_group_values* groups, size_t count) {
  if (groups == nullptr && count > 0) return NullArgument("groups");
  std::vector<GroupValues> result;
  for (size_t i = 0; i < count; ++i) {
    const dmuon_group_values& from = groups[i];
    if (from.group == nullptr) return NullArgument("a group's name");
    result.push_back({from.group, Given(from.lr), Given(from.weight_decay), Given(from.momentum),
                      Given(from.beta1), Given(from.beta2)});
  }
  return result;
}

template <size_t kSize>
void CopyText(const std::string& from, char (&to)[kSize]) {
  std::strncpy(to, from.c_str(), kSize - 1);
  to[kSize - 1] = '\0';
}

void ToReport(const StepReport& from, dmuon_step_report* to) {
  to->step = from.step;
  to->outcome = static_cast<dmuon_outcome>(from.outcome);
  to->grad_norm = from.grad_norm;
  to->clip_factor = from.clip_factor;
  to->matrices = from.matrices;
  to->optimizer_s = from.optimizer_s;
  to->busiest_owner_s = from.busiest_owner_s;
  to->next_step = from.next_step;
  to->absent_parameters = from.absent_parameters;
  CopyText(from.reason, to->reason);
  CopyText(from.parameter, to->parameter);
}

}  // namespace

extern "C" {

void dmuon_options_init(dmuon_options* options) {
  const SessionOptions defaults;
  *options = {};
  options->trainers = defaults.trainers;
  options->connect_timeout = defaults.connect_timeout_s;
  options->start_timeout = defaults.start_timeout_s;
}

void dmuon_group_values_init(dmuon_group_values* values, const char* group) {
  *values = {group, NAN, NAN, NAN, NAN, NAN};
}

dmuon_status dmuon_open(const char* spec_json, const dmuon_parameter* parameters, size_t count,
                        const dmuon_options* options, dmuon_session** session) {
  return Guard([&] {
    if (session == nullptr) return NullArgument("session");
    *session = nullptr;
    if (spec_json == nullptr) return NullArgument("spec_json");
    if (options == nullptr) return NullArgument("options");
    Result<std::vector<Parameter>> converted = ToParameters(parameters, count);
    if (!converted.ok()) return converted.status();
    auto opened = Session::Open(spec_json, converted.value(), ToOptions(*options));
    if (!opened.ok()) return opened.status();
    *session = new dmuon_session{std::move(opened.value())};
    return Status::Ok();
  });
}

dmuon_status dmuon_begin_step(dmuon_session* session, const dmuon_group_values* groups,
                              size_t group_count, double grad_scale, uint64_t* step) {
  return Guard([&] {
    if (session == nullptr) return NullArgument("session");
    Result<std::vector<GroupValues>> converted = ToGroups(groups, group_count);
    if (!converted.ok()) return converted.status();
    Result<uint64_t> begun = session->session->BeginStep(converted.value(), grad_scale);
    if (begun.ok() && step != nullptr) *step = begun.value();
    return begun.status();
  });
}

dmuon_status dmuon_push(dmuon_session* session, const char* name, const void* gradient,
                        size_t bytes, int final) {
  return Guard([&] {
    if (session == nullptr) return NullArgument("session");
    if (name == nullptr) return NullArgument("name");
    if (gradient == nullptr && bytes > 0) return NullArgument("gradient");
    return session->session->Push(name, {static_cast<const std::byte*>(gradient), bytes},
                                  final != 0);
  });
}

dmuon_status dmuon_absent(dmuon_session* session, const char* name) {
  return Guard([&] {
    if (session == nullptr) return NullArgument("session");
    if (name == nullptr) return NullArgument("name");
    return session->session->Absent(name);
  });
}

dmuon_status dmuon_step(dmuon_session* session, dmuon_step_report* report) {
  return Guard([&] {
    if (session == nullptr) return NullArgument("session");
    if (report != nullptr) *report = {};
    Result<StepReport> done = session->session->Step();
    if (!done.ok()) return done.status();
    if (report != nullptr) ToReport(done.value(), report);
    if (done.value().outcome != StepOutcome::kAborted) return Status::Ok();
    return Status(dmuon::StatusCode::kAborted, "step " + std::to_string(done.value().step) +
                                                   " was aborted: " + done.value().reason);
  });
}

dmuon_status dmuon_close(dmuon_session* session) {
  return Guard([&] {
    const std::unique_ptr<dmuon_session> owned(session);
    return owned ? owned->session->Close() : Status::Ok();
  });
}

void dmuon_abandon(dmuon_session* session) { delete session; }

dmuon_status dmuon_join_mpi_job(double timeout) {
  return Guard([&] { return dmuon::client::JoinMpiJob(timeout).status(); });
}

const char* dmuon_last_error(void) { return LastError().c_str(); }

}  // extern "C"
