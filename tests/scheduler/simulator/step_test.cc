// Steps whose duration can be worked out on paper.
#include <gtest/gtest.h>

#include "scheduler/simulator/workload.h"
#include "tests/scheduler/simulator/support.h"
#include "tests/scheduler/spec_text.h"

namespace dmuon::simulator {
namespace {

using dmuon::test::ParameterText;
using dmuon::test::SpecText;
using test::kFlopsPerS;
using test::Session;
using test::SmallCluster;
using test::WithoutLinks;

// Two Muon matrices and a table of 2^17 elements, fp32.
std::string SmallModel(const std::string& more = "") {
  return SpecText({ParameterText("h.0.w", "[256, 512]"), ParameterText("h.1.w", "[512, 256]"),
                   ParameterText("wte", "[512, 256]", R"(, "rule": "adamw")")},
                  more);
}
constexpr double kElements = 256 * 512;  // elements of each of the three
constexpr double kTraining = 6 * 3 * kElements * 1000 / kFlopsPerS;  // 1000 tokens
// Five direct iterations without symmetry on 256 x 512, twice.
constexpr double kPlain = 2 * 5 * (4.0 * 256 * 256 * 512 + 2.0 * 256 * 256 * 256) / kFlopsPerS;

TEST(Step, AdamWOnOneDeviceIsArithmeticAndMemory) {
  Session session(SmallModel(), SmallCluster(1, 1), 1e9);
  const SystemResult result = session.Run(System::kAdamW);
  const double update = 28 * 3 * kElements / 1e9;
  EXPECT_NEAR(result.step_s, kTraining + update, 1e-12);
  EXPECT_NEAR(result.forward_s, kTraining / 3, 1e-12);
  EXPECT_NEAR(result.backward_s, kTraining * 2 / 3, 1e-12);
  EXPECT_NEAR(result.optimizer_s, update, 1e-12);
  EXPECT_NEAR(result.optimizer_step_s, update, 1e-12);
  EXPECT_EQ(result.communication_s, 0.0);
  EXPECT_EQ(result.bytes.intra_node, 0.0);
  EXPECT_EQ(result.bytes.nic, 0.0);
}

TEST(Step, GatherOnOneDeviceRunsEveryMatrix) {
  Session session(SmallModel(), SmallCluster(1, 1), 1e9);
  const double update = kPlain + (16 + 10 + 16) * 2 * kElements / 1e9 + 28 * kElements / 1e9;
  const SystemResult result = session.Run(System::kGather);
  EXPECT_NEAR(result.step_s, kTraining + update, 1e-12);
  EXPECT_NEAR(result.optimizer_step_s, update, 1e-12);
}

TEST(Step, DmuondOnOneDeviceRunsItsPlan) {
  Session session(SmallModel(R"("groups": {"muon": {"form": "direct"}}, )"), SmallCluster(1, 1));
  session.options().control_s = 0.25;
  // Symmetric products cost half: 5 (3 m^2 n + m^3) each.
  const double update = 2 * 5 * (3.0 * 256 * 256 * 512 + 256.0 * 256 * 256) / kFlopsPerS;
  const SystemResult result = session.Run(System::kDmuond);
  EXPECT_NEAR(result.step_s, kTraining + 0.25, 1e-9);  // the update runs in those 0.25 s
  EXPECT_NEAR(result.optimizer_s, update, 1e-9);
  EXPECT_NEAR(result.idle_s, 0.25 - update, 1e-9);
  EXPECT_NEAR(result.owner_busy_s.at(0), update, 1e-9);
}

TEST(Step, DmuondReadsAndWritesWhatItCounts) {
  Session session(SpecText({ParameterText("wte", "[512, 256]", R"(, "rule": "adamw")")}),
                  SmallCluster(1, 1), 1e9);
  // Reduction reads and writes 4 bytes an element, AdamW 28, the copy to publish 8.
  EXPECT_NEAR(session.Run(System::kDmuond).optimizer_step_s, (8 + 28 + 8) * kElements / 1e9, 1e-12);
}

TEST(Step, LinksThatTakeNoTimeLeaveTheArithmetic) {
  for (const bool sharded : {true, false}) {
    Session session(SmallModel(), WithoutLinks(SmallCluster(2, 2)));
    session.options().sharded = sharded;
    EXPECT_NEAR(session.Run(System::kTrainingOnly).step_s, kTraining, 1e-12);
    EXPECT_NEAR(session.Run(System::kAdamW).step_s, kTraining, 1e-12);
    EXPECT_NEAR(session.Run(System::kGather).step_s, kTraining + kPlain, 1e-12);
    EXPECT_LT(session.Run(System::kDmuond).step_s, kTraining + kPlain / 2);
  }
}

// Every GPU of a node and its owner do the same: with 4 owners of one block each, an update takes a
// fourth.
TEST(Step, OwnersDivideTheWork) {
  std::vector<std::string> parameters;
  for (int i = 0; i < 4; ++i) {
    parameters.push_back(
        ParameterText("h." + std::to_string(i), "[65536]", R"(, "rule": "adamw")"));
  }
  Session session(SpecText(parameters), WithoutLinks(SmallCluster(2, 2)), 1e9);
  const SystemResult result = session.Run(System::kDmuond);
  for (const double busy : result.owner_busy_s) {
    EXPECT_NEAR(busy, (8 + 28 + 8) * 65536 / 1e9, 1e-12);
  }
}

TEST(Layers, AreNumberedBlocksAndRunsOfTheRest) {
  const SessionSpec spec = ParseSessionSpec(SpecText(
      {ParameterText("wte", "[8]"), ParameterText("h.10.b", "[8]"), ParameterText("h.2.a", "[8]"),
       ParameterText("h.2.b", "[16]"), ParameterText("a.norm", "[4]"),
       ParameterText("a.head", "[4]", R"(, "dtype": "bf16")")}));
  const std::vector<Layer> layers = LayersOf(spec);
  ASSERT_EQ(layers.size(), 4U);
  EXPECT_EQ(layers[0].name, "a.head");  // and a.norm
  EXPECT_EQ(layers[0].elements, 8.0);
  EXPECT_EQ(layers[0].bytes, 4 * 2 + 4 * 4);
  EXPECT_EQ(layers[1].name, "h.2");
  EXPECT_EQ(layers[1].elements, 24.0);
  EXPECT_EQ(layers[2].name, "h.10");
  EXPECT_EQ(layers[3].name, "wte");
  EXPECT_EQ(LayerOfParameter(layers), (std::vector<size_t>{0, 0, 1, 1, 2, 3}));
}

}  // namespace
}  // namespace dmuon::simulator
