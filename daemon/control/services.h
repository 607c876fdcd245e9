// The gRPC services of a node's first owner: thin, everything that matters happens in the engine.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <string>

#include "daemon/control/control_port.h"
#include "dmuon/v1/admin.grpc.pb.h"
#include "dmuon/v1/control.grpc.pb.h"
#include "dmuon/v1/data.grpc.pb.h"

namespace dmuon {

// Calls of the coordinator, waited for on gRPC's threads. Ends early when the caller goes away or
// the server stops.
class Relay {
 public:
  explicit Relay(ControlPort& port) : port_(port) {}

  grpc::Status Call(grpc::ServerContext* context, const std::string& method,
                    const google::protobuf::Message& request, google::protobuf::Message* reply);
  ControlPort& port() { return port_; }
  void Stop() { stopping_ = true; }
  bool stopping() const { return stopping_; }

 private:
  ControlPort& port_;
  std::atomic<bool> stopping_{false};
};

class ControlService final : public v1::Control::Service {
 public:
  explicit ControlService(Relay& relay) : relay_(relay) {}

  grpc::Status OpenSession(grpc::ServerContext*, const v1::OpenSessionRequest*,
                           v1::OpenSessionReply*) override;
  grpc::Status Attach(grpc::ServerContext*, const v1::AttachRequest*, v1::AttachReply*) override;
  grpc::Status Hold(grpc::ServerContext*, const v1::HoldRequest*,
                    grpc::ServerWriter<v1::HoldEvent>*) override;
  grpc::Status WaitReady(grpc::ServerContext*, const v1::WaitReadyRequest*,
                         v1::WaitReadyReply*) override;
  grpc::Status BeginStep(grpc::ServerContext*, const v1::BeginStepRequest*,
                         v1::BeginStepReply*) override;
  grpc::Status SealStep(grpc::ServerContext*, const v1::SealStepRequest*,
                        v1::SealStepReply*) override;
  grpc::Status WaitStep(grpc::ServerContext*, const v1::WaitStepRequest*, v1::StepReport*) override;
  grpc::Status Detach(grpc::ServerContext*, const v1::DetachRequest*, v1::DetachReply*) override;

 private:
  Relay& relay_;
};

class AdminService final : public v1::Admin::Service {
 public:
  explicit AdminService(Relay& relay) : relay_(relay) {}

  grpc::Status Status(grpc::ServerContext*, const v1::StatusRequest*, v1::StatusReply*) override;
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest*, v1::DrainReply*) override;

 private:
  Relay& relay_;
};

// Bulk data of the `grpc` channel.
class DataService final : public v1::Data::Service {
 public:
  explicit DataService(Relay& relay) : relay_(relay) {}

  grpc::Status Push(grpc::ServerContext*, grpc::ServerReader<v1::Chunk>*, v1::PushReply*) override;
  grpc::Status Fetch(grpc::ServerContext*, const v1::FetchRequest*,
                     grpc::ServerWriter<v1::Chunk>*) override;

 private:
  Relay& relay_;
};

grpc::Status ToGrpc(const dmuon::Status& status);

}  // namespace dmuon
