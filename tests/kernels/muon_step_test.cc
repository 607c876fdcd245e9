// The Muon step on every backend, against the rules in fp64 and the known answers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/kernels/backends.h"
#include "tests/kernels/inputs.h"

namespace dmuon::kernels::testing {
namespace {

constexpr double kLimit = 1e-5;  // fp32, direct form

class MuonStep : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Backends, MuonStep, ::testing::ValuesIn(Backends()), BackendName);

Matrix Diagonal(double a, double b) { return Matrix(2, 2, {a, 0, 0, b}); }

MuonOptions OptionsWith(const Coefficients& coefficients) {
  MuonOptions options;
  options.scale = UpdateScale::kNone;
  options.newton_schulz = PlainOptions(coefficients);
  return options;
}

// Runs `steps` on the device and returns the update of the last one: master before - after.
Matrix LastUpdate(Device& device, const MuonOptions& options, const MuonValues& values,
                  const std::vector<Matrix>& gradients) {
  const Matrix zeros(gradients[0].rows, gradients[0].cols);
  MuonOutput state{zeros, zeros, true};
  Matrix before;
  for (const Matrix& gradient : gradients) {
    before = state.master;
    state = RunMuonStep(device, options, values, {{gradient, before, state.momentum}})[0];
  }
  Matrix update = before;
  for (std::size_t i = 0; i < update.values.size(); ++i) {
    update.values[i] -= state.master.values[i];
  }
  return update;
}

// Case 1.
TEST_P(MuonStep, KnownValues) {
  const Matrix v1 = Diagonal(3, 4);
  const struct {
    const Coefficients& coefficients;
    Matrix expected;
  } cases[] = {{PolarExpress(), Diagonal(1.105790, 1.123382)},
               {You(), Diagonal(1.018629, 1.005632)},
               {KellerJordan(), Diagonal(.722876, 1.119204)}};
  for (const auto& c : cases) {
    for (const Form form : {Form::kDirect, Form::kGram}) {
      NewtonSchulzOptions options = PlainOptions(c.coefficients);
      options.form = form;
      options.restart = {2};
      EXPECT_LE(RelativeError(RunNewtonSchulz(*device_, options, v1), c.expected), kLimit);
    }
  }
}

// Case 2.
TEST_P(MuonStep, KnownValuesOfOneRow) {
  const Matrix row(1, 2, {3, 4});
  const struct {
    const Coefficients& coefficients;
    Matrix expected;
  } cases[] = {{PolarExpress(), Matrix(1, 2, {.611417, .815222})},
               {You(), Matrix(1, 2, {.587007, .782676})},
               {KellerJordan(), Matrix(1, 2, {.417862, .557149})}};
  for (const auto& c : cases) {
    const NewtonSchulzOptions options = PlainOptions(c.coefficients);
    EXPECT_LE(RelativeError(RunNewtonSchulz(*device_, options, row), c.expected), kLimit);
    EXPECT_LE(
        RelativeError(RunNewtonSchulz(*device_, options, Transposed(row)), Transposed(c.expected)),
        kLimit);
  }
}

// Case 3: alone and among others.
TEST_P(MuonStep, ZeroGradientGivesExactlyZero) {
  const Matrix zero(24, 40);
  const Matrix a = MakeInput(InputClass::kGaussian, 24, 40, 1);
  const Matrix b = MakeInput(InputClass::kPowerLaw, 24, 40, 2);
  for (const Normalize normalize : {Normalize::kStrict, Normalize::kEpsAdd, Normalize::kEpsMax}) {
    for (const ElementType precision : {ElementType::kFloat32, ElementType::kBFloat16}) {
      NewtonSchulzOptions options = PlainOptions(PolarExpress());
      options.normalize = normalize;
      options.precision = precision;
      EXPECT_EQ(Frobenius(RunNewtonSchulz(*device_, options, zero)), 0.0);
      const auto batch = RunNewtonSchulz(*device_, options, {a, zero, b});
      EXPECT_EQ(Frobenius(batch[1]), 0.0);
      EXPECT_EQ(batch[0].values, RunNewtonSchulz(*device_, options, a).values);
      EXPECT_EQ(batch[2].values, RunNewtonSchulz(*device_, options, b).values);
    }
  }
}

// Case 4, and the same for powers of two to the ends of the normal range, where it is exact.
TEST_P(MuonStep, StrictIgnoresTheScale) {
  const NewtonSchulzOptions options = PlainOptions(PolarExpress());
  const Matrix expected = Diagonal(1.105790, 1.123382);
  for (int exponent = -30; exponent <= 30; ++exponent) {
    const Matrix u = Scaled(Diagonal(3, 4), std::pow(10.0, exponent));
    EXPECT_LE(RelativeError(RunNewtonSchulz(*device_, options, u), expected), kLimit) << exponent;
  }
  const Matrix u = Diagonal(1.5, 1.25);
  const Matrix plain = RunNewtonSchulz(*device_, options, u);
  for (const int exponent : {-126, -125, -100, -64, -60, 60, 100, 119, 120, 121, 127}) {
    const Matrix scaled = Scaled(u, std::ldexp(1.0, exponent));
    EXPECT_EQ(RunNewtonSchulz(*device_, options, scaled).values, plain.values) << exponent;
  }
}

// The norm of finite entries can be larger than fp32 holds.
TEST_P(MuonStep, StrictBearsNormsBeyondFloat32) {
  const NewtonSchulzOptions options = PlainOptions(PolarExpress());
  const Matrix u = MakeInput(InputClass::kGaussian, 20, 50, 4);
  const Matrix huge = Scaled(u, 0x1p124);
  EXPECT_LE(
      RelativeError(RunNewtonSchulz(*device_, options, huge), ReferenceNewtonSchulz(u, options)),
      kLimit);
}

// Case 5.
TEST_P(MuonStep, EpsAddMovesSmallInputs) {
  NewtonSchulzOptions options = PlainOptions(PolarExpress());
  options.normalize = Normalize::kEpsAdd;
  options.eps = 1e-7;
  const Matrix u(2, 3,
                 {1e-6 * 0.6 * 0.8, 0, 1e-6 * 0.6 * 0.6, 1e-6 * 0.8 * 0.8, 0, 1e-6 * 0.8 * 0.6});
  EXPECT_NEAR(Frobenius(RunNewtonSchulz(*device_, options, u)), .846235, kLimit);
}

TEST_P(MuonStep, EpsMaxLeavesLargerInputsAlone) {
  NewtonSchulzOptions options = PlainOptions(PolarExpress());
  const Matrix u = Scaled(Diagonal(3, 4), 1e-6);
  const Matrix strict = RunNewtonSchulz(*device_, options, u);
  options.normalize = Normalize::kEpsMax;
  options.eps = 1e-7;
  EXPECT_EQ(RunNewtonSchulz(*device_, options, u).values, strict.values);
  options.eps = 1e-3;
  EXPECT_LE(RelativeError(RunNewtonSchulz(*device_, options, u), ReferenceNewtonSchulz(u, options)),
            kLimit);
  EXPECT_LT(Frobenius(RunNewtonSchulz(*device_, options, u)), Frobenius(strict));
}

// Case 6.
TEST_P(MuonStep, OrientationDoesNotMatter) {
  for (const Form form : {Form::kDirect, Form::kGram}) {
    for (const ElementType precision : {ElementType::kFloat32, ElementType::kBFloat16}) {
      NewtonSchulzOptions options = PlainOptions(PolarExpress());
      options.form = form;
      options.restart = {2};
      options.precision = precision;
      const Matrix g = MakeInput(InputClass::kGaussian, 70, 133, 9);
      const Matrix wide = RunNewtonSchulz(*device_, options, g);
      const Matrix upright = RunNewtonSchulz(*device_, options, Transposed(g));
      // The norm's blocks are cut along rows, so that its last bit may differ.
      const double limit = precision == ElementType::kFloat32 ? kLimit : 2e-2;
      EXPECT_LE(RelativeError(Transposed(upright), wide), limit);
    }
  }
  const NewtonSchulzOptions options = PlainOptions(PolarExpress());
  const Matrix padded(2, 3, {3, 0, 0, 0, 4, 0});
  const Matrix expected(2, 3, {1.105790, 0, 0, 0, 1.123382, 0});
  const Matrix wide = RunNewtonSchulz(*device_, options, padded);
  const Matrix upright = RunNewtonSchulz(*device_, options, Transposed(padded));
  EXPECT_LE(RelativeError(wide, expected), kLimit);
  EXPECT_LE(RelativeError(upright, Transposed(expected)), kLimit);
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    EXPECT_EQ(wide.values[i] == 0.0, expected.values[i] == 0.0);
    EXPECT_EQ(upright.values[i] == 0.0, Transposed(expected).values[i] == 0.0);
  }
}

// Case 7.
TEST_P(MuonStep, BothMomentumFormsKnowTheSecondStep) {
  MuonValues values;
  values.lr = 1.0;
  values.momentum = 0.95;
  for (const MomentumForm form : {MomentumForm::kSgd, MomentumForm::kEma}) {
    MuonOptions options = OptionsWith(PolarExpress());
    options.momentum_form = form;
    const Matrix o = LastUpdate(*device_, options, values, {Diagonal(3, 4), Diagonal(1, -2)});
    EXPECT_LE(RelativeError(o, Diagonal(1.027732, -1.099708)), kLimit);
  }
}

// Case 8, by the size of an actual update.
TEST_P(MuonStep, ScaleFollowsTheShape) {
  const struct {
    UpdateScale scale;
    double wide;
    double upright;
  } cases[] = {{UpdateScale::kOriginal, 1, 2},
               {UpdateScale::kMatchRmsAdamW, 0.8, 0.8},
               {UpdateScale::kSpectral, .5, 2},
               {UpdateScale::kSpectralMax, 4, 4},
               {UpdateScale::kNone, 1, 1}};
  const Matrix g = MakeInput(InputClass::kGaussian, 4, 16, 2);
  MuonValues values;
  values.lr = 1.0;
  MuonOptions options = OptionsWith(PolarExpress());
  const Matrix o = RunNewtonSchulz(*device_, options.newton_schulz, g);
  for (const auto& c : cases) {
    options.scale = c.scale;
    EXPECT_LE(RelativeError(LastUpdate(*device_, options, values, {g}), Scaled(o, c.wide)), kLimit);
    EXPECT_LE(RelativeError(LastUpdate(*device_, options, values, {Transposed(g)}),
                            Scaled(Transposed(o), c.upright)),
              kLimit);
  }
}

// Case 9; decaying after the step would give diag(.956, .955).
TEST_P(MuonStep, DecayComesFirstWithTheBaseLearningRate) {
  MuonOptions options = OptionsWith(PolarExpress());
  options.scale = UpdateScale::kMatchRmsAdamW;
  MuonValues values;
  values.lr = 0.1;
  values.weight_decay = 0.1;
  const auto result =
      RunMuonStep(*device_, options, values, {{Diagonal(3, 4), Diagonal(1, 1), {}}});
  EXPECT_LE(RelativeError(result[0].master, Diagonal(.958724, .958226)), 1e-6);
}

// A random rule in every respect, three steps, against fp64.
TEST_P(MuonStep, FollowsTheRuleInEveryOption) {
  std::mt19937_64 random(17);
  std::uniform_real_distribution<double> uniform(0.1, 0.9);
  for (const MomentumForm form : {MomentumForm::kSgd, MomentumForm::kEma}) {
    for (const bool nesterov : {true, false}) {
      for (const auto& [rows, cols] :
           std::vector<std::pair<int, int>>{{20, 36}, {36, 20}, {9, 9}}) {
        MuonOptions options = OptionsWith(You());
        options.momentum_form = form;
        options.nesterov = nesterov;
        options.scale = UpdateScale::kOriginal;
        MuonValues values{uniform(random), uniform(random), uniform(random), uniform(random)};
        ReferenceState exact{MakeInput(InputClass::kGaussian, rows, cols, 1), Matrix(rows, cols)};
        MuonOutput state{exact.master, exact.momentum, true};
        for (uint64_t step = 0; step < 3; ++step) {
          const Matrix g = MakeInput(InputClass::kGaussian, rows, cols, 100 + step);
          exact = ReferenceMuonStep(options, values, exact, g);
          state = RunMuonStep(*device_, options, values, {{g, state.master, state.momentum}})[0];
          EXPECT_TRUE(state.finite);
          EXPECT_LE(RelativeError(state.master, exact.master), kLimit);
          EXPECT_LE(RelativeError(state.momentum, exact.momentum), kLimit);
        }
      }
    }
  }
}

// The comparison above must notice each of these.
TEST_P(MuonStep, BrokenRulesAreNoticed) {
  MuonOptions options = OptionsWith(You());
  options.scale = UpdateScale::kOriginal;
  const MuonValues values{0.3, 0.2, 0.9, 0.7};
  const Matrix g = MakeInput(InputClass::kGaussian, 36, 20, 100);
  const ReferenceState before{MakeInput(InputClass::kGaussian, 36, 20, 1),
                              MakeInput(InputClass::kGaussian, 36, 20, 2)};
  const MuonOutput right =
      RunMuonStep(*device_, options, values, {{g, before.master, before.momentum}})[0];
  const auto error_under = [&](const MuonOptions& o, const MuonValues& v) {
    return RelativeError(right.master, ReferenceMuonStep(o, v, before, g).master);
  };
  EXPECT_LE(error_under(options, values), kLimit);

  ReferenceState decay_last = ReferenceMuonStep(options, {0.3, 0.0, 0.9, 0.7}, before, g);
  decay_last.master = Scaled(decay_last.master, 1 - 0.3 * 0.2);
  EXPECT_GT(RelativeError(right.master, decay_last.master), kLimit);
  MuonOptions wrong = options;
  std::swap(wrong.newton_schulz.coefficients[1][1], wrong.newton_schulz.coefficients[1][2]);
  EXPECT_GT(error_under(wrong, values), kLimit);
  wrong = options;
  wrong.nesterov = false;
  EXPECT_GT(error_under(wrong, values), kLimit);
  wrong = options;
  wrong.momentum_form = MomentumForm::kEma;
  EXPECT_GT(error_under(wrong, values), kLimit);
  wrong = options;
  wrong.scale = UpdateScale::kMatchRmsAdamW;
  EXPECT_GT(error_under(wrong, values), kLimit);
  EXPECT_GT(error_under(options, {0.3, 0.2, 0.9, 1.0}), kLimit);
}

// Case 15: two blocks of 2x2 are two matrices of a batch.
TEST_P(MuonStep, BlockScaleIsTheBlocksOwn) {
  MuonOptions options = OptionsWith(PolarExpress());
  options.scale = UpdateScale::kMatchRmsAdamW;
  MuonValues values;
  values.lr = 1.0;
  const auto results =
      RunMuonStep(*device_, options, values, {{Diagonal(3, 4), {}, {}}, {Diagonal(1, 1), {}, {}}});
  EXPECT_LE(RelativeError(results[0].master, Diagonal(-.282843 * 1.105790, -.282843 * 1.123382)),
            kLimit);
  EXPECT_LE(RelativeError(results[1].master, Diagonal(-.282843 * .878404, -.282843 * .878404)),
            kLimit);
}

// The stored momentum is the fp32 one rounded to bf16, and what the direction is made of.
TEST_P(MuonStep, BFloat16MomentumIsRoundedOnce) {
  MuonOptions options = OptionsWith(PolarExpress());
  options.momentum_type = ElementType::kBFloat16;
  MuonValues values;
  values.lr = 1.0;
  values.momentum = 0.75;  // exact in fp32
  const Matrix g = MakeInput(InputClass::kGaussian, 12, 17, 3);
  Matrix momentum = MakeInput(InputClass::kGaussian, 12, 17, 4);
  for (double& value : momentum.values) {
    value = RoundTo(ElementType::kBFloat16, value);
  }
  const MuonOutput result = RunMuonStep(*device_, options, values, {{g, {}, momentum}})[0];
  Matrix u = g;
  for (std::size_t i = 0; i < u.values.size(); ++i) {
    const double sum = static_cast<float>(
        static_cast<double>(static_cast<float>(0.75 * momentum.values[i])) + g.values[i]);
    const double stored = RoundTo(ElementType::kBFloat16, sum);
    EXPECT_EQ(result.momentum.values[i], stored);
    u.values[i] = g.values[i] + 0.75 * stored;
  }
  EXPECT_LE(
      RelativeError(Scaled(result.master, -1.0), ReferenceNewtonSchulz(u, options.newton_schulz)),
      kLimit);
}

// Every way in which something written can be not finite, one bad matrix among good ones.
TEST_P(MuonStep, FlagsWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr double kBig = 3e38;
  const Matrix good = MakeInput(InputClass::kGaussian, 5, 9, 1);
  const auto with = [&](double value) {
    Matrix a = good;
    a.at(4, 8) = value;
    return a;
  };
  const MuonValues values{0.1, 0.0, 0.95, 1.0};
  MuonValues growing = values;
  growing.weight_decay = -100;
  MuonValues loud = values;
  loud.gradient_factor = 1e10;
  const struct {
    const char* what;
    MuonInput bad;
    MuonValues values;
    ElementType momentum_type = ElementType::kFloat32;
  } cases[] = {
      {"gradient is NaN", {with(kNan), {}, {}}, values},
      {"gradient is infinite", {with(-kInfinity), {}, {}}, values},
      {"momentum is NaN", {good, {}, with(kNan)}, values},
      {"momentum overflows", {with(kBig), {}, with(kBig)}, values},
      {"only u overflows", {with(kBig), {}, {}}, values},
      {"only the bf16 rounding overflows",
       {with(3.4e38), {}, {}},
       {0.1, 0.0, 0.0, 1.0},
       ElementType::kBFloat16},
      {"master is NaN", {good, with(kNan), {}}, values},
      {"master overflows", {good, with(kBig), {}}, growing},
      {"gradient factor overflows", {with(kBig), {}, {}}, loud},
  };
  for (const auto& c : cases) {
    MuonOptions options = OptionsWith(PolarExpress());
    options.momentum_type = c.momentum_type;
    const auto results = RunMuonStep(*device_, options, c.values,
                                     {{Matrix(5, 9), {}, {}}, c.bad, {Matrix(5, 9), {}, {}}});
    EXPECT_TRUE(results[0].finite) << c.what;
    EXPECT_FALSE(results[1].finite) << c.what;
    EXPECT_TRUE(results[2].finite) << c.what;
  }
}

TEST_P(MuonStep, FlagsCoefficientsThatDiverge) {
  MuonOptions options = OptionsWith(Coefficients(8, {1e10, 0, 0}));
  const auto results = RunMuonStep(*device_, options, {1.0, 0.0, 0.0, 1.0},
                                   {{MakeInput(InputClass::kGaussian, 4, 4, 1), {}, {}}});
  EXPECT_FALSE(results[0].finite);
}

TEST_P(MuonStep, AnEmptyBatchIsNothing) {
  device_->MuonStep(OptionsWith(PolarExpress()), {}, 4, 4, {}, {});
}

TEST_P(MuonStep, RefusesWhatItCannotRun) {
  MuonOptions options = OptionsWith(PolarExpress());
  EXPECT_THROW(device_->MuonStep(options, {}, 0, 4, {}, {}), std::invalid_argument);
  options.momentum_type = ElementType::kFloat16;
  EXPECT_THROW(device_->MuonStep(options, {}, 4, 4, {}, {}), std::invalid_argument);
  options = OptionsWith({});
  EXPECT_THROW(device_->MuonStep(options, {}, 4, 4, {}, {}), std::invalid_argument);
}

}  // namespace
}  // namespace dmuon::kernels::testing
