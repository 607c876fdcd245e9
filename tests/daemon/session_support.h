// A SessionControl over two owners and two trainers, driven message by message.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "daemon/coordinator/session_control.h"
#include "tests/daemon/expect_text.h"
#include "tests/daemon/recording_host.h"

namespace dmuon::test {

inline constexpr char kTwoParameters[] = R"({"parameters": [{"name": "a", "shape": [4, 2]},
                                                            {"name": "b", "shape": [2, 2]}]})";

// Attach as a trainer with pid 100 + number on host "node" would send it.
inline v1::AttachRequest AttachOf(uint32_t trainer, uint64_t session = 1) {
  v1::AttachRequest request;
  request.set_session(session);
  request.set_trainer(trainer);
  request.set_host_id("node");
  request.set_pid(100 + trainer);
  request.set_channel(v1::CHANNEL_GRPC);
  request.set_mpi_rank(-1);
  request.set_contribution(v1::CONTRIBUTION_PARTIAL);
  request.add_parameters("a");
  request.add_parameters("b");
  return request;
}

inline v1::OwnerMessage AcknowledgeOf(uint64_t request, const std::string& error = "") {
  v1::OwnerMessage message;
  message.mutable_acknowledge()->set_request(request);
  message.mutable_acknowledge()->set_error(error);
  return message;
}

inline v1::OwnerMessage InitialDoneOf(uint64_t session, const std::string& error = "") {
  v1::OwnerMessage message;
  message.mutable_initial_values_done()->set_session(session);
  message.mutable_initial_values_done()->set_error(error);
  return message;
}

class SessionTest : public testing::Test {
 protected:
  using Kind = v1::OwnerMessage;
  using State = SessionControl::State;

  SessionTest() {
    SessionSpec spec = ParseSessionSpec(kTwoParameters);
    scheduler::PlanOptions options;
    options.owners = 2;
    scheduler::Plan plan = scheduler::MakePlan(spec, options);
    plan_hash_ = scheduler::PlanHash(plan);
    session_.emplace(host_, SessionControl::Setup{1, 2, 60.0, 30.0}, std::move(spec),
                     std::move(plan));
  }

  // Owners acknowledge everything that asks for it.
  void AcknowledgeAll() {
    for (const v1::OwnerMessage& message : host_.Take()) {
      uint64_t request = message.has_start_session() ? message.start_session().request()
                         : message.has_add_trainer() ? message.add_trainer().request()
                                                     : 0;
      if (request == 0) continue;
      for (int owner : {0, 1}) session_->OnOwnerMessage(owner, AcknowledgeOf(request));
    }
  }
  Call StartAttach(const v1::AttachRequest& request, uint32_t ingress = 0) {
    Call call;
    session_->Attach(request, ingress, call.reply());
    return call;
  }
  Call Attach(const v1::AttachRequest& request, uint32_t ingress = 0) {
    Call call = StartAttach(request, ingress);
    AcknowledgeAll();
    return call;
  }
  Call WaitReady(uint32_t trainer) {
    v1::WaitReadyRequest request;
    request.set_trainer(trainer);
    Call call;
    session_->WaitReady(request, call.reply());
    return call;
  }
  Call Begin(uint32_t trainer, uint64_t step) {
    v1::BeginStepRequest request;
    request.set_trainer(trainer);
    request.set_step(step);
    Call call;
    session_->Begin(request, call.reply());
    return call;
  }
  Call Seal(uint32_t trainer, uint64_t generation, const std::vector<uint32_t>& absent = {}) {
    v1::SealStepRequest request;
    request.set_trainer(trainer);
    request.set_generation(generation);
    for (uint32_t parameter : absent) request.add_absent(parameter);
    Call call;
    session_->Seal(request, call.reply());
    return call;
  }
  Call Wait(uint32_t trainer, uint64_t generation) {
    v1::WaitStepRequest request;
    request.set_trainer(trainer);
    request.set_generation(generation);
    Call call;
    session_->Wait(request, call.reply());
    return call;
  }
  Call Detach(uint32_t trainer) {
    v1::DetachRequest request;
    request.set_trainer(trainer);
    Call call;
    session_->Detach(request, call.reply());
    return call;
  }
  // All trainers attached, all initial values there.
  void Run() {
    AcknowledgeAll();
    ASSERT_TRUE(Attach(AttachOf(0)).ok());
    ASSERT_TRUE(Attach(AttachOf(1)).ok());
    for (int owner : {0, 1}) session_->OnOwnerMessage(owner, InitialDoneOf(1));
    ASSERT_EQ(session_->state(), State::kRunning);
    host_.Take();
  }

  RecordingHost host_{2};
  std::string plan_hash_;
  std::optional<SessionControl> session_;
};

}  // namespace dmuon::test
