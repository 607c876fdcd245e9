#include "scheduler/owned_state.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "tests/scheduler/spec_text.h"

namespace dmuon::scheduler {
namespace {

using test::ParameterText;

// Two 2 x 2 matrices, a vector of three; fp32 direct, lr .1, no decay unless stated.
class OwnedStateTest : public testing::Test {
 protected:
  void Make(const std::string& muon_options, int owners = 1, uint32_t owner = 0) {
    const std::string groups = R"("groups": {"muon": {"lr": 0.1, "precision": "fp32",
        "form": "direct")" + muon_options +
                               R"(}, "adamw": {"lr": 0.1, "weight_decay": 0}}, )";
    const SessionSpec spec = ParseSessionSpec(test::SpecText(
        {ParameterText("a", "[2, 2]"), ParameterText("b", "[2, 2]"), ParameterText("c", "[3]")},
        groups));
    PlanOptions options;
    options.owners = owners;
    plan_ = MakePlan(spec, options);
    device_ = kernels::MakeCpuDevice({1});
    state_ = std::make_unique<OwnedState>(*device_, plan_, owner);
  }

  void SetGradient(uint32_t piece, const std::vector<float>& values) {
    device_->CopyToDevice(state_->gradient(piece), values.data(),
                          static_cast<int64_t>(values.size() * sizeof(float)));
  }

  std::vector<float> Get(uint32_t piece, StateTensor tensor) {
    std::vector<float> values(static_cast<size_t>(plan_.pieces[piece].geometry.elements()));
    state_->CopyToHost(piece, tensor, values.data());
    return values;
  }

  // Momentum .95, no clipping.
  bool Update(uint32_t piece) {
    bool finite = false;
    const kernels::MuonValues values{0.1, 0.0, 0.95, 1.0};
    state_->UpdateBatch(std::array{piece}, values, std::span(&finite, 1));
    return finite;
  }

  std::unique_ptr<kernels::Device> device_;
  Plan plan_;
  std::unique_ptr<OwnedState> state_;
};

TEST_F(OwnedStateTest, CommitSwapsExactlyWhatWasUpdated) {
  Make(R"(, "scale": "none")");
  SetGradient(0, {3, 0, 0, 4});
  SetGradient(1, {3, 0, 0, 4});
  ASSERT_TRUE(Update(0));
  EXPECT_EQ(Get(0, StateTensor::kMaster), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(Get(0, StateTensor::kMomentum), (std::vector<float>{0, 0, 0, 0}));
  state_->Commit();
  // cases.md row 1: NS(diag(3, 4)) = diag(1.105790, 1.123382); the step is -lr of it.
  const std::vector<float> master = Get(0, StateTensor::kMaster);
  EXPECT_NEAR(master[0], -0.1105790, 2e-6);
  EXPECT_NEAR(master[3], -0.1123382, 2e-6);
  EXPECT_EQ(Get(0, StateTensor::kMomentum), (std::vector<float>{3, 0, 0, 4}));
  EXPECT_EQ(Get(1, StateTensor::kMaster), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(state_->step_count(0), 1);
  EXPECT_EQ(state_->step_count(1), 0);
}

TEST_F(OwnedStateTest, DiscardForgets) {
  Make("");
  state_->SetMaster(0, std::array{1.0F, 2.0F, 3.0F, 4.0F}.data());
  SetGradient(0, {3, 0, 0, 4});
  SetGradient(2, {1, 2, 3});
  ASSERT_TRUE(Update(0));
  ASSERT_TRUE(state_->UpdateElementwise(2, {0.1}));
  state_->Discard();
  state_->Commit();
  EXPECT_EQ(Get(0, StateTensor::kMaster), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(Get(0, StateTensor::kMomentum), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(Get(2, StateTensor::kExpAvgSq), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(state_->step_count(2), 0);
}

TEST_F(OwnedStateTest, UpdatingTwiceBeforeCommitCountsOnce) {
  Make("");
  SetGradient(0, {3, 0, 0, 4});
  ASSERT_TRUE(Update(0));
  ASSERT_TRUE(Update(0));
  state_->Commit();
  EXPECT_EQ(state_->step_count(0), 1);
  EXPECT_EQ(Get(0, StateTensor::kMomentum), (std::vector<float>{3, 0, 0, 4}));
}

TEST_F(OwnedStateTest, CountsAdamWSteps) {
  Make("");
  // Bias correction makes the first steps of a constant gradient exactly lr (but for eps).
  SetGradient(2, {1, -2, 4});
  for (int step = 1; step <= 3; ++step) {
    ASSERT_TRUE(state_->UpdateElementwise(2, {0.1}));
    state_->Commit();
    EXPECT_EQ(state_->step_count(2), step);
    const std::vector<float> master = Get(2, StateTensor::kMaster);
    EXPECT_NEAR(master[0], -0.1 * step, 1e-5);
    EXPECT_NEAR(master[1], 0.1 * step, 1e-5);
    EXPECT_NEAR(master[2], -0.1 * step, 1e-5);
  }
}

TEST_F(OwnedStateTest, ReportsWhatIsNotFinite) {
  Make("");
  SetGradient(0, {3, 0, 0, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_FALSE(Update(0));
  SetGradient(2, {1, std::numeric_limits<float>::infinity(), 1});
  EXPECT_FALSE(state_->UpdateElementwise(2, {0.1}));
  state_->Discard();
  EXPECT_EQ(Get(2, StateTensor::kMaster), (std::vector<float>{0, 0, 0}));
}

TEST_F(OwnedStateTest, KeepsNarrowMomentum) {
  Make(R"(, "momentum_dtype": "bf16")");
  EXPECT_EQ(state_->TypeOf(0, StateTensor::kMomentum), DType::kBFloat16);
  EXPECT_EQ(state_->TypeOf(0, StateTensor::kMaster), DType::kFloat32);
  SetGradient(0, {3, 0, 0, 4});
  ASSERT_TRUE(Update(0));
  state_->Commit();
  uint16_t momentum[4];
  state_->CopyToHost(0, StateTensor::kMomentum, momentum);
  EXPECT_EQ(momentum[0], 0x4040);  // 3.0 in bf16
  EXPECT_EQ(momentum[3], 0x4080);  // 4.0
}

TEST_F(OwnedStateTest, ImportsWhatItExports) {
  Make("");
  const std::array<float, 3> moments = {1, 2, 3};
  state_->CopyFromHost(2, StateTensor::kExpAvg, moments.data());
  state_->SetStepCount(2, 7);
  EXPECT_EQ(Get(2, StateTensor::kExpAvg), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(state_->step_count(2), 7);
}

TEST_F(OwnedStateTest, HoldsOnlyItsOwnersPieces) {
  Make("", 3, 1);
  ASSERT_EQ(state_->pieces().size(), 1U);
  for (uint32_t piece = 0; piece < plan_.pieces.size(); ++piece) {
    EXPECT_EQ(state_->owns(piece), plan_.pieces[piece].owners.front() == 1U);
  }
}

}  // namespace
}  // namespace dmuon::scheduler
