// The step pipeline of real owners: values against the fp64 rules, and what may not change them.
#include "daemon/owner/owner_session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/daemon/expect_text.h"
#include "tests/daemon/owner_session_support.h"
#include "tests/kernels/reference.h"

namespace dmuon {
namespace {

namespace reference = kernels::testing;
using test::Job;
using test::Tensors;
using test::TestCluster;

constexpr int kSteps = 4;
constexpr double kMaxNorm = 2.0;

// The matrices of the model's Muon parameters, by hand: first element, rows, columns.
struct Matrix {
  int64_t first;
  int64_t rows;
  int64_t cols;
};
const std::map<std::string, std::vector<Matrix>> kMatrices = {
    {"w", {{0, 6, 4}}},
    {"qkv", {{0, 2, 4}, {8, 4, 4}}},
    {"experts", {{0, 3, 4}, {12, 3, 4}}},
};
constexpr int kMatrixCount = 5;

std::string ModelSpec(bool clip) {
  return std::string(R"({"groups": {
    "muon": {"lr": 0.3, "weight_decay": 0.1, "precision": "fp32", "form": "direct"},
    "slow": {"rule": "muon", "lr": 0.1, "precision": "fp32", "form": "direct"},
    "adamw": {"lr": 0.02}}, )") +
         (clip ? R"("max_grad_norm": 2.0, )" : "") + R"("parameters": [
    {"name": "w", "shape": [6, 4], "group": "slow"},
    {"name": "qkv", "shape": [6, 4], "view": {"split_rows": [2, 4]}},
    {"name": "experts", "shape": [2, 3, 4], "view": "stack"},
    {"name": "norm", "shape": [5]}]})";
}

Tensors RandomTensors(const SessionSpec& spec, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensors tensors;
  for (const ParameterSpec& parameter : spec.parameters) {
    for (int64_t i = 0; i < parameter.elements(); ++i) {
      tensors[parameter.name].push_back(normal(random));
    }
  }
  return tensors;
}

// Gradients of three trainers at `step`; trainer 1 lacks the experts in step 2.
std::vector<Tensors> GradientsAt(const Job& job, int step) {
  std::vector<Tensors> gradients;
  for (uint32_t trainer = 0; trainer < job.trainers(); ++trainer) {
    gradients.push_back(RandomTensors(job.spec, 100 * step + trainer));
  }
  if (step == 2 && job.trainers() > 1) gradients[1].erase("experts");
  return gradients;
}

// The same training in fp64, from the formulas.
class ReferenceModel {
 public:
  explicit ReferenceModel(const Tensors& initial) {
    for (const auto& [name, values] : initial) {
      auto matrices = kMatrices.find(name);
      if (matrices == kMatrices.end()) {
        for (float value : values) adamw_[name].push_back({value, 0, 0});
        continue;
      }
      for (const Matrix& m : matrices->second) {
        muon_[name].push_back({reference::FromFloats(m.rows, m.cols, &values[m.first]),
                               reference::Matrix(m.rows, m.cols)});
      }
    }
  }

  // Returns the norm of the mean gradient.
  double Step(const std::vector<Tensors>& gradients, double grad_scale) {
    ++step_;
    std::map<std::string, std::vector<double>> mean;
    double squared = 0;
    for (const auto& [name, whole] : gradients.front()) {
      std::vector<double>& sum = mean[name];
      sum.resize(whole.size());
      for (const Tensors& own : gradients) {
        if (own.count(name) == 0) continue;
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += own.at(name)[i];
      }
      for (double& value : sum) {
        value /= static_cast<double>(gradients.size()) * grad_scale;
        squared += value * value;
      }
    }
    double norm = std::sqrt(squared);
    for (auto& [name, gradient] : mean) Update(name, gradient, std::min(1.0, kMaxNorm / norm));
    return norm;
  }

  std::vector<double> Values(const std::string& name) const {
    std::vector<double> values;
    if (auto adamw = adamw_.find(name); adamw != adamw_.end()) {
      for (const auto& state : adamw->second) values.push_back(state.master);
      return values;
    }
    for (const auto& state : muon_.at(name)) {
      values.insert(values.end(), state.master.values.begin(), state.master.values.end());
    }
    return values;
  }

 private:
  void Update(const std::string& name, const std::vector<double>& gradient, double clip) {
    for (size_t i = 0; adamw_.count(name) != 0 && i < gradient.size(); ++i) {
      kernels::AdamWValues values{0.02, 0.01, 0.9, 0.999, 1e-8, step_, clip};
      adamw_[name][i] = reference::ReferenceAdamW(values, adamw_[name][i], gradient[i]);
    }
    kernels::MuonOptions options;
    options.newton_schulz.coefficients = reference::PolarExpress();
    bool slow = name == "w";
    kernels::MuonValues values{slow ? 0.1 : 0.3, slow ? 0.0 : 0.1, 0.95, clip};
    for (size_t i = 0; muon_.count(name) != 0 && i < muon_[name].size(); ++i) {
      const Matrix& m = kMatrices.at(name)[i];
      std::vector<double> part(gradient.begin() + m.first,
                               gradient.begin() + m.first + m.rows * m.cols);
      muon_[name][i] =
          reference::ReferenceMuonStep(options, values, muon_[name][i], {m.rows, m.cols, part});
    }
  }

  int64_t step_ = 0;
  std::map<std::string, std::vector<reference::ReferenceState>> muon_;
  std::map<std::string, std::vector<reference::AdamWState>> adamw_;
};

double Distance(const Tensors& start, const Tensors& actual, const ReferenceModel& expected) {
  double worst = 0;
  for (const auto& [name, values] : actual) {
    std::vector<double> exact = expected.Values(name);
    double error = 0;
    double moved = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      error += std::pow(values[i] - exact[i], 2);
      moved += std::pow(exact[i] - start.at(name)[i], 2);
    }
    worst = std::max(worst, std::sqrt(error / moved));
  }
  return worst;
}

TEST(OwnerSession, TrainsAsTheFormulasSayOnAnyNumberOfOwners) {
  std::optional<Tensors> first;
  for (int owners : {1, 2, 4, 8}) {
    Job job = test::MakeJob(ModelSpec(true), owners, 3);
    job.host_ids = {"a", "a", "b"};
    Tensors initial = RandomTensors(job.spec, 1);
    ReferenceModel expected(initial);
    TestCluster cluster(job, initial);
    bool clipped = false;
    for (int step = 1; step <= kSteps; ++step) {
      auto result = cluster.Step(GradientsAt(job, step), 0.5);
      EXPECT_EQ(result.outcome, v1::STEP_OUTCOME_COMMITTED);
      EXPECT_EQ(result.matrices, kMatrixCount);
      double norm = expected.Step(GradientsAt(job, step), 0.5);
      EXPECT_NEAR(result.norm, norm, 1e-6 * norm);
      clipped |= norm > kMaxNorm;
    }
    EXPECT_TRUE(clipped);
    EXPECT_LT(Distance(initial, cluster.Values(0), expected), 1e-5);
    for (uint32_t trainer : {1U, 2U}) EXPECT_EQ(cluster.Values(trainer), cluster.Values(0));
    if (!first) first = cluster.Values(0);
    EXPECT_EQ(cluster.Values(0), *first) << owners << " owners";  // bitwise
    expected.Step(GradientsAt(job, 9), 0.5);                      // one step too many is noticed
    EXPECT_GT(Distance(initial, cluster.Values(0), expected), 1e-3);
  }
}

TEST(OwnerSession, ShardsGiveTheBitsOfReplicas) {
  Job whole = test::MakeJob(ModelSpec(true), 2, 1);
  whole.contribution = Contribution::kReplica;
  Job sharded = test::MakeJob(ModelSpec(true), 2, 4);
  sharded.contribution = Contribution::kReplica;
  for (uint32_t trainer = 0; trainer < 4; ++trainer) {
    for (Region& region : sharded.regions[trainer]) {
      int64_t rows = (region.extent[0] + 3) / 4;  // 2 rows over 4 trainers: two have none
      region.start[0] = std::min(region.extent[0], rows * trainer);
      region.extent[0] = std::min(rows, region.extent[0] - region.start[0]);
    }
  }
  Tensors initial = RandomTensors(whole.spec, 1);
  TestCluster one(whole, initial);
  TestCluster four(sharded, initial);
  for (int step = 1; step <= kSteps; ++step) {
    std::vector<Tensors> gradients = GradientsAt(whole, step);
    auto expected = one.Step(gradients);
    auto result = four.Step(std::vector<Tensors>(4, gradients[0]));
    EXPECT_EQ(result.norm, expected.norm);
  }
  for (uint32_t trainer = 0; trainer < 4; ++trainer) {
    for (const auto& [name, values] : one.Values(0)) {
      uint32_t parameter = sharded.ParameterNamed(name);
      for (size_t i = 0; i < values.size(); ++i) {
        bool held = test::Contains(sharded.spec.parameters[parameter].shape,
                                   sharded.regions[trainer][parameter], static_cast<int64_t>(i));
        EXPECT_EQ(four.Values(trainer).at(name)[i], held ? values[i] : initial.at(name)[i]);
      }
    }
  }
}

class TrainingTest : public testing::Test {
 protected:
  Job job_ = test::MakeJob(ModelSpec(false), 2, 2);
  Tensors initial_ = RandomTensors(job_.spec, 1);
  TestCluster cluster_{job_, initial_};
  TestCluster other_{job_, initial_};
};

TEST_F(TrainingTest, NotFiniteStepsLeaveNothingBehind) {
  std::vector<Tensors> bad = GradientsAt(job_, 1);
  bad[1]["qkv"][7] = NAN;
  bad[0]["norm"][2] = INFINITY;
  auto skipped = cluster_.Step(bad);
  EXPECT_EQ(skipped.outcome, v1::STEP_OUTCOME_SKIPPED);
  EXPECT_EQ(skipped.not_finite, "norm");  // canonical order: experts, norm, qkv, w
  EXPECT_EQ(cluster_.Values(0), initial_);
  for (int step = 1; step <= 2; ++step) {
    cluster_.Step(GradientsAt(job_, step));
    other_.Step(GradientsAt(job_, step));
  }
  EXPECT_EQ(cluster_.Values(0), other_.Values(0));
  EXPECT_NE(cluster_.Values(0), initial_);
}

TEST_F(TrainingTest, SumsThatOverflowAreNotFinite) {
  std::vector<Tensors> bad = GradientsAt(job_, 1);
  for (Tensors& own : bad) own["w"][3] = 3e38F;
  auto skipped = cluster_.Step(bad);
  EXPECT_EQ(skipped.outcome, v1::STEP_OUTCOME_SKIPPED);
  EXPECT_EQ(skipped.not_finite, "w");
}

TEST_F(TrainingTest, AbsentIsUntouchedAndZerosAreAStep) {
  std::vector<Tensors> all = GradientsAt(job_, 1);
  cluster_.Step(all);
  Tensors before = cluster_.Values(0);
  std::vector<Tensors> without = GradientsAt(job_, 3);
  for (Tensors& own : without) {
    own.erase("qkv");
    own.erase("norm");
  }
  auto result = cluster_.Step(without);
  EXPECT_EQ(result.matrices, kMatrixCount - 2U);
  EXPECT_EQ(cluster_.Values(0).at("qkv"), before.at("qkv"));
  EXPECT_EQ(cluster_.Values(0).at("norm"), before.at("norm"));
  EXPECT_NE(cluster_.Values(0).at("w"), before.at("w"));

  for (Tensors& own : without) own["qkv"].assign(24, 0.0F);
  EXPECT_EQ(cluster_.Step(without).matrices, kMatrixCount);
  EXPECT_NE(cluster_.Values(0).at("qkv"), before.at("qkv"));
}

TEST_F(TrainingTest, AStepWithoutAnyGradientCompletes) {
  auto result = cluster_.Step({{}, {}});
  EXPECT_EQ(result.outcome, v1::STEP_OUTCOME_COMMITTED);
  EXPECT_EQ(result.matrices, 0U);
  EXPECT_EQ(result.norm, 0.0);
  EXPECT_EQ(cluster_.Values(0), initial_);
}

TEST_F(TrainingTest, AbsentOnOneTrainerCountsAsZeros) {
  std::vector<Tensors> absent = GradientsAt(job_, 1);
  std::vector<Tensors> zeros = absent;
  absent[0].erase("w");
  zeros[0]["w"].assign(24, 0.0F);
  cluster_.Step(absent);
  other_.Step(zeros);
  EXPECT_EQ(cluster_.Values(0), other_.Values(0));
}

TEST(OwnerSession, RefusesAPlanThatHasAnotherHash) {
  Job job = test::MakeJob(ModelSpec(false), 1, 1);
  auto device = kernels::MakeCpuDevice({});
  Inbox inbox;
  BucketPool pool;
  ComputeWorker worker;
  v1::StartSession start;
  start.set_spec_json(CanonicalJson(job.spec));
  start.set_plan(scheduler::SerializePlan(job.plan));
  start.set_plan_hash("0123456789abcdef");
  start.set_trainers(1);
  try {
    OwnerSession session({3, device.get(), &worker, &inbox, &pool, nullptr}, start);
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    test::ExpectNames(error.what(),
                      {"0123456789abcdef", scheduler::PlanHash(job.plan), "owner 3", "owner 0"});
  }
}

}  // namespace
}  // namespace dmuon
