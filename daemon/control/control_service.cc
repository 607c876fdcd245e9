#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "daemon/control/services.h"

namespace dmuon {
namespace {

constexpr auto kSlice = std::chrono::milliseconds(200);  // how often waits look around

}  // namespace

grpc::Status ToGrpc(const dmuon::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), status.message()};
}

grpc::Status Relay::Call(grpc::ServerContext* context, const std::string& method,
                         const google::protobuf::Message& request,
                         google::protobuf::Message* reply) {
  using Answer = std::pair<Status, std::string>;
  auto promise = std::make_shared<std::promise<Answer>>();
  std::future<Answer> future = promise->get_future();
  port_.Submit(method, request.SerializeAsString(),
               [promise](const Status& status, const std::string& bytes) {
                 promise->set_value({status, bytes});
               });
  while (future.wait_for(kSlice) != std::future_status::ready) {
    if (context->IsCancelled()) return {grpc::StatusCode::CANCELLED, "the caller went away"};
    if (stopping_) return {grpc::StatusCode::UNAVAILABLE, "the daemon is shutting down"};
  }
  Answer answer = future.get();
  if (answer.first.ok() && !reply->ParseFromString(answer.second)) {
    return {grpc::StatusCode::INTERNAL, "the answer to " + method + " does not parse"};
  }
  return ToGrpc(answer.first);
}

grpc::Status ControlService::OpenSession(grpc::ServerContext* context,
                                         const v1::OpenSessionRequest* request,
                                         v1::OpenSessionReply* reply) {
  return relay_.Call(context, "OpenSession", *request, reply);
}

grpc::Status ControlService::Attach(grpc::ServerContext* context, const v1::AttachRequest* request,
                                    v1::AttachReply* reply) {
  return relay_.Call(context, "Attach", *request, reply);
}

grpc::Status ControlService::WaitReady(grpc::ServerContext* context,
                                       const v1::WaitReadyRequest* request,
                                       v1::WaitReadyReply* reply) {
  return relay_.Call(context, "WaitReady", *request, reply);
}

grpc::Status ControlService::BeginStep(grpc::ServerContext* context,
                                       const v1::BeginStepRequest* request,
                                       v1::BeginStepReply* reply) {
  return relay_.Call(context, "BeginStep", *request, reply);
}

grpc::Status ControlService::SealStep(grpc::ServerContext* context,
                                      const v1::SealStepRequest* request,
                                      v1::SealStepReply* reply) {
  return relay_.Call(context, "SealStep", *request, reply);
}

grpc::Status ControlService::WaitStep(grpc::ServerContext* context,
                                      const v1::WaitStepRequest* request, v1::StepReport* reply) {
  return relay_.Call(context, "WaitStep", *request, reply);
}

grpc::Status ControlService::Detach(grpc::ServerContext* context, const v1::DetachRequest* request,
                                    v1::DetachReply* reply) {
  return relay_.Call(context, "Detach", *request, reply);
}

grpc::Status ControlService::Hold(grpc::ServerContext* context, const v1::HoldRequest* request,
                                  grpc::ServerWriter<v1::HoldEvent>* writer) {
  Ingress& ingress = relay_.port().ingress();
  for (;;) {
    std::string reason;
    switch (ingress.WaitHold(request->session(), request->trainer(), &reason)) {
      case Ingress::HoldState::kDetached:
        return grpc::Status::OK;
      case Ingress::HoldState::kEnded: {
        v1::HoldEvent event;
        event.set_message(reason);
        writer->Write(event);
        return grpc::Status::OK;
      }
      case Ingress::HoldState::kHeld:
        break;
    }
    if (relay_.stopping()) return {grpc::StatusCode::UNAVAILABLE, "the daemon is shutting down"};
    if (context->IsCancelled()) {
      v1::DetachRequest lost;
      lost.set_session(request->session());
      lost.set_trainer(request->trainer());
      relay_.port().Submit("TrainerLost", lost.SerializeAsString(),
                           [](const Status&, const std::string&) {});
      return {grpc::StatusCode::CANCELLED, "the trainer went away"};
    }
  }
}

grpc::Status AdminService::Status(grpc::ServerContext* context, const v1::StatusRequest* request,
                                  v1::StatusReply* reply) {
  return relay_.Call(context, "Status", *request, reply);
}

grpc::Status AdminService::Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                                 v1::DrainReply* reply) {
  return relay_.Call(context, "Drain", *request, reply);
}

}  // namespace dmuon
