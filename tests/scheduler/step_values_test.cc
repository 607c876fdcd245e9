#include "scheduler/step_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/scheduler/spec_text.h"

namespace dmuon::scheduler {
namespace {

SessionSpec Spec() {
  return ParseSessionSpec(test::SpecText({test::ParameterText("w", "[4, 4]")},
                                         R"("groups": {"muon": {"lr": 0.5}, "slow": {}}, )"));
}

uint32_t GroupIndex(const SessionSpec& spec, const std::string& name) {
  for (uint32_t i = 0; i < spec.groups.size(); ++i) {
    if (spec.groups[i].name == name) {
      return i;
    }
  }
  ADD_FAILURE() << name;
  return 0;
}

TEST(StepValues, OverridesOnlyWhatIsSet) {
  const SessionSpec spec = Spec();
  GroupOverrides overrides;
  overrides.group = "muon";
  overrides.weight_decay = 0.25;
  overrides.momentum = 0.5;
  overrides.beta2 = 0.75;
  const Result<StepValues> values = StepValues::Make(spec, {overrides}, 8.0);
  ASSERT_TRUE(values.ok());
  const kernels::MuonValues muon = values.value().Muon(GroupIndex(spec, "muon"), 0.125);
  EXPECT_EQ(muon.lr, 0.5);
  EXPECT_EQ(muon.weight_decay, 0.25);
  EXPECT_EQ(muon.momentum, 0.5);
  EXPECT_EQ(muon.gradient_factor, 0.125);
  const kernels::AdamWValues adamw = values.value().AdamW(GroupIndex(spec, "muon"), 1.0);
  EXPECT_EQ(adamw.weight_decay, 0.25);
  EXPECT_EQ(adamw.beta1, 0.9);
  EXPECT_EQ(adamw.beta2, 0.75);
  EXPECT_EQ(values.value().Muon(GroupIndex(spec, "slow"), 1.0).momentum, 0.95);
  EXPECT_EQ(values.value().grad_scale(), 8.0);
}

std::string Refusal(const std::vector<GroupOverrides>& overrides, double grad_scale) {
  const Result<StepValues> values = StepValues::Make(Spec(), overrides, grad_scale);
  EXPECT_FALSE(values.ok());
  EXPECT_EQ(values.status().code(), StatusCode::kInvalidArgument);
  return values.status().message();
}

TEST(StepValues, RefusalsNameGroupAndValue) {
  GroupOverrides negative;
  negative.group = "muon";
  negative.lr = -0.5;
  EXPECT_NE(Refusal({negative}, 1.0).find("groups.muon.lr: -0.5"), std::string::npos);
  GroupOverrides large;
  large.group = "slow";
  large.momentum = 1.0;
  EXPECT_NE(Refusal({large}, 1.0).find("groups.slow.momentum: 1.0"), std::string::npos);
  GroupOverrides not_a_number;
  not_a_number.group = "slow";
  not_a_number.weight_decay = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(Refusal({not_a_number}, 1.0).find("groups.slow.weight_decay"), std::string::npos);
  EXPECT_NE(Refusal({{"nobody"}}, 1.0).find("nobody"), std::string::npos);
  EXPECT_NE(Refusal({{"slow"}, {"slow"}}, 1.0).find("twice"), std::string::npos);
  for (const double scale : {0.0, -1.0, std::numeric_limits<double>::infinity()}) {
    EXPECT_NE(Refusal({}, scale).find("grad_scale"), std::string::npos);
  }
}

TEST(StepValues, ScalesOnceForMeanAndSum) {
  EXPECT_EQ(ReductionFactor(Reduce::kMean, 4, 2.0), 0.125F);
  EXPECT_EQ(ReductionFactor(Reduce::kSum, 4, 2.0), 0.5F);
}

// cases.md row 17: squared norms 9 and 16 give norm 5.
TEST(StepValues, ClipsAtTheNormOfEverything) {
  const double squared[] = {9.0, 16.0};
  const double norm = GradientNorm(squared);
  EXPECT_EQ(norm, 5.0);
  EXPECT_EQ(ClipFactor(2.5, norm), 0.5);
  EXPECT_EQ(ClipFactor(5.0, norm), 1.0);
  EXPECT_EQ(ClipFactor(10.0, norm), 1.0);
  EXPECT_EQ(ClipFactor(std::nullopt, norm), 1.0);
  EXPECT_EQ(ClipFactor(1.0, 0.0), 1.0);
}

}  // namespace
}  // namespace dmuon::scheduler
