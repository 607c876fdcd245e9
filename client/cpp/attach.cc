#include "client/cpp/attach.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>

#include "client/cpp/mpi_job.h"
#include "client/cpp/rpc.h"
#include "proto/session_spec.h"

namespace dmuon::client {
namespace {

Result<HeldParameter> Match(const ParameterSpec& spec, const Parameter& given) {
  HeldParameter held;
  held.name = spec.name;
  held.shape = spec.shape;
  held.region = given.region ? *given.region : Region::Whole(spec.shape);
  held.element_bytes = SizeOf(spec.dtype);
  held.data = given.data;
  Status status = ValidateRegion(spec.name, spec.shape, held.region);
  if (!status.ok()) return status;
  const int64_t bytes = held.region.elements() * held.element_bytes;
  if (static_cast<int64_t>(given.data.size()) != bytes) {
    return Status::InvalidArgument(
        "parameter '" + spec.name + "': " + std::to_string(given.data.size()) +
        " bytes given, its region of " + std::to_string(held.region.elements()) + " elements of " +
        std::string(NameOf(spec.dtype)) + " has " + std::to_string(bytes));
  }
  return held;
}

// The process's rank in the owners' MPI job; -1 when it need not or cannot use channel mpi.
Result<int> MpiRank(ChannelKind channel) {
  const bool asked = channel == ChannelKind::kMpi;
  if (!asked && !(channel == ChannelKind::kAuto && RunningInMpiJob())) return -1;
  Result<std::optional<int>> rank = JoinMpiJob();
  if (!rank.ok()) return rank.status();
  if (asked && !rank.value()) {
    return Status::FailedPrecondition(
        "channel mpi: no rank of this MPI job is a dmuond owner: start both in one mpirun "
        "(mpirun -np 2 dmuond : -np 2 trainer), or use another channel");
  }
  return rank.value().value_or(-1);
}

v1::Channel ToProto(ChannelKind channel) {
  switch (channel) {
    case ChannelKind::kGrpc:
      return v1::CHANNEL_GRPC;
    case ChannelKind::kMpi:
      return v1::CHANNEL_MPI;
    default:
      return v1::CHANNEL_AUTO;
  }
}

v1::AttachRequest RequestOf(const std::vector<HeldParameter>& parameters,
                            const SessionOptions& options, int mpi_rank) {
  v1::AttachRequest request;
  request.set_trainer(options.trainer);
  request.set_channel(ToProto(options.channel));
  request.set_mpi_rank(mpi_rank);
  request.set_pid(getpid());
  request.set_contribution(options.contribution == Contribution::kReplica
                               ? v1::CONTRIBUTION_REPLICA
                               : v1::CONTRIBUTION_PARTIAL);
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  request.set_host_id(options.host_id.empty() ? host : options.host_id);
  for (uint32_t index = 0; index < parameters.size(); ++index) {
    const HeldParameter& parameter = parameters[index];
    request.add_parameters(parameter.name);
    if (parameter.region == Region::Whole(parameter.shape)) continue;
    v1::Region& region = *request.add_regions();
    region.set_parameter(index);
    region.mutable_start()->Add(parameter.region.start.begin(), parameter.region.start.end());
    region.mutable_extent()->Add(parameter.region.extent.begin(), parameter.region.extent.end());
    region.set_contribution(request.contribution());
  }
  return request;
}

Result<Bucket> BucketOf(const v1::Bucket& from, const std::vector<HeldParameter>& parameters) {
  BucketLayout layout;
  layout.number = from.bucket();
  layout.owner_mpi_rank = from.owner_mpi_rank();
  layout.payload_bytes = from.payload_bytes();
  for (const v1::BucketEntry& entry : from.entries()) {
    if (entry.parameter() >= parameters.size()) {
      return Status::Internal("the daemon's layout names parameter number " +
                              std::to_string(entry.parameter()) + " of " +
                              std::to_string(parameters.size()));
    }
    const HeldParameter& parameter = parameters[entry.parameter()];
    const StridedMatrix piece{entry.base(), entry.rows(), entry.cols(), entry.row_stride()};
    layout.entries.push_back({entry.parameter(), entry.offset(), entry.count(),
                              parameter.element_bytes,
                              IntersectRuns(parameter.shape, parameter.region, piece)});
  }
  return Bucket::Make(std::move(layout));
}

Status TakeLayout(const v1::AttachReply& reply, std::vector<HeldParameter>& parameters,
                  Attachment* attachment) {
  attachment->buckets.reserve(reply.buckets_size());
  for (const v1::Bucket& from : reply.buckets()) {
    Result<Bucket> bucket = BucketOf(from, parameters);
    if (!bucket.ok()) return bucket.status();
    attachment->buckets.push_back(std::move(bucket.value()));
  }
  for (Bucket& bucket : attachment->buckets) {
    for (size_t entry = 0; entry < bucket.entries().size(); ++entry) {
      parameters[bucket.entries()[entry].parameter].places.emplace_back(&bucket, entry);
    }
  }
  attachment->resumed = reply.resumed();
  attachment->next_step = reply.next_step();
  attachment->generation = reply.generation();
  return Status::Ok();
}

Status TakeChannel(const v1::AttachReply& reply, uint32_t trainer, Attachment* attachment) {
  attachment->lease =
      std::make_unique<Lease>(*attachment->connection, attachment->session, trainer);
  switch (reply.channel()) {
    case v1::CHANNEL_GRPC:
      attachment->channel_kind = ChannelKind::kGrpc;
      attachment->channel = MakeGrpcChannel(*attachment->connection, attachment->session, trainer);
      return Status::Ok();
    case v1::CHANNEL_MPI:
      attachment->channel_kind = ChannelKind::kMpi;
      attachment->channel = MakeMpiChannel(*attachment->lease, attachment->session);
      return Status::Ok();
    default:
      return Status::Internal("the daemon chose channel " + std::to_string(reply.channel()) +
                              ", which this client library does not have: ask for another one");
  }
}

}  // namespace

Result<std::vector<HeldParameter>> MatchParameters(std::string_view spec_json,
                                                   const std::vector<Parameter>& parameters) {
  SessionSpec spec;
  try {
    spec = ParseSessionSpec(spec_json);
  } catch (const SpecError& error) {
    return Status::InvalidArgument(error.what());
  }
  std::map<std::string, const ParameterSpec*> by_name;
  for (const ParameterSpec& parameter : spec.parameters) by_name[parameter.name] = &parameter;
  std::vector<HeldParameter> result;
  std::set<std::string> seen;
  for (const Parameter& given : parameters) {
    auto found = by_name.find(given.name);
    if (found == by_name.end()) {
      return Status::InvalidArgument("parameter '" + given.name + "' is not in the session spec");
    }
    if (!seen.insert(given.name).second) {
      return Status::InvalidArgument("parameter '" + given.name + "' was given twice");
    }
    Result<HeldParameter> held = Match(*found->second, given);
    if (!held.ok()) return held.status();
    result.push_back(std::move(held.value()));
  }
  for (const ParameterSpec& parameter : spec.parameters) {
    if (seen.count(parameter.name) == 0) {
      return Status::InvalidArgument("parameter '" + parameter.name +
                                     "' of the session spec was not given");
    }
  }
  return result;
}

Result<Attachment> Attach(std::string_view spec_json, std::vector<HeldParameter>& parameters,
                          const SessionOptions& options) {
  Result<int> mpi_rank = MpiRank(options.channel);
  if (!mpi_rank.ok()) return mpi_rank.status();
  auto connection = Connection::Open(options.address.empty() ? DefaultAddress() : options.address,
                                     options.connect_timeout_s);
  if (!connection.ok()) return connection.status();
  Attachment attachment;
  attachment.connection = std::move(connection.value());

  v1::OpenSessionRequest open;
  open.set_spec_json(std::string(spec_json));
  open.set_trainers(options.trainers);
  open.set_step_timeout_s(options.step_timeout_s);
  open.set_resume(options.resume);
  v1::OpenSessionReply opened;
  Status status = Call(*attachment.connection, &v1::Control::Stub::OpenSession, open, &opened,
                       "opening the session");
  if (!status.ok()) return status;
  attachment.session = opened.session();

  v1::AttachRequest request = RequestOf(parameters, options, mpi_rank.value());
  request.set_session(opened.session());
  v1::AttachReply reply;
  status = Call(*attachment.connection, &v1::Control::Stub::Attach, request, &reply,
                "attaching trainer " + std::to_string(options.trainer));
  if (status.ok()) status = TakeLayout(reply, parameters, &attachment);
  if (status.ok()) status = TakeChannel(reply, options.trainer, &attachment);
  if (!status.ok()) return status;
  return attachment;
}

}  // namespace dmuon::client
