#include "kernels/options.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/step_factors.h"
#include "tests/kernels/reference.h"

namespace dmuon::kernels::testing {
namespace {

// Case 8, and the scales of cases 10 and 15.
TEST(ScaleFactor, KnownValues) {
  EXPECT_DOUBLE_EQ(ScaleFactor(UpdateScale::kOriginal, 1024, 4096), 1);
  EXPECT_DOUBLE_EQ(ScaleFactor(UpdateScale::kOriginal, 4096, 1024), 2);
  EXPECT_DOUBLE_EQ(ScaleFactor(UpdateScale::kMatchRmsAdamW, 1024, 4096), 12.8);
  EXPECT_DOUBLE_EQ(ScaleFactor(UpdateScale::kMatchRmsAdamW, 4096, 1024), 12.8);
  EXPECT_DOUBLE_EQ(ScaleFactor(UpdateScale::kSpectralMax, 1024, 4096), 64);
  EXPECT_DOUBLE_EQ(ScaleFactor(UpdateScale::kSpectralMax, 4096, 1024), 64);
  EXPECT_DOUBLE_EQ(ScaleFactor(UpdateScale::kSpectral, 1024, 4096), .5);
  EXPECT_DOUBLE_EQ(ScaleFactor(UpdateScale::kSpectral, 4096, 1024), 2);
  EXPECT_DOUBLE_EQ(ScaleFactor(UpdateScale::kNone, 3, 4), 1);
  EXPECT_NEAR(ScaleFactor(UpdateScale::kMatchRmsAdamW, 64, 288), 3.394113, 1e-6);
  EXPECT_NEAR(ScaleFactor(UpdateScale::kMatchRmsAdamW, 2, 2), .282843, 1e-6);
}

// The counts stated in the design: with symmetric products at half price.
TEST(UsefulFlops, StatedCounts) {
  const double m = 100;
  const double n = 700;
  NewtonSchulzOptions options;
  options.coefficients = PolarExpress();
  EXPECT_DOUBLE_EQ(UsefulFlops(100, 700, options), 5 * (3 * m * m * n + m * m * m));
  EXPECT_DOUBLE_EQ(UsefulFlops(700, 100, options), 5 * (3 * m * m * n + m * m * m));
  options.form = Form::kGram;
  options.restart = {2};
  EXPECT_DOUBLE_EQ(UsefulFlops(100, 700, options), 6 * m * m * n + 14 * m * m * m);
  options.restart = {1, 3};
  EXPECT_DOUBLE_EQ(UsefulFlops(700, 100, options), 9 * m * m * n + 11 * m * m * m);
}

TEST(DefaultForm, GramIsForWideMatrices) {
  for (const auto type : {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16}) {
    EXPECT_EQ(DefaultForm(1024, 1024, type), Form::kDirect);
    EXPECT_EQ(DefaultForm(1024, 4096, type), Form::kGram);
    EXPECT_EQ(DefaultForm(4096, 1024, type), Form::kGram);
    EXPECT_EQ(DefaultForm(16, 4096, type), Form::kDirect);
    EXPECT_EQ(DefaultForm(1, 1, type), Form::kDirect);
  }
}

// Where the rule says Gram, Gram must be the cheaper one.
TEST(DefaultForm, GramIsCheaperWhereItIsTheDefault) {
  for (const auto type : {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16}) {
    for (const NamedCoefficients& set : CoefficientSets()) {
      for (int64_t n = 64; n <= 4096; n += 48) {
        NewtonSchulzOptions gram;
        gram.coefficients = set.values;
        gram.form = Form::kGram;
        gram.restart = DefaultRestart(512, n, type, set.values);
        NewtonSchulzOptions direct = gram;
        direct.form = Form::kDirect;
        if (DefaultForm(512, n, type) == Form::kGram) {
          EXPECT_LT(UsefulFlops(512, n, gram), UsefulFlops(512, n, direct)) << set.name << n;
        }
      }
    }
  }
}

TEST(DefaultRestart, IsAsMeasured) {
  using Restart = std::vector<int>;
  EXPECT_EQ(DefaultRestart(256, 1024, ElementType::kFloat32, PolarExpress()), Restart({2}));
  EXPECT_EQ(DefaultRestart(256, 1024, ElementType::kFloat32, You()), Restart({2}));
  EXPECT_EQ(DefaultRestart(256, 1024, ElementType::kFloat32, KellerJordan()), Restart({3}));
  EXPECT_EQ(DefaultRestart(256, 1024, ElementType::kFloat16, PolarExpress()), Restart({2}));
  EXPECT_EQ(DefaultRestart(256, 1024, ElementType::kFloat16, KellerJordan()), Restart({2, 4}));
  for (const NamedCoefficients& set : CoefficientSets()) {
    EXPECT_EQ(DefaultRestart(256, 1024, ElementType::kBFloat16, set.values), Restart());
  }
  EXPECT_EQ(DefaultRestart(8, 8, ElementType::kFloat32, {{3.0, -3.0, 1.0}}), Restart());
  // A long list is cut again and again.
  EXPECT_EQ(DefaultRestart(8, 8, ElementType::kFloat32, Coefficients(7, {5.0, -5.0, 1.0})),
            Restart({2, 4, 6}));
}

TEST(NormalizeFactors, StayRepresentable) {
  for (const double norm : {1e-45, 1e-38, 1e-20, 1.0, 1e20, 1e38, 1e44}) {
    const NormalizeFactors factors = NormalizeFactorsOf(Normalize::kStrict, 0.0, norm);
    EXPECT_GT(factors.divisor, 1e-37F) << norm;
    EXPECT_LT(factors.divisor, 1e38F) << norm;
    EXPECT_NEAR(norm * factors.prescale / factors.divisor, 1.0, 1e-6) << norm;
  }
  EXPECT_EQ(NormalizeFactorsOf(Normalize::kStrict, 0.0, 0.0).prescale, 0.0F);
  EXPECT_EQ(NormalizeFactorsOf(Normalize::kEpsAdd, 0.0, 0.0).prescale, 0.0F);
  EXPECT_EQ(NormalizeFactorsOf(Normalize::kEpsAdd, 1.0, 3.0).divisor, 4.0F);
  EXPECT_EQ(NormalizeFactorsOf(Normalize::kEpsMax, 1.0, 3.0).divisor, 3.0F);
  EXPECT_EQ(NormalizeFactorsOf(Normalize::kEpsMax, 5.0, 3.0).divisor, 5.0F);
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isnan(NormalizeFactorsOf(Normalize::kStrict, 0.0, infinity).divisor));
}

TEST(Names, AreTheSpecs) {
  EXPECT_EQ(NameOf(ElementType::kFloat32), "fp32");
  EXPECT_EQ(NameOf(ElementType::kBFloat16), "bf16");
  EXPECT_EQ(NameOf(ElementType::kFloat16), "fp16");
  EXPECT_EQ(NameOf(Form::kDirect), "direct");
  EXPECT_EQ(NameOf(Form::kGram), "gram");
}

}  // namespace
}  // namespace dmuon::kernels::testing
