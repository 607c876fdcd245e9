// The autotuner: what it chooses, and what it refuses to choose.
#include "kernels/tuning.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/reference.h"
#include "tests/kernels/scripted_device.h"

namespace dmuon::kernels::testing {
namespace {

constexpr MuonExecution kFirst = {.part = 1};
constexpr MuonExecution kSecond = {.part = 2};
constexpr MuonExecution kThird = {.symmetric_tile = 64, .part = 3};

TuningCase SmallCase(int64_t rows = 24, int64_t cols = 40, int64_t batch = 2) {
  TuningCase wanted;
  wanted.rows = rows;
  wanted.cols = cols;
  wanted.batch = batch;
  wanted.options.newton_schulz.coefficients = PolarExpress();
  return wanted;
}

class TunerTest : public ::testing::Test {
 protected:
  TunerOptions Options() {
    TunerOptions options;
    options.least_time_s = 0.0;
    options.clock = [this] { return device.now_s; };
    options.warn = [this](const std::string& line) { warnings.push_back(line); };
    return options;
  }

  TuningResult Tune(const TuningCase& wanted = SmallCase()) {
    return Tuner(device, Options()).Tune(wanted);
  }

  // Steps take `seconds[choice.part]`.
  void UseTimes(std::vector<double> seconds) {
    device.candidates = {{}, kFirst, kSecond, kThird};
    device.step_s = [seconds](const MuonExecution& choice) { return seconds[choice.part]; };
  }

  void ExpectOneWarningWith(const std::vector<std::string>& words) {
    ASSERT_EQ(warnings.size(), 1U);
    for (const std::string& word : words) {
      EXPECT_NE(warnings[0].find(word), std::string::npos) << warnings[0];
    }
  }

  ScriptedDevice device;
  std::vector<std::string> warnings;
};

TEST_F(TunerTest, ChoosesTheFastest) {
  UseTimes({1.0, 0.95, 0.9, 1.1});
  const TuningResult result = Tune();
  EXPECT_EQ(result.choice, kSecond);
  EXPECT_NEAR(result.median_s, 0.9, 1e-9);
  EXPECT_NEAR(result.default_s, 1.0, 1e-9);
  ASSERT_EQ(result.measured.size(), 4U);
  EXPECT_EQ(result.measured[0].choice, MuonExecution());
  EXPECT_EQ(result.measured[3].runs, 5);
  EXPECT_TRUE(result.discarded.empty());
  EXPECT_TRUE(warnings.empty());
}

TEST_F(TunerTest, TiesGoToTheDefault) {
  UseTimes({1.0, 0.98, 0.975, 1.0});
  EXPECT_EQ(Tune().choice, MuonExecution());
  EXPECT_NEAR(Tune().median_s, 1.0, 1e-9);
}

TEST_F(TunerTest, HopelessCandidatesAreGivenUp) {
  UseTimes({1.0, 5.0, 0.5, 1.0});
  const TuningResult result = Tune();
  EXPECT_EQ(result.choice, kSecond);
  EXPECT_EQ(result.measured[0].runs, 10);  // the default never: its time is what is compared with
  EXPECT_EQ(result.measured[1].runs, 1);
  EXPECT_EQ(result.measured[2].runs, 10);
  EXPECT_NEAR(result.default_s, 1.0, 1e-9);
}

// One outlier is not taken for the candidate's time.
TEST_F(TunerTest, MediansDecide) {
  device.candidates = {{}, kFirst};
  int runs = 0;
  device.step_s = [&runs](const MuonExecution& choice) {
    return choice == kFirst && ++runs == 4 ? 100.0 : choice == kFirst ? 0.8 : 1.0;
  };
  EXPECT_EQ(Tune().choice, kFirst);
}

// Fast in the first series only, by luck: the second decides.
TEST_F(TunerTest, TheBestHasToWinTwice) {
  device.candidates = {{}, kFirst};
  int runs = 0;
  constexpr int kFirstSeries = 2 + 5;  // accuracy, warm up, and five that are timed
  device.step_s = [&runs](const MuonExecution& choice) {
    return choice == kFirst && ++runs <= kFirstSeries ? 0.8 : 1.0;
  };
  const TuningResult result = Tune();
  EXPECT_EQ(result.choice, MuonExecution());
  EXPECT_EQ(result.measured[1].runs, 10);
}

TEST_F(TunerTest, LeavesTheDeviceToItsDefaults) {
  UseTimes({1.0, 0.5, 0.9, 1.1});
  Tune();
  EXPECT_TRUE(device.table.entries().empty());
}

TEST_F(TunerTest, BrokenCandidateIsDiscardedHoweverFast) {
  UseTimes({1.0, 0.01, 0.9, 1.1});
  device.after_step = [](const MuonExecution& choice, int64_t rows, int64_t cols,
                         const auto& batch) {
    for (const MuonMatrix& matrix : batch) {
      for (int64_t i = 0; choice == kFirst && i < rows * cols; ++i) {
        matrix.new_master[i] *= 1.001F;
      }
    }
  };
  const TuningResult result = Tune();
  EXPECT_EQ(result.choice, kSecond);
  ASSERT_EQ(result.discarded.size(), 1U);
  EXPECT_EQ(result.discarded[0].choice, kFirst);
  ExpectOneWarningWith({"24x40 batch 2 fp32 direct", "part 1", "discarded", "gaussian",
                        "error 1.0e-03", "limit is 5.0e-05"});
}

// Wrong on one kind of input only: a left-over of low rank, where rows repeat.
TEST_F(TunerTest, CandidateThatIsWrongOnOneInputClassIsDiscarded) {
  UseTimes({1.0, 0.01, 0.9, 1.1});
  device.after_step = [](const MuonExecution& choice, int64_t, int64_t cols, const auto& batch) {
    for (const MuonMatrix& matrix : batch) {
      const bool one_row = matrix.gradient[cols] == 0.0F && matrix.gradient[cols + 1] == 0.0F;
      if (choice == kFirst && one_row) {
        matrix.new_master[3] = 7.0F;
      }
    }
  };
  EXPECT_EQ(Tune().choice, kSecond);
  ExpectOneWarningWith({"part 1", "one_row", "limit is 5.0e-05"});
}

TEST_F(TunerTest, CandidateThatGivesNanIsDiscarded) {
  UseTimes({1.0, 0.01, 0.9, 1.1});
  device.after_step = [](const MuonExecution& choice, int64_t, int64_t, const auto& batch) {
    batch[0].new_master[0] = choice == kFirst ? NAN : batch[0].new_master[0];
  };
  EXPECT_EQ(Tune().choice, kSecond);
  ExpectOneWarningWith({"part 1", "error", "nan"});
}

// Accurate, but not what every other owner would get.
TEST_F(TunerTest, CandidateWithOtherBitsIsDiscarded) {
  UseTimes({1.0, 0.01, 0.9, 1.1});
  device.after_step = [](const MuonExecution& choice, int64_t, int64_t, const auto& batch) {
    if (choice == kFirst) {
      float& value = batch.back().new_master[11];
      value = std::nextafter(value, 2.0F);
    }
  };
  const TuningResult result = Tune();
  EXPECT_EQ(result.choice, kSecond);
  ASSERT_EQ(result.discarded.size(), 1U);
  ExpectOneWarningWith({"part 1", "bits"});
}

// Gram without restarts is not accurate enough in fp32 (kernels/README.md): no choice can help.
TEST_F(TunerTest, NumericsThatBreakTheRuleAreNamedAndNotTuned) {
  UseTimes({1.0, 0.5, 0.9, 1.1});
  TuningCase wanted = SmallCase(64, 256, 1);
  wanted.options.newton_schulz.form = Form::kGram;
  const TuningResult result = Tune(wanted);
  EXPECT_EQ(result.choice, MuonExecution());
  EXPECT_EQ(result.measured.size(), 1U);
  ExpectOneWarningWith({"numerics break the accuracy rule", "limit is 3.0e-04", "restart"});
}

TEST_F(TunerTest, CountsTheBytesOfAdamW) {
  device.step_s = [](const MuonExecution&) { return 0.5; };
  EXPECT_NEAR(Tuner(device, Options()).MeasureElementwise(), 28.0 * (8 << 20) / 0.5, 1.0);
}

TEST(AccuracyRule, ShapesAreReducedInProportion) {
  EXPECT_EQ(accuracy::ReducedShape(96, 200), (accuracy::Shape{96, 200}));
  EXPECT_EQ(accuracy::ReducedShape(1024, 4096), (accuracy::Shape{128, 512}));
  EXPECT_EQ(accuracy::ReducedShape(4096, 1024), (accuracy::Shape{512, 128}));
  EXPECT_EQ(accuracy::ReducedShape(64, 50257), (accuracy::Shape{64, 4096}));
}

// The fp64 reference against the scalar polynomial: on a diagonal matrix they are the same.
TEST(AccuracyRule, ReferenceIsThePolynomialOfSingularValues) {
  const std::vector<double> singular = {0.9, 0.3, 0.01};
  Matrix x(3, 5);
  for (int64_t i = 0; i < 3; ++i) {
    x.at(i, i) = singular[i];
  }
  const Matrix result = Polynomial(x, PolarExpress());
  for (int64_t i = 0; i < 3; ++i) {
    double s = singular[i];
    for (const auto& [a, b, c] : PolarExpress()) {
      s = a * s + b * s * s * s + c * s * s * s * s * s;
    }
    EXPECT_NEAR(result.at(i, i), s, 1e-14);
  }
}

}  // namespace
}  // namespace dmuon::kernels::testing
