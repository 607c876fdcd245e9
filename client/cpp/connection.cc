#include "client/cpp/connection.h"

#include <unistd.h>

#include <utility>

#include "client/cpp/rpc.h"

namespace dmuon::client {

std::string DefaultAddress() { return "unix:/tmp/dmuond-" + std::to_string(getuid()) + ".sock"; }

Status FromGrpc(const grpc::Status& status, const std::string& what) {
  const std::string& details = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return Status::Ok();
    case grpc::StatusCode::UNAVAILABLE:
      return {StatusCode::kUnavailable, what + ": the daemon does not answer (" +
                                            (details.empty() ? "connection closed" : details) +
                                            "): see its log for why it ended"};
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::UNIMPLEMENTED:
      return {static_cast<StatusCode>(status.error_code()), what + ": " + details};
    default:
      return Status::Internal(what + ": " + details + " (gRPC code " +
                              std::to_string(status.error_code()) + ")");
  }
}

Result<std::unique_ptr<Connection>> Connection::Open(const std::string& address, double timeout_s) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetMaxReceiveMessageSize(-1);
  auto rpc = std::make_unique<Rpc>();
  rpc->process = getpid();
  rpc->channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  const auto deadline = std::chrono::system_clock::now() +
                        std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000));
  if (!rpc->channel->WaitForConnected(deadline)) {
    char seconds[32];
    std::snprintf(seconds, sizeof(seconds), "%g", timeout_s);
    return Status(StatusCode::kUnavailable,
                  "no dmuond answers at " + address + " within " + seconds +
                      " s: start one (mpirun -np 1 dmuond) or give the address that it printed");
  }
  rpc->control = v1::Control::NewStub(rpc->channel);
  rpc->data = v1::Data::NewStub(rpc->channel);
  return std::unique_ptr<Connection>(new Connection(std::move(rpc)));
}

Connection::Connection(std::unique_ptr<Rpc> rpc) : rpc_(std::move(rpc)) {}
Connection::~Connection() = default;

Status Connection::CheckProcess() const {
  if (getpid() == rpc_->process) return Status::Ok();
  return Status::FailedPrecondition("this session belongs to process " +
                                    std::to_string(rpc_->process) +
                                    " and cannot be used in process " + std::to_string(getpid()) +
                                    ", a fork of it: open the session after forking");
}

}  // namespace dmuon::client
