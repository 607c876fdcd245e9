// gRPC behind Connection, for the .cc files that make calls.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>

#include "client/cpp/connection.h"
#include "dmuon/v1/control.grpc.pb.h"
#include "dmuon/v1/data.grpc.pb.h"
#include "proto/status.h"

namespace dmuon::client {

// Deadlines in seconds. Every call has one, except the lease, which lives as long as the session.
inline constexpr double kCallSeconds = 120.0;        // planning a large session included
inline constexpr double kTransferSeconds = 600.0;    // one bucket, or all published ones
inline constexpr double kStepSeconds = 24 * 3600.0;  // the daemon's own timeout comes first

struct Rpc {
  pid_t process = 0;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Control::Stub> control;
  std::unique_ptr<v1::Data::Stub> data;
};

// `what` says what was being done; it starts the message.
Status FromGrpc(const grpc::Status& status, const std::string& what);

inline void SetDeadline(grpc::ClientContext* context, double seconds) {
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
}

// One unary call of the control service: Call(connection, &v1::Control::Stub::Attach, ...).
template <typename Request, typename Reply>
Status Call(Connection& connection,
            grpc::Status (v1::Control::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
            const Request& request, Reply* reply, const std::string& what,
            double seconds = kCallSeconds) {
  if (Status status = connection.CheckProcess(); !status.ok()) return status;
  grpc::ClientContext context;
  SetDeadline(&context, seconds);
  return FromGrpc((connection.rpc().control.get()->*method)(&context, request, reply), what);
}

}  // namespace dmuon::client
