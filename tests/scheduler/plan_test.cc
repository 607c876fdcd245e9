#include "scheduler/plan.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/scheduler/spec_text.h"

namespace dmuon::scheduler {
namespace {

using test::MixedParameters;
using test::ParameterText;
using test::Shuffled;
using test::SpecText;

Plan PlanOf(const std::string& spec, int owners) {
  PlanOptions options;
  options.owners = owners;
  return MakePlan(ParseSessionSpec(spec), options);
}

// Marks every element of every parameter that a piece covers; each must be marked exactly once.
void ExpectEveryElementOnce(const SessionSpec& spec, const Plan& plan) {
  std::vector<std::vector<char>> seen;
  for (const ParameterSpec& parameter : spec.parameters) {
    seen.emplace_back(static_cast<size_t>(parameter.elements()), 0);
  }
  for (const Piece& piece : plan.pieces) {
    const StridedMatrix& g = piece.geometry;
    for (int64_t i = 0; i < g.rows; ++i) {
      for (int64_t j = 0; j < g.cols; ++j) {
        ++seen[piece.parameter].at(static_cast<size_t>(g.base + i * g.row_stride + j));
      }
    }
  }
  for (const std::vector<char>& parameter : seen) {
    ASSERT_EQ(std::count(parameter.begin(), parameter.end(), 1),
              static_cast<std::ptrdiff_t>(parameter.size()));
  }
}

// The graph of pieces, owners and buckets holds together, and loads are of what the pieces are.
void ExpectConsistent(const Plan& plan) {
  std::vector<uint64_t> elements(static_cast<size_t>(plan.owners), 0);
  for (const Piece& piece : plan.pieces) {
    ASSERT_EQ(piece.owners.size(), 1U);
    elements.at(piece.owners.front()) += static_cast<uint64_t>(piece.geometry.elements());
  }
  double makespan = 0.0;
  for (size_t owner = 0; owner < plan.loads.size(); ++owner) {
    EXPECT_EQ(plan.loads[owner].elements, elements[owner]);
    makespan = std::max(makespan, plan.loads[owner].seconds());
  }
  EXPECT_EQ(plan.makespan, makespan);
  EXPECT_LE(plan.makespan, plan.greedy_makespan);
  EXPECT_LE(plan.lower_bound, plan.makespan * (1 + 1e-12));
  std::set<uint32_t> bucketed;
  uint32_t previous_front = 0;
  for (const PlanBucket& bucket : plan.buckets) {
    ASSERT_FALSE(bucket.pieces.empty());
    EXPECT_TRUE(std::is_sorted(bucket.pieces.begin(), bucket.pieces.end()));
    EXPECT_GE(bucket.pieces.front(), previous_front);
    previous_front = bucket.pieces.front();
    for (const uint32_t piece : bucket.pieces) {
      EXPECT_EQ(plan.pieces.at(piece).owners.front(), bucket.owner);
      EXPECT_TRUE(bucketed.insert(piece).second);
    }
  }
  EXPECT_EQ(bucketed.size(), plan.pieces.size());
}

TEST(Plan, CoversEveryElementOnce) {
  const SessionSpec spec = ParseSessionSpec(SpecText(MixedParameters()));
  for (const int owners : {1, 2, 3, 7, 100}) {
    const Plan plan = PlanOf(SpecText(MixedParameters()), owners);
    ExpectEveryElementOnce(spec, plan);
    ExpectConsistent(plan);
  }
}

TEST(Plan, DoesNotDependOnRegistrationOrder) {
  const std::string hash = PlanHash(PlanOf(SpecText(MixedParameters()), 3));
  for (unsigned seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(PlanHash(PlanOf(SpecText(Shuffled(MixedParameters(), seed)), 3)), hash);
  }
}

TEST(Plan, HashSeesWhatOwnersMustAgreeOn) {
  const std::vector<std::string> parameters = MixedParameters();
  std::set<std::string> hashes;
  hashes.insert(PlanHash(PlanOf(SpecText(parameters), 3)));
  hashes.insert(PlanHash(PlanOf(SpecText(parameters), 4)));
  hashes.insert(PlanHash(PlanOf(SpecText(parameters, R"("preset": "moonlight", )"), 3)));
  hashes.insert(
      PlanHash(PlanOf(SpecText(parameters, R"("groups": {"muon": {"restart": [1]}}, )"), 3)));
  hashes.insert(
      PlanHash(PlanOf(SpecText(parameters, R"("groups": {"muon": {"nesterov": false}}, )"), 3)));
  PlanOptions options{3};
  options.bucket_bytes = 1000;
  hashes.insert(PlanHash(MakePlan(ParseSessionSpec(SpecText(parameters)), options)));
  EXPECT_EQ(hashes.size(), 6U);
  EXPECT_EQ(hashes.begin()->size(), 16U);
}

TEST(Plan, WithoutAProfileCountsUsefulFlops) {
  // Direct form: 5(3m^2 n + m^3), so 20 m^3 for squares: 64^3, 48^3, 48^3, 32^3 and two owners. The
  // largest has 262,144, the others together 253,952. One flop is a picosecond.
  const std::string spec =
      SpecText({ParameterText("a", "[32, 32]"), ParameterText("b", "[48, 48]"),
                ParameterText("c", "[48, 48]"), ParameterText("d", "[64, 64]")},
               R"("groups": {"muon": {"form": "direct"}}, )");
  const Plan plan = PlanOf(spec, 2);
  ASSERT_EQ(plan.pieces.size(), 4U);
  EXPECT_EQ(plan.pieces[0].owners.front(), 1U);
  EXPECT_EQ(plan.pieces[1].owners.front(), 1U);
  EXPECT_EQ(plan.pieces[2].owners.front(), 1U);
  EXPECT_EQ(plan.pieces[3].owners.front(), 0U);
  EXPECT_NEAR(plan.loads[0].seconds(), 20e-12 * 262144, 1e-18);
  EXPECT_NEAR(plan.loads[1].seconds(), 20e-12 * 253952, 1e-18);
  EXPECT_TRUE(plan.proven_optimal());
  EXPECT_EQ(plan.loads[1].matrices, 3U);
}

TEST(Plan, CutsElementwiseParametersIntoFixedBlocks) {
  const Plan plan = PlanOf(SpecText({ParameterText("w", "[150000]")}), 2);
  ASSERT_EQ(plan.pieces.size(), 3U);
  EXPECT_EQ(plan.pieces[0].geometry, (StridedMatrix{0, 1, 65536, 65536}));
  EXPECT_EQ(plan.pieces[1].geometry, (StridedMatrix{65536, 1, 65536, 65536}));
  EXPECT_EQ(plan.pieces[2].geometry, (StridedMatrix{131072, 1, 18928, 18928}));
}

TEST(Plan, ClosesBucketsAtTheirSize) {
  PlanOptions options;
  options.bucket_bytes = 2 * 32 * 32 * 4;
  std::vector<std::string> parameters;
  for (int i = 0; i < 5; ++i) {
    parameters.push_back(ParameterText("w" + std::to_string(i), "[32, 32]"));
  }
  const Plan plan = MakePlan(ParseSessionSpec(SpecText(parameters)), options);
  ASSERT_EQ(plan.buckets.size(), 3U);
  EXPECT_EQ(plan.buckets[0].pieces, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(plan.buckets[1].pieces, (std::vector<uint32_t>{2, 3}));
  EXPECT_EQ(plan.buckets[2].pieces, (std::vector<uint32_t>{4}));
}

TEST(Plan, BatchesHoldEqualShapesOfOneGroup) {
  const std::string spec = SpecText(
      {ParameterText("a", "[8, 16]"), ParameterText("b", "[16, 8]"), ParameterText("c", "[8, 16]"),
       ParameterText("d", "[8, 16]", R"(, "group": "slow")"), ParameterText("e", "[16]"),
       ParameterText("f", "[8, 16]", R"(, "group": "slow")")},
      R"("groups": {"slow": {"lr": 0.001}}, )");
  const std::vector<std::vector<uint32_t>> batches = BatchesOf(PlanOf(spec, 1), 0);
  EXPECT_EQ(batches, (std::vector<std::vector<uint32_t>>{{0, 2}, {1}, {3, 5}}));
}

TEST(Plan, BatchesOfAllOwnersHoldEveryMatrixOnce) {
  const Plan plan = PlanOf(SpecText(MixedParameters()), 5);
  std::set<uint32_t> seen;
  for (uint32_t owner = 0; owner < 5; ++owner) {
    for (const std::vector<uint32_t>& batch : BatchesOf(plan, owner)) {
      for (const uint32_t piece : batch) {
        EXPECT_EQ(plan.pieces[piece].owners.front(), owner);
        EXPECT_TRUE(seen.insert(piece).second);
      }
    }
  }
  // conv 1, gate_up 2, experts 4 x 2, 12 layers of qkv 3 and proj 1.
  EXPECT_EQ(seen.size(), 1U + 2 + 8 + 12 * 4);
}

TEST(Plan, ResolvesAutoThroughTheShippedRule) {
  const SessionSpec spec = ParseSessionSpec(SpecText({ParameterText("w", "[64, 64]")}));
  const MuonSettings& settings = spec.groups[static_cast<size_t>(spec.parameters[0].group)].muon;
  for (const auto precision : {kernels::ElementType::kFloat32, kernels::ElementType::kBFloat16}) {
    const kernels::MuonOptions wide = NumericsOf(settings, 256, 4096, precision);
    EXPECT_EQ(wide.newton_schulz.form, kernels::DefaultForm(256, 4096, precision));
    EXPECT_EQ(wide.newton_schulz.precision, precision);
    const kernels::MuonOptions square = NumericsOf(settings, 256, 256, precision);
    EXPECT_EQ(square.newton_schulz.form, kernels::Form::kDirect);
    EXPECT_TRUE(square.newton_schulz.restart.empty());
  }
  MuonSettings stated = settings;
  stated.form = NsForm::kGram;
  stated.restart = std::vector<int>{1, 3};
  stated.precision = Precision::kFp32;
  const kernels::MuonOptions options =
      NumericsOf(stated, 256, 256, kernels::ElementType::kBFloat16);
  EXPECT_EQ(options.newton_schulz.form, kernels::Form::kGram);
  EXPECT_EQ(options.newton_schulz.restart, (std::vector<int>{1, 3}));
  EXPECT_EQ(options.newton_schulz.precision, kernels::ElementType::kFloat32);
}

// Four layers of four equal matrices on four owners: of each layer, every owner has one.
TEST(Plan, SpreadsALayerOverOwners) {
  std::vector<std::string> parameters;
  for (int layer = 0; layer < 4; ++layer) {
    for (const char* name : {"q", "k", "v", "o"}) {
      parameters.push_back(ParameterText("h." + std::to_string(layer) + "." + name, "[64, 64]"));
    }
  }
  const Plan plan = PlanOf(SpecText(parameters), 4);
  for (size_t layer = 0; layer < 4; ++layer) {
    std::set<uint32_t> owners;
    for (size_t i = 4 * layer; i < 4 * layer + 4; ++i) {
      owners.insert(plan.pieces[i].owners.front());
    }
    EXPECT_EQ(owners.size(), 4U) << layer;
  }
}

TEST(Plan, ReportsWhatOwnersKeep) {
  // Muon 64 x 32 in bf16 with fp32 momentum, AdamW 1,000 in fp32.
  const std::string spec = SpecText(
      {ParameterText("w", "[64, 32]", R"(, "dtype": "bf16")"), ParameterText("b", "[1000]")});
  const Plan plan = PlanOf(spec, 1);
  const OwnerBytes& bytes = plan.loads[0].bytes;
  EXPECT_EQ(bytes.gradients, 4 * (2048 + 1000));
  EXPECT_EQ(bytes.masters, 8 * (2048 + 1000));
  EXPECT_EQ(bytes.moments, 8 * 2048 + 16 * 1000);
  EXPECT_EQ(bytes.buckets, 2 * (2 * 2048 + 4 * 1000));
}

TEST(Plan, CountsCommunicationWhereAskedTo) {
  const SessionSpec spec = ParseSessionSpec(SpecText({ParameterText("w", "[100, 50]")}));
  PlanOptions options;
  EXPECT_EQ(MakePlan(spec, options).loads[0].communication_seconds, 0.0);
  options.link_bytes_per_s = 1e6;  // 20,000 bytes of gradient, then of parameter
  const Plan plan = MakePlan(spec, options);
  EXPECT_NEAR(plan.loads[0].communication_seconds, 0.04, 1e-12);
  EXPECT_NEAR(plan.makespan, plan.loads[0].muon_seconds + 0.04, 1e-12);
}

TEST(Plan, KeepsTheMemoryLimitOrRefuses) {
  const SessionSpec spec = ParseSessionSpec(SpecText(MixedParameters()));
  PlanOptions options{3};
  int64_t most = 0;
  int64_t total = 0;
  for (const OwnerLoad& load : MakePlan(spec, options).loads) {
    most = std::max(most, load.bytes.total());
    total += load.bytes.total();
  }
  // Blocks of the embedding are 65,536 elements of 32 bytes: owners cannot be equal to the byte.
  options.memory_limit_bytes = std::max(total / 3 + 65536 * 32, most - 1);
  for (const OwnerLoad& load : MakePlan(spec, options).loads) {
    EXPECT_LE(load.bytes.total(), options.memory_limit_bytes);
  }
  options.memory_limit_bytes = total / 3 - 1;
  EXPECT_THROW(MakePlan(spec, options), std::invalid_argument);
}

TEST(Plan, ReportsIdleOwners) {
  // One matrix on four owners: three of four wait.
  const Plan plan = PlanOf(SpecText({ParameterText("w", "[64, 64]")}), 4);
  EXPECT_NEAR(plan.idle_share(), 0.75, 1e-12);
  EXPECT_TRUE(plan.proven_optimal());
}

TEST(Plan, RefusesNonsense) {
  const SessionSpec spec = ParseSessionSpec(SpecText({ParameterText("w", "[4, 4]")}));
  PlanOptions options;
  options.owners = 0;
  EXPECT_THROW(MakePlan(spec, options), std::invalid_argument);
  options.owners = 1;
  options.bucket_bytes = 0;
  EXPECT_THROW(MakePlan(spec, options), std::invalid_argument);
}

class ModelPlan : public testing::TestWithParam<const char*> {
 protected:
  static SessionSpec Spec() {
    std::ifstream file(std::string(DMUON_MODELS_DIR) + "/" + GetParam());
    std::stringstream text;
    text << file.rdbuf();
    return ParseSessionSpec(text.str());
  }
};

TEST_P(ModelPlan, IsBalanced) {
  const SessionSpec spec = Spec();
  for (const int owners : {1, 2, 8, 64}) {
    PlanOptions options;
    options.owners = owners;
    const Plan plan = MakePlan(spec, options);
    ExpectConsistent(plan);
    EXPECT_LE(plan.makespan, 1.02 * plan.lower_bound) << owners;
    if (owners == 1) {
      EXPECT_TRUE(plan.proven_optimal());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Public, ModelPlan,
                         testing::Values("gpt2-124m.json", "llama-3.1-8b.json",
                                         "moonlight-16b-a3b.json", "pi0-3b.json",
                                         "qwen2.5-1.5b.json", "qwen2.5-7b.json"));

TEST(Plan, HandlesSeventyThousandMatricesOnAThousandOwners) {
  std::vector<std::string> parameters;
  for (int layer = 0; layer < 70; ++layer) {
    parameters.push_back(ParameterText("layers." + std::to_string(layer) + ".experts",
                                       "[1000, 256, 512]", R"(, "view": "stack")"));
  }
  const auto start = std::chrono::steady_clock::now();
  const Plan plan = PlanOf(SpecText(parameters), 1024);
  const Plan copy = ParsePlan(SerializePlan(plan));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(plan.pieces.size(), 70000U);
  EXPECT_EQ(PlanHash(copy), PlanHash(plan));
  // 70,000 equal matrices on 1,024 owners: 69 on most (70,000 / 1,024 = 68.4).
  const double one = plan.loads[0].seconds() / static_cast<double>(plan.loads[0].matrices);
  EXPECT_NEAR(plan.makespan, 69 * one, 1e-9 * plan.makespan);
  EXPECT_TRUE(plan.proven_optimal());
#ifndef DMUON_SANITIZED
  EXPECT_LT(took.count(), 10.0);
#endif
}

}  // namespace
}  // namespace dmuon::scheduler
