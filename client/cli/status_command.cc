// dmuonctl status: owners and sessions of a running dmuond.
#include <google/protobuf/util/json_util.h>

#include <cinttypes>
#include <cstdio>
#include <iostream>

#include "client/cli/admin_client.h"

namespace dmuon::cli {
namespace {

struct StatusOptions {
  std::string address;
  bool json = false;
};

void PrintJson(const v1::StatusReply& reply) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(reply, &json, options);
  if (!status.ok()) {
    throw std::runtime_error("the reply cannot be printed: " + status.ToString());
  }
  std::cout << json << std::endl;
}

void PrintOwners(const v1::StatusReply& reply) {
  std::printf("%6s %-20s %8s %9s %13s %9s %9s %9s  %s\n", "owner", "host", "pid", "matrices",
              "elements", "busy s", "beat s", "MiB", "device");
  for (const v1::OwnerStatus& owner : reply.owners()) {
    std::printf("%6u %-20s %8" PRId64 " %9" PRIu64 " %13" PRIu64 " %9.4f %9.2f %9.1f  %s\n",
                owner.rank(), owner.host().c_str(), owner.pid(), owner.matrices(), owner.elements(),
                owner.busy_s(), owner.heartbeat_age_s(),
                static_cast<double>(owner.resident_bytes()) / (1 << 20), owner.device().c_str());
  }
}

void PrintSession(const v1::SessionStatus& session) {
  std::printf(
      "session %016" PRIx64 ": %s%s%s, next step %" PRIu64 ", %" PRIu64 " committed, %" PRIu64
      " skipped, %" PRIu64 " aborted, %u parameters, %" PRIu64 " matrices, plan %s\n",
      session.session(), session.state().c_str(), session.model().empty() ? "" : ", model ",
      session.model().c_str(), session.next_step(), session.committed(), session.skipped(),
      session.aborted(), session.parameters(), session.matrices(), session.plan_hash().c_str());
  if (!session.waiting_for().empty()) {
    std::printf("  waiting for %s\n", session.waiting_for().c_str());
  }
  for (const v1::TrainerStatus& trainer : session.trainers()) {
    std::printf("  trainer %u: %s, channel %s, host %s, pid %" PRId64
                ", %.1f MiB in, %.1f MiB out\n",
                trainer.trainer(), trainer.state().c_str(), trainer.channel().c_str(),
                trainer.host_id().c_str(), trainer.pid(),
                static_cast<double>(trainer.bytes_in()) / (1 << 20),
                static_cast<double>(trainer.bytes_out()) / (1 << 20));
  }
}

int PrintStatus(const StatusOptions& options) {
  const v1::StatusReply reply = AdminClient(options.address).Status();
  if (options.json) {
    PrintJson(reply);
    return 0;
  }
  std::printf("dmuond %s, up %.0f s, %d owners, %d sessions\n", reply.version().c_str(),
              reply.uptime_s(), reply.owners_size(), reply.sessions_size());
  PrintOwners(reply);
  for (const v1::SessionStatus& session : reply.sessions()) {
    PrintSession(session);
  }
  return 0;
}

}  // namespace

void AddStatusCommand(CLI::App* app, Action* action) {
  auto options = std::make_shared<StatusOptions>();
  CLI::App* command = app->add_subcommand("status", "Show owners and sessions of a running dmuond");
  AddAddressOption(command, &options->address);
  command->add_flag("--json", options->json, "print JSON");
  command->callback([options, action] { *action = [options] { return PrintStatus(*options); }; });
}

}  // namespace dmuon::cli
