#include <gtest/gtest.h>

#include <cmath>

#include "proto/session_spec.h"

namespace dmuon {
namespace {

MuonSettings SettingsOf(const std::string& groups_and_preset) {
  const SessionSpec spec = ParseSessionSpec("{" + groups_and_preset +
                                            R"("parameters": [{"name": "w", "shape": [2, 2]}]})");
  return spec.groups.at(static_cast<size_t>(spec.parameters.at(0).group)).muon;
}

struct Expected {
  const char* preset;
  MomentumForm momentum_form;
  UpdateScale scale;
  Normalize normalize;
  double first_coefficient;
  double lr;
  double weight_decay;
};

class PresetTest : public testing::TestWithParam<Expected> {};

TEST_P(PresetTest, IsTheTable) {
  const Expected& expected = GetParam();
  const MuonSettings muon = SettingsOf(R"("preset": ")" + std::string(expected.preset) + R"(", )");
  EXPECT_EQ(muon.momentum_form, expected.momentum_form);
  EXPECT_EQ(muon.scale, expected.scale);
  EXPECT_EQ(muon.normalize, expected.normalize);
  EXPECT_EQ(muon.eps, 1e-7);
  EXPECT_NEAR(muon.coefficients.at(0)[0], expected.first_coefficient, 1e-12);
  EXPECT_EQ(muon.coefficients.size(), 5U);
  EXPECT_EQ(muon.lr, expected.lr);
  EXPECT_EQ(muon.weight_decay, expected.weight_decay);
  EXPECT_EQ(muon.momentum, 0.95);
  EXPECT_TRUE(muon.nesterov);
}

constexpr double kPolar = 8.28721201814563 / 1.05;

INSTANTIATE_TEST_SUITE_P(
    Table, PresetTest,
    testing::Values(Expected{"dmuon", MomentumForm::kSgd, UpdateScale::kMatchRmsAdamW,
                             Normalize::kStrict, kPolar, 0.02, 0.0},
                    Expected{"keller_jordan", MomentumForm::kEma, UpdateScale::kOriginal,
                             Normalize::kEpsAdd, 3.4445, 0.02, 0.0},
                    Expected{"moonlight", MomentumForm::kSgd, UpdateScale::kMatchRmsAdamW,
                             Normalize::kEpsAdd, 3.4445, 1e-3, 0.1},
                    Expected{"torch", MomentumForm::kEma, UpdateScale::kOriginal,
                             Normalize::kEpsMax, 3.4445, 1e-3, 0.1},
                    Expected{"gram_newton_schulz", MomentumForm::kSgd, UpdateScale::kMatchRmsAdamW,
                             Normalize::kEpsAdd, kPolar, 1e-3, 0.1}));

TEST(Presets, DefaultIsDmuon) {
  EXPECT_EQ(SettingsOf("").lr, 0.02);
  EXPECT_EQ(SettingsOf("").normalize, Normalize::kStrict);
}

TEST(Presets, SingleOptionsOverride) {
  const MuonSettings muon = SettingsOf(
      R"("preset": "torch", "groups": {"muon": {"scale": "none", "nesterov": false}}, )");
  EXPECT_EQ(muon.scale, UpdateScale::kNone);
  EXPECT_FALSE(muon.nesterov);
  EXPECT_EQ(muon.momentum_form, MomentumForm::kEma);
}

// Composes the scalar polynomials: what NS does to one singular value.
double Apply(const MuonSettings& muon, double sigma) {
  for (const auto& [a, b, c] : muon.coefficients) {
    sigma = a * sigma + b * std::pow(sigma, 3) + c * std::pow(sigma, 5);
  }
  return sigma;
}

// cases.md row 1: singular values 3/5 and 4/5.
TEST(Presets, CoefficientSetsGiveTheKnownValues) {
  const auto set = [](const std::string& name) {
    return SettingsOf(R"("groups": {"muon": {"coefficients": ")" + name + R"("}}, )");
  };
  EXPECT_NEAR(Apply(set("polar_express"), 0.6), 1.105790, 1e-6);
  EXPECT_NEAR(Apply(set("polar_express"), 0.8), 1.123382, 1e-6);
  EXPECT_NEAR(Apply(set("you"), 0.6), 1.018629, 1e-6);
  EXPECT_NEAR(Apply(set("you"), 0.8), 1.005632, 1e-6);
  EXPECT_NEAR(Apply(set("keller_jordan"), 0.6), 0.722876, 1e-6);
  EXPECT_NEAR(Apply(set("keller_jordan"), 0.8), 1.119204, 1e-6);
}

}  // namespace
}  // namespace dmuon
