// The AdamW step on every backend against the rule in fp64.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/kernels/backends.h"

namespace dmuon::kernels::testing {
namespace {

class AdamWStep : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Backends, AdamWStep, ::testing::ValuesIn(Backends()), BackendName);

struct Vectors {
  std::vector<float> master;
  std::vector<float> exp_avg;
  std::vector<float> exp_avg_sq;
};

struct AdamWOutput {
  Vectors state;
  bool finite = false;
};

AdamWOutput RunAdamW(Device& device, const AdamWValues& values, const Vectors& state,
                     const std::vector<float>& gradient) {
  const auto count = static_cast<int64_t>(gradient.size());
  const Buffer g = Upload(device, gradient);
  const Buffer p = Upload(device, state.master);
  const Buffer v1 = Upload(device, state.exp_avg);
  const Buffer v2 = Upload(device, state.exp_avg_sq);
  const Buffer new_p = device.Allocate(p.bytes());
  const Buffer new_v1 = device.Allocate(p.bytes());
  const Buffer new_v2 = device.Allocate(p.bytes());
  AdamWOutput output;
  output.finite = device.AdamWStep(values, {count, g.floats(), p.floats(), v1.floats(), v2.floats(),
                                            new_p.floats(), new_v1.floats(), new_v2.floats()});
  output.state = {Download(device, new_p.floats(), count), Download(device, new_v1.floats(), count),
                  Download(device, new_v2.floats(), count)};
  EXPECT_EQ(Download(device, p.floats(), count), state.master);
  EXPECT_EQ(Download(device, v1.floats(), count), state.exp_avg);
  EXPECT_EQ(Download(device, v2.floats(), count), state.exp_avg_sq);
  return output;
}

std::vector<float> Normal(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) {
    value = normal(random);
  }
  return values;
}

TEST_P(AdamWStep, FollowsTheRule) {
  for (const int64_t count : {1, 7, 8192, 8193, 100001}) {
    Vectors state{Normal(count, 1), std::vector<float>(count), std::vector<float>(count)};
    std::vector<AdamWState> exact(count);
    for (int64_t i = 0; i < count; ++i) {
      exact[i].master = state.master[i];
    }
    for (int64_t step = 1; step <= 4; ++step) {
      const AdamWValues values{0.01 * static_cast<double>(step), 0.1, 0.9, 0.95, 1e-6, step, 0.5};
      const std::vector<float> gradient = Normal(count, 10 + step);
      const AdamWOutput output = RunAdamW(*device_, values, state, gradient);
      EXPECT_TRUE(output.finite);
      state = output.state;
      for (int64_t i = 0; i < count; ++i) {
        exact[i] = ReferenceAdamW(values, exact[i], gradient[i]);
        ASSERT_NEAR(state.master[i], exact[i].master, 1e-6);
        ASSERT_NEAR(state.exp_avg[i], exact[i].exp_avg, 1e-6);
        ASSERT_NEAR(state.exp_avg_sq[i], exact[i].exp_avg_sq, 1e-6 * (1 + exact[i].exp_avg_sq));
      }
    }
  }
}

// By hand: from zero state the corrected moments are g and g^2, so p moves by lr * g / (|g| + eps).
TEST_P(AdamWStep, FirstStepMovesByTheLearningRate) {
  const AdamWValues values{0.1, 0.5, 0.9, 0.999, 1e-8, 1, 1.0};
  const Vectors zeros{{1.0F, 1.0F, 1.0F}, {0, 0, 0}, {0, 0, 0}};
  const AdamWOutput output = RunAdamW(*device_, values, zeros, {2.0F, -3.0F, 0.0F});
  EXPECT_NEAR(output.state.master[0], 0.95 - 0.1, 1e-6);
  EXPECT_NEAR(output.state.master[1], 0.95 + 0.1, 1e-6);
  EXPECT_NEAR(output.state.master[2], 0.95, 1e-6);
}

TEST_P(AdamWStep, LateFirstStepIsCorrectedByItsOwnCount) {
  const Vectors zeros{{0.0F}, {0.0F}, {0.0F}};
  const AdamWOutput output =
      RunAdamW(*device_, {0.1, 0.0, 0.9, 0.999, 1e-8, 1, 1.0}, zeros, {5.0F});
  EXPECT_NEAR(output.state.master[0], -0.1, 1e-6);
  const AdamWOutput later =
      RunAdamW(*device_, {0.1, 0.0, 0.9, 0.999, 1e-8, 100, 1.0}, zeros, {5.0F});
  EXPECT_GT(std::fabs(later.state.master[0] + 0.1), 1e-3);
}

TEST_P(AdamWStep, FlagsWhatIsNotFinite) {
  const AdamWValues values{0.1, 0.0, 0.9, 0.999, 1e-8, 1, 1.0};
  const std::vector<float> zeros(20000);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 3e38F}) {
    std::vector<float> gradient = zeros;
    gradient.back() = bad;  // 3e38: its square overflows
    EXPECT_FALSE(RunAdamW(*device_, values, {zeros, zeros, zeros}, gradient).finite);
  }
  EXPECT_TRUE(RunAdamW(*device_, values, {zeros, zeros, zeros}, zeros).finite);
  EXPECT_TRUE(device_->AdamWStep(values, {}));
}

TEST(CpuAdamWStep, ResultDoesNotDependOnThreads) {
  if (!BuiltWithCpuBackend()) {
    GTEST_SKIP() << "this build has no CPU backend";
  }
  const int64_t count = 50000;
  const Vectors state{Normal(count, 1), Normal(count, 2), std::vector<float>(count, 0.5F)};
  const AdamWValues values{0.1, 0.1, 0.9, 0.999, 1e-8, 3, 1.0};
  const auto one = RunAdamW(*MakeCpuDevice({1}), values, state, Normal(count, 3));
  const auto four = RunAdamW(*MakeCpuDevice({4}), values, state, Normal(count, 3));
  EXPECT_EQ(one.state.master, four.state.master);
  EXPECT_EQ(one.state.exp_avg, four.state.exp_avg);
  EXPECT_EQ(one.state.exp_avg_sq, four.state.exp_avg_sq);
}

}  // namespace
}  // namespace dmuon::kernels::testing
