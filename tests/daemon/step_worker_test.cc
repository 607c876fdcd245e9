#include "daemon/owner/step_worker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <random>

#include "tests/daemon/bucket_support.h"
#include "tests/daemon/expect_text.h"
#include "tests/daemon/observed_device.h"
#include "tests/kernels/reference.h"

namespace dmuon {
namespace {

namespace reference = kernels::testing;
using test::Job;
using test::Tensors;

// The canonical sum: neighbours first, an odd last one moves up.
float TreeSum(std::vector<float> values) {
  while (values.size() > 1) {
    std::vector<float> sums;
    for (size_t i = 0; i < values.size(); i += 2) {
      sums.push_back(i + 1 < values.size() ? values[i] + values[i + 1] : values[i]);
    }
    values = sums;
  }
  return values.empty() ? 0.0F : values.front();
}

// What the owner must compute for one element of a PARTIAL parameter: trainers that hold it, summed
// inside each node, nodes in the order of their first trainer; absent gradients count as zeros.
float ExpectedSum(const Job& job, uint32_t parameter, int64_t element,
                  const std::vector<Tensors>& gradients, float factor) {
  const ParameterSpec& spec = job.spec.parameters[parameter];
  std::vector<std::string> nodes;
  std::map<std::string, std::vector<float>> by_node;
  for (uint32_t trainer = 0; trainer < job.trainers(); ++trainer) {
    const std::string& host = job.host_ids[trainer];
    if (std::find(nodes.begin(), nodes.end(), host) == nodes.end()) nodes.push_back(host);
    if (!test::Contains(spec.shape, job.regions[trainer][parameter], element)) continue;
    auto values = gradients[trainer].find(spec.name);
    by_node[host].push_back(values == gradients[trainer].end() ? 0.0F : values->second[element]);
  }
  std::vector<float> sums;
  for (const std::string& node : nodes) {
    if (!by_node[node].empty()) sums.push_back(TreeSum(by_node[node]));
  }
  return factor * TreeSum(sums);
}

class StepWorkerTest : public testing::Test {
 protected:
  void Start(const Job& job) {
    job_ = job;
    set_ = test::TrainerSetOf(job_, 0);
    worker_.emplace(device_, pool_, job_.spec, job_.plan, 0);
  }
  Contributions ContributionsTo(uint32_t piece, const std::vector<Tensors>& by_trainer,
                                BucketKind kind = BucketKind::kGradient) {
    const scheduler::Piece& planned = job_.plan.pieces[piece];
    const ParameterSpec& parameter = job_.spec.parameters[planned.parameter];
    Contributions contributions(job_.trainers());
    for (uint32_t trainer = 0; trainer < job_.trainers(); ++trainer) {
      const Region& region = job_.regions[trainer][planned.parameter];
      if (by_trainer[trainer].count(parameter.name) == 0 ||
          test::PackedElements(parameter.shape, region, planned.geometry).empty()) {
        continue;
      }
      contributions[trainer] = test::PackBucket(job_, trainer, set_->places.at(piece).bucket,
                                                by_trainer[trainer], {kind, true, 1, 1});
    }
    return contributions;
  }
  kernels::NormAndFinite Reduce(uint32_t piece, const std::vector<Tensors>& gradients,
                                double grad_scale = 1.0) {
    auto values = scheduler::StepValues::Make(job_.spec, {}, grad_scale).value();
    return worker_->Reduce(*set_, piece, ContributionsTo(piece, gradients), values);
  }
  std::string TakeInitial(uint32_t piece, const std::vector<Tensors>& by_trainer) {
    return worker_->TakeInitialValues(*set_, piece,
                                      ContributionsTo(piece, by_trainer, BucketKind::kInitial));
  }
  // Everything that is published to `trainer`.
  Tensors Publish(uint32_t trainer) {
    Tensors values;
    for (uint32_t bucket = 0; bucket < job_.plan.buckets.size(); ++bucket) {
      for (const PublishedBucket& published : worker_->Publish(*set_, {trainer}, bucket, 1, 1)) {
        EXPECT_EQ(published.trainer, trainer);
        test::UnpackBucket(job_, *published.message, &values);
      }
    }
    return values;
  }

  test::ObservedDevice device_;
  BucketPool pool_;
  Job job_;
  std::shared_ptr<const TrainerSet> set_;
  std::optional<StepWorker> worker_;
};

constexpr char kTwoViews[] = R"({"reduce": "sum", "parameters": [
  {"name": "qkv", "shape": [12, 5], "view": {"split_rows": [6, 2, 4]}},
  {"name": "experts", "shape": [2, 4, 3], "view": "stack"},
  {"name": "norm", "shape": [70]}]})";

std::vector<Tensors> RandomGradients(const Job& job, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<Tensors> gradients(job.trainers());
  for (Tensors& own : gradients) {
    for (const ParameterSpec& parameter : job.spec.parameters) {
      if (random() % 5 == 0) continue;  // absent
      for (int64_t i = 0; i < parameter.elements(); ++i) {
        own[parameter.name].push_back(normal(random));
      }
    }
  }
  return gradients;
}

// Bitwise, element by element, for grids of trainers as HSDP has them: every row group holds all
// rows once, and row groups repeat over and across nodes.
TEST_F(StepWorkerTest, SumsFollowTheCanonicalTree) {
  std::mt19937 random(11);
  const std::vector<std::vector<std::string>> placements = {{"a", "a", "a", "a", "a", "a"},
                                                            {"a", "a", "a", "b", "b", "b"},
                                                            {"a", "b", "a", "b", "a", "b"},
                                                            {"b", "a", "c", "c", "a", "b"},
                                                            {"a", "b", "c", "d", "e", "f"}};
  for (uint32_t shards : {1U, 2U, 3U}) {
    for (const auto& hosts : placements) {
      Job job = test::MakeJob(kTwoViews, 1, 6);
      job.host_ids = hosts;
      for (uint32_t trainer = 0; trainer < 6; ++trainer) {
        for (Region& region : job.regions[trainer]) {
          int64_t rows = (region.extent[0] + shards - 1) / shards;
          region.start[0] = std::min(region.extent[0], rows * (trainer % shards));
          region.extent[0] = std::min(rows, region.extent[0] - region.start[0]);
        }
      }
      Start(job);
      auto gradients = RandomGradients(job, random);
      for (uint32_t piece = 0; piece < job.plan.pieces.size(); ++piece) {
        Reduce(piece, gradients);
        const scheduler::Piece& planned = job.plan.pieces[piece];
        const auto elements = test::PackedElements(
            job.spec.parameters[planned.parameter].shape,
            Region::Whole(job.spec.parameters[planned.parameter].shape), planned.geometry);
        ASSERT_EQ(device_.measured.size(), elements.size());
        for (size_t i = 0; i < elements.size(); ++i) {
          ASSERT_EQ(device_.measured[i],
                    ExpectedSum(job, planned.parameter, elements[i], gradients, 1.0F))
              << shards << " shards, piece " << piece << ", element " << i;
        }
      }
    }
  }
}

// 1 + 2^-24 is 1 in fp32: (t0 + t1) + t2 forgets both small ones, t0 + (t1 + t2) keeps them.
TEST_F(StepWorkerTest, NodesAreSummedBeforeTheyMeet) {
  const char* spec = R"({"reduce": "sum", "parameters": [{"name": "p", "shape": [1]}]})";
  std::vector<Tensors> gradients{{{"p", {1.0F}}}, {{"p", {0x1p-24F}}}, {{"p", {0x1p-24F}}}};
  Job job = test::MakeJob(spec, 1, 3);
  Start(job);
  Reduce(0, gradients);
  EXPECT_EQ(device_.measured.at(0), 1.0F);
  job.host_ids = {"a", "b", "b"};
  Start(job);
  Reduce(0, gradients);
  EXPECT_EQ(device_.measured.at(0), 1.0F + 0x1p-23F);
  job.host_ids = {"a", "b", "a"};
  Start(job);
  Reduce(0, gradients);
  EXPECT_EQ(device_.measured.at(0), 1.0F);
}

// bf16 gradients are added in fp32, also between nodes.
TEST_F(StepWorkerTest, HalfPrecisionGradientsAreSummedInFp32) {
  Job job = test::MakeJob(
      R"({"reduce": "sum", "parameters": [{"name": "p", "shape": [1], "dtype": "bf16"}]})", 1, 2);
  for (const char* second : {"a", "b"}) {
    job.host_ids = {"a", second};
    Start(job);
    Reduce(0, {{{"p", {1.0F}}}, {{"p", {0x1p-12F}}}});
    EXPECT_EQ(device_.measured.at(0), 1.0F + 0x1p-12F);  // bf16 has 8 bits
  }
}

TEST_F(StepWorkerTest, MeanDividesByTheTrainersOfTheSession) {
  Job job = test::MakeJob(R"({"parameters": [{"name": "p", "shape": [2]}]})", 1, 4);
  Start(job);
  kernels::NormAndFinite norm =
      Reduce(0, {{{"p", {4, 8}}}, {{"p", {8, 8}}}, {}, {{"p", {12, 0}}}}, 2.0);
  EXPECT_EQ(device_.measured, (std::vector<float>{3, 2}));  // / 4 trainers / grad_scale 2
  EXPECT_EQ(norm.squared_sum, 13.0);
  EXPECT_TRUE(norm.finite);
}

TEST_F(StepWorkerTest, ReplicasAreTakenOnce) {
  Job job = test::MakeJob(R"({"parameters": [{"name": "p", "shape": [4]}]})", 1, 3);
  job.contribution = Contribution::kReplica;
  Start(job);
  Reduce(0, {{{"p", {4, 8, 2, 6}}}, {{"p", {4, 8, 2, 6}}}, {{"p", {4, 8, 2, 6}}}}, 2.0);
  EXPECT_EQ(device_.measured, (std::vector<float>{2, 4, 1, 3}));
  Reduce(0, {{}, {{"p", {4, 8, 2, 6}}}, {}});  // one copy suffices, whoever sent it
  EXPECT_EQ(device_.measured, (std::vector<float>{4, 8, 2, 6}));
}

TEST_F(StepWorkerTest, ReplicaShardsArePutTogether) {
  Job job = test::MakeJob(R"({"parameters": [{"name": "p", "shape": [5, 2]}]})", 1, 3);
  job.contribution = Contribution::kReplica;
  job.regions = {{{{0, 0}, {2, 2}}}, {{{2, 0}, {3, 2}}}, {{{5, 0}, {0, 2}}}};
  Start(job);
  std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  Reduce(0, {{{"p", values}}, {{"p", values}}, {{"p", values}}});
  EXPECT_EQ(device_.measured, values);
}

TEST_F(StepWorkerTest, NotFiniteSumsAreSeen) {
  Job job =
      test::MakeJob(R"({"reduce": "sum", "parameters": [{"name": "p", "shape": [2]}]})", 1, 2);
  Start(job);
  EXPECT_FALSE(Reduce(0, {{{"p", {1, NAN}}}, {{"p", {1, 1}}}}).finite);
  EXPECT_FALSE(
      Reduce(0, {{{"p", {1, 3e38F}}}, {{"p", {1, 3e38F}}}}).finite);  // only the sum is not
  EXPECT_TRUE(Reduce(0, {{{"p", {1, 3e38F}}}, {{"p", {1, 1}}}}).finite);
}

TEST_F(StepWorkerTest, InitialValuesMustAgree) {
  Job job = test::MakeJob(kTwoViews, 1, 2);
  Start(job);
  std::mt19937 random(5);
  Tensors values;
  for (const ParameterSpec& parameter : job.spec.parameters) {
    for (int64_t i = 0; i < parameter.elements(); ++i) {
      values[parameter.name].push_back(static_cast<float>(random() % 100));
    }
  }
  for (uint32_t piece = 0; piece < job.plan.pieces.size(); ++piece) {
    EXPECT_EQ(TakeInitial(piece, {values, values}), "");
  }
  EXPECT_EQ(Publish(0), values);
  EXPECT_EQ(Publish(1), values);

  Tensors other = values;
  other["norm"][69] += 1;
  for (uint32_t piece = 0; piece < job.plan.pieces.size(); ++piece) {
    std::string error = TakeInitial(piece, {values, other});
    if (job.plan.pieces[piece].parameter == job.ParameterNamed("norm")) {
      test::ExpectNames(error, {"parameter norm", "trainers 0 and 1"});
    } else {
      EXPECT_EQ(error, "");
    }
  }
  Tensors missing = values;
  missing.erase("norm");
  uint32_t norm_piece = 0;
  while (job.plan.pieces[norm_piece].parameter != job.ParameterNamed("norm")) ++norm_piece;
  test::ExpectNames(TakeInitial(norm_piece, {values, missing}), {"parameter norm"});
}

TEST_F(StepWorkerTest, InitialValuesMustBeFinite) {
  Start(test::MakeJob(R"({"parameters": [{"name": "p", "shape": [2]}]})", 1, 1));
  test::ExpectNames(TakeInitial(0, {{{"p", {1, INFINITY}}}}), {"parameter p", "not finite"});
  test::ExpectNames(TakeInitial(0, {{{"p", {1, NAN}}}}), {"parameter p", "not finite"});
}

// p = I, g = diag(3, 4), lr = weight decay = .1 (cases, row 9).
TEST_F(StepWorkerTest, UpdateCountsAfterCommitOnly) {
  Start(test::MakeJob(R"({"groups": {"muon": {"lr": 0.1, "weight_decay": 0.1, "form": "direct",
                                              "precision": "fp32"}},
                          "parameters": [{"name": "p", "shape": [2, 2]}]})",
                      1, 1));
  ASSERT_EQ(TakeInitial(0, {{{"p", {1, 0, 0, 1}}}}), "");
  auto values = scheduler::StepValues::Make(job_.spec, {}, 1.0).value();
  for (bool commit : {false, true}) {
    Reduce(0, {{{"p", {3, 0, 0, 4}}}});
    EXPECT_EQ(worker_->Update({0}, values, 1.0), std::vector<bool>{true});
    EXPECT_EQ(Publish(0)["p"], (std::vector<float>{1, 0, 0, 1}));
    commit ? worker_->Commit() : worker_->Discard();
  }
  std::vector<float> updated = Publish(0)["p"];
  EXPECT_NEAR(updated[0], 0.958724, 1e-5);
  EXPECT_NEAR(updated[3], 0.958226, 1e-5);
  EXPECT_NEAR(updated[1], 0, 1e-6);
}

TEST_F(StepWorkerTest, ElementwiseUpdateMatchesTheFormula) {
  Start(test::MakeJob(R"({"groups": {"adamw": {"lr": 0.01, "weight_decay": 0.1}},
                          "parameters": [{"name": "p", "shape": [3]}]})",
                      1, 1));
  std::vector<float> start{1, -2, 0.5};
  ASSERT_EQ(TakeInitial(0, {{{"p", start}}}), "");
  auto values = scheduler::StepValues::Make(job_.spec, {}, 1.0).value();
  std::vector<reference::AdamWState> state;
  for (float value : start) state.push_back({value, 0, 0});
  for (int64_t step = 1; step <= 3; ++step) {
    std::vector<float> gradient{0.25F * static_cast<float>(step), -1, 4};
    Reduce(0, {{{"p", gradient}}});
    EXPECT_EQ(worker_->Update({0}, values, 0.5), std::vector<bool>{true});
    worker_->Commit();
    kernels::AdamWValues expected{0.01, 0.1, 0.9, 0.999, 1e-8, step, 0.5};
    for (size_t i = 0; i < state.size(); ++i) {
      state[i] = reference::ReferenceAdamW(expected, state[i], gradient[i]);
    }
  }
  std::vector<float> updated = Publish(0)["p"];
  for (size_t i = 0; i < state.size(); ++i) EXPECT_NEAR(updated[i], state[i].master, 1e-6);
}

// One row through Polar Express comes out 1.019 long: times 3.4e38 is more than fp32 holds. Its
// batch mate has nothing to do with it.
TEST_F(StepWorkerTest, UpdatesThatOverflowAreReported) {
  Start(test::MakeJob(R"({"groups": {"muon": {"lr": 3.4e38, "scale": "none", "precision": "fp32",
                                              "form": "direct"}},
                          "parameters": [{"name": "p", "shape": [1, 100]},
                                         {"name": "q", "shape": [1, 100]}]})",
                      1, 1));
  Tensors zeros{{"p", std::vector<float>(100, 0)}, {"q", std::vector<float>(100, 0)}};
  Tensors gradient = zeros;
  gradient["q"][0] = 1;
  auto values = scheduler::StepValues::Make(job_.spec, {}, 1.0).value();
  for (uint32_t piece : {0U, 1U}) {
    ASSERT_EQ(TakeInitial(piece, {zeros}), "");
    Reduce(piece, {gradient});
  }
  EXPECT_EQ(worker_->Update({0, 1}, values, 1.0), (std::vector<bool>{true, false}));
}

// fp16 ends at 65,504: a master beyond is finite, what trainers would get is not.
TEST_F(StepWorkerTest, UpdatesThatOverflowWhenPublishedAreReported) {
  Start(test::MakeJob(R"({"groups": {"muon": {"lr": 7e4, "scale": "none", "precision": "fp32",
                                              "form": "direct"}},
                          "parameters": [{"name": "p", "shape": [1, 100], "dtype": "fp16"},
                                         {"name": "q", "shape": [1, 100], "dtype": "bf16"}]})",
                      1, 1));
  Tensors zeros{{"p", std::vector<float>(100, 0)}, {"q", std::vector<float>(100, 0)}};
  Tensors gradient = zeros;
  gradient["p"][0] = gradient["q"][0] = 1;
  auto values = scheduler::StepValues::Make(job_.spec, {}, 1.0).value();
  for (uint32_t piece : {0U, 1U}) {
    ASSERT_EQ(TakeInitial(piece, {zeros}), "");
    Reduce(piece, {gradient});
  }
  EXPECT_EQ(worker_->Update({0, 1}, values, 1.0), (std::vector<bool>{false, true}));
}

// What a trainer does not hold is not sent.
TEST_F(StepWorkerTest, PublishesEachTrainersRegion) {
  Job job = test::MakeJob(R"({"parameters": [{"name": "p", "shape": [4, 3], "dtype": "bf16"},
                                             {"name": "q", "shape": [5]}]})",
                          1, 3);
  uint32_t p = job.ParameterNamed("p");
  job.regions[0][p] = {{0, 0}, {4, 1}};
  job.regions[1][p] = {{0, 1}, {4, 2}};
  job.regions[2][p] = {{0, 0}, {0, 3}};
  job.regions[2][job.ParameterNamed("q")] = {{5}, {0}};
  Start(job);
  Tensors values{{"p", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}, {"q", {1, 2, 3, 4, 5}}};
  for (uint32_t piece : {0U, 1U}) ASSERT_EQ(TakeInitial(piece, {values, values, values}), "");
  ASSERT_EQ(job.plan.buckets.size(), 1U);
  auto published = worker_->Publish(*set_, {0, 1, 2}, 0, 42, 17);
  ASSERT_EQ(published.size(), 2U);  // trainer 2 holds nothing
  for (const PublishedBucket& one : published) {
    BucketHeader header = one.message->header();
    EXPECT_EQ(header.session, 42U);
    EXPECT_EQ(header.generation, 17U);
    EXPECT_EQ(header.kind, static_cast<uint8_t>(BucketKind::kPublished));
    EXPECT_EQ(header.trainer, one.trainer);
    // Byte for byte what the packing rules say, padding included.
    auto expected =
        test::PackBucket(job, one.trainer, 0, values, {BucketKind::kPublished, true, 42, 17});
    ASSERT_EQ(one.message->bytes(), expected->bytes());
    EXPECT_EQ(std::memcmp(one.message->data(), expected->data(), expected->bytes()), 0);
  }
  EXPECT_EQ(worker_->Publish(*set_, {1}, 0, 42, 17).size(), 1U);
}

}  // namespace
}  // namespace dmuon
