#include <gtest/gtest.h>

#include <random>

#include "scheduler/plan.h"
#include "tests/scheduler/spec_text.h"

namespace dmuon::scheduler {
namespace {

Plan MixedPlan(int owners) {
  PlanOptions options;
  options.owners = owners;
  options.bucket_bytes = 20000;
  const std::string spec = test::SpecText(test::MixedParameters(),
                                          R"("groups": {"muon": {"form": "gram", "restart": [1, 3],
                        "momentum_dtype": "bf16", "normalize": "eps_max"}}, )");
  return MakePlan(ParseSessionSpec(spec), options);
}

void ExpectSamePiece(const Piece& a, const Piece& b) {
  EXPECT_EQ(a.parameter, b.parameter);
  EXPECT_EQ(a.group, b.group);
  EXPECT_EQ(a.geometry, b.geometry);
  EXPECT_EQ(a.owners, b.owners);
  EXPECT_EQ(a.rule, b.rule);
  EXPECT_EQ(a.muon.momentum_type, b.muon.momentum_type);
  EXPECT_EQ(a.muon.scale, b.muon.scale);
  EXPECT_EQ(a.muon.nesterov, b.muon.nesterov);
  EXPECT_EQ(a.muon.momentum_form, b.muon.momentum_form);
  EXPECT_EQ(a.muon.newton_schulz.coefficients, b.muon.newton_schulz.coefficients);
  EXPECT_EQ(a.muon.newton_schulz.restart, b.muon.newton_schulz.restart);
  EXPECT_EQ(a.muon.newton_schulz.form, b.muon.newton_schulz.form);
  EXPECT_EQ(a.muon.newton_schulz.normalize, b.muon.newton_schulz.normalize);
  EXPECT_EQ(a.muon.newton_schulz.eps, b.muon.newton_schulz.eps);
  EXPECT_EQ(a.muon.newton_schulz.precision, b.muon.newton_schulz.precision);
}

TEST(PlanBytes, RoundTrip) {
  for (const int owners : {1, 3, 40}) {
    const Plan plan = MixedPlan(owners);
    const Plan copy = ParsePlan(SerializePlan(plan));
    ASSERT_EQ(copy.pieces.size(), plan.pieces.size());
    for (size_t i = 0; i < plan.pieces.size(); ++i) {
      ExpectSamePiece(plan.pieces[i], copy.pieces[i]);
    }
    ASSERT_EQ(copy.buckets.size(), plan.buckets.size());
    for (size_t i = 0; i < plan.buckets.size(); ++i) {
      EXPECT_EQ(copy.buckets[i].owner, plan.buckets[i].owner);
      EXPECT_EQ(copy.buckets[i].pieces, plan.buckets[i].pieces);
    }
    EXPECT_EQ(copy.owners, owners);
    EXPECT_EQ(copy.makespan, plan.makespan);
    EXPECT_EQ(copy.lower_bound, plan.lower_bound);
    EXPECT_EQ(copy.greedy_makespan, plan.greedy_makespan);
    EXPECT_EQ(copy.stopped_by_clock, plan.stopped_by_clock);
    EXPECT_EQ(copy.profile, "arithmetic");
    EXPECT_EQ(copy.loads[0].seconds(), plan.loads[0].seconds());
    EXPECT_EQ(copy.loads[0].bytes.total(), plan.loads[0].bytes.total());
    EXPECT_EQ(copy.loads[0].matrices, plan.loads[0].matrices);
    EXPECT_EQ(PlanHash(copy), PlanHash(plan));
    EXPECT_EQ(SerializePlan(copy), SerializePlan(plan));
  }
}

TEST(PlanBytes, RefusesEveryTruncation) {
  const std::string bytes = SerializePlan(MixedPlan(2));
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(ParsePlan(bytes.substr(0, length)), std::invalid_argument) << length;
  }
  EXPECT_THROW(ParsePlan(bytes + '\0'), std::invalid_argument);
}

TEST(PlanBytes, NeverTrustsAByte) {
  const std::string bytes = SerializePlan(MixedPlan(2));
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string mutated = bytes;
    for (int i = 0; i < 1 + round % 4; ++i) {
      mutated[random() % mutated.size()] = static_cast<char>(random());
    }
    try {
      const Plan plan = ParsePlan(mutated);
      for (const PlanBucket& bucket : plan.buckets) {
        for (const uint32_t piece : bucket.pieces) {
          ASSERT_LT(piece, plan.pieces.size());
        }
      }
    } catch (const std::invalid_argument&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace dmuon::scheduler
