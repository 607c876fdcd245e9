// A StepControl over two owners and two trainers, driven message by message.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "daemon/coordinator/step_control.h"
#include "tests/daemon/expect_text.h"
#include "tests/daemon/recording_host.h"

namespace dmuon::test {

class StepTest : public testing::Test {
 protected:
  using Kind = v1::OwnerMessage;

  explicit StepTest(const std::string& top = "")
      : spec_(ParseSessionSpec("{" + top + R"("parameters": [
          {"name": "a", "shape": [2, 2]}, {"name": "b", "shape": [2, 2]},
          {"name": "c", "shape": [3]}]})")),
        steps_(host_, {9, &spec_, 2, 60.0}) {}

  Call Begin(uint32_t trainer, uint64_t step, const std::map<std::string, double>& lr = {},
             double grad_scale = 0) {
    v1::BeginStepRequest request;
    request.set_session(9);
    request.set_trainer(trainer);
    request.set_step(step);
    request.set_grad_scale(grad_scale);
    for (const auto& [group, value] : lr) {
      v1::GroupValues& values = *request.add_groups();
      values.set_group(group);
      values.set_lr(value);
    }
    Call call;
    steps_.Begin(request, call.reply());
    return call;
  }
  Call Seal(uint32_t trainer, uint64_t generation, const std::set<uint32_t>& absent = {}) {
    v1::SealStepRequest request;
    request.set_trainer(trainer);
    request.set_generation(generation);
    Call call;
    steps_.Seal(request, absent, call.reply());
    return call;
  }
  Call Wait(uint32_t trainer, uint64_t generation) {
    v1::WaitStepRequest request;
    request.set_trainer(trainer);
    request.set_generation(generation);
    Call call;
    steps_.Wait(request, call.reply());
    return call;
  }

  // Both trainers begin `step` and, unless told otherwise, seal it. Returns the generation.
  uint64_t BeginBoth(uint64_t step) {
    EXPECT_TRUE(Begin(0, step).ok());
    EXPECT_TRUE(Begin(1, step).ok());
    return steps_.generation();
  }
  uint64_t SealBoth(uint64_t step, const std::set<uint32_t>& absent = {}) {
    uint64_t generation = BeginBoth(step);
    EXPECT_TRUE(Seal(0, generation, absent).ok());
    EXPECT_TRUE(Seal(1, generation, absent).ok());
    return generation;
  }

  void Reduced(int owner, uint64_t generation, const std::map<uint32_t, double>& norms = {},
               int not_finite = -1) {
    v1::Reduced message;
    message.set_generation(generation);
    for (const auto& [piece, squared] : norms) {
      v1::PieceNorm& norm = *message.add_norms();
      norm.set_piece(piece);
      norm.set_squared_sum(squared);
    }
    if (not_finite >= 0) {
      message.set_not_finite(spec_.parameters[not_finite].name);
      message.set_not_finite_parameter(not_finite);
    }
    steps_.OnReduced(owner, message);
  }
  void Ready(int owner, uint64_t generation, uint64_t done = 1, uint64_t expected = 1,
             int not_finite = -1, double busy_s = 0) {
    v1::StepReady message;
    message.set_generation(generation);
    message.set_muon_matrices_expected(expected);
    message.set_busy_s(busy_s);
    if (done > 0) {
      v1::Orthogonalised& count = *message.add_orthogonalised();
      count.set_rule("muon");
      count.set_form("direct");
      count.set_precision("fp32");
      count.set_matrices(done);
    }
    if (not_finite >= 0) {
      message.set_not_finite(spec_.parameters[not_finite].name);
      message.set_not_finite_parameter(not_finite);
    }
    steps_.OnReady(owner, message);
  }
  void Commit(uint64_t step) {
    uint64_t generation = SealBoth(step);
    for (int owner : {0, 1}) {
      Reduced(owner, generation);
      Ready(owner, generation);
    }
    ASSERT_FALSE(steps_.active());
  }
  // The outcome that owners were told, of which there must be exactly one.
  v1::StepOutcome Finished() {
    auto messages = host_.Take(Kind::kFinishStep);
    EXPECT_EQ(messages.size(), 1U);
    return messages.empty() ? v1::STEP_OUTCOME_UNSPECIFIED : messages[0].finish_step().outcome();
  }
  v1::StepReport Report(uint64_t generation) {
    Call call = Wait(0, generation);
    EXPECT_TRUE(call.ok());
    return call.As<v1::StepReport>();
  }

  RecordingHost host_{2};
  SessionSpec spec_;
  StepControl steps_;
};

}  // namespace dmuon::test
