// Bytes on the links, counted by hand.
#include <gtest/gtest.h>

#include "tests/scheduler/simulator/support.h"
#include "tests/scheduler/spec_text.h"

namespace dmuon::simulator {
namespace {

using dmuon::test::ParameterText;
using dmuon::test::SpecText;
using test::Session;
using test::SmallCluster;

// Two equal matrices of one layer, so that each of two owners has one. 16,384 bytes in fp32.
std::string TwoMatrices(const std::string& dtype) {
  const std::string more = R"(, "dtype": ")" + dtype + "\"";
  return SpecText({ParameterText("a", "[64, 64]", more), ParameterText("b", "[64, 64]", more)});
}
constexpr double kMatrix = 64 * 64 * 4;
constexpr double kModel = 2 * kMatrix;

TEST(Bytes, ShardsCrossOnceEachWay) {
  Session session(TwoMatrices("fp32"), SmallCluster(2, 1));
  // The framework scatters the gradient and gathers the parameters of the forward pass: each node
  // receives the half that it lacks. (The only layer stays gathered for backward.)
  const double framework = 2 * (kModel / 2) + 2 * (kModel / 2);
  EXPECT_DOUBLE_EQ(session.Run(System::kAdamW).bytes.nic, framework);
  // Half of each matrix is already on its owner's node, the other half crosses; so does the
  // published half.
  EXPECT_DOUBLE_EQ(session.Run(System::kDmuond).bytes.nic, framework + kModel / 2 + kModel / 2);
  // Every update is gathered once more.
  EXPECT_DOUBLE_EQ(session.Run(System::kGather).bytes.nic, framework + 2 * (kModel / 2));
}

TEST(Bytes, ReplicasCrossOnceAsSumsOfTheirNode) {
  Session session(TwoMatrices("fp32"), SmallCluster(2, 1));
  session.options().sharded = false;
  EXPECT_DOUBLE_EQ(session.Run(System::kAdamW).bytes.nic, 2 * 2 * (kModel / 2));
  EXPECT_DOUBLE_EQ(session.Run(System::kGather).bytes.nic, 2 * 2 * (kModel / 2));
  EXPECT_DOUBLE_EQ(session.Run(System::kDmuond).bytes.nic, kModel + kModel);
}

TEST(Bytes, HalfPrecisionHalvesAllButTheSums) {
  Session session(TwoMatrices("bf16"), SmallCluster(2, 1));
  EXPECT_DOUBLE_EQ(session.Run(System::kAdamW).bytes.nic, kModel);
  session.options().sharded = false;
  EXPECT_DOUBLE_EQ(session.Run(System::kDmuond).bytes.nic, kModel + kModel / 2);
}

// Two nodes of two devices, four matrices: each owner has one.
TEST(Bytes, NodesGatherBeforeTheySend) {
  std::vector<std::string> parameters;
  for (const char* name : {"a", "b", "c", "d"}) {
    parameters.push_back(ParameterText(name, "[64, 64]"));
  }
  Session session(SpecText(parameters), SmallCluster(2, 2));
  const double training = session.Run(System::kTrainingOnly).bytes.nic;
  const double training_inside = session.Run(System::kTrainingOnly).bytes.intra_node;
  const SystemResult shards = session.Run(System::kDmuond);
  // Of each matrix, half crosses on the way to its owner and half on the way back; on each node one
  // of two quarters moves to the device with the owner's number, and back.
  EXPECT_DOUBLE_EQ(shards.bytes.nic - training, 4 * (kMatrix / 2 + kMatrix / 2));
  EXPECT_DOUBLE_EQ(shards.bytes.intra_node - training_inside, 4 * 2 * 2 * (kMatrix / 4));
  session.options().sharded = false;
  const SystemResult replicas = session.Run(System::kDmuond);
  EXPECT_DOUBLE_EQ(replicas.bytes.nic, 4 * (kMatrix + kMatrix));
  EXPECT_DOUBLE_EQ(replicas.bytes.intra_node, 4 * 2 * 2 * kMatrix);
}

TEST(Bytes, EachRailHasItsOwnersTraffic) {
  std::vector<std::string> parameters;
  for (const char* name : {"a", "b", "c", "d"}) {
    parameters.push_back(ParameterText(name, "[64, 64]"));
  }
  Session session(SpecText(parameters), SmallCluster(2, 2));
  session.options().sharded = false;
  // Each device's card sends one matrix to the owner across and publishes its own.
  EXPECT_DOUBLE_EQ(session.Run(System::kDmuond).bytes.busiest_nic_out, 2 * kMatrix);
  EXPECT_DOUBLE_EQ(session.Run(System::kDmuond).bytes.busiest_nic_in, 2 * kMatrix);
}

TEST(Bytes, HostLinksCarryWhatCrosses) {
  Session session(TwoMatrices("fp32"), SmallCluster(2, 1));
  session.options().sharded = false;
  session.cluster().host_link = LinkSpeed{1e9, 1e-5};
  EXPECT_DOUBLE_EQ(session.Run(System::kDmuond).bytes.host, 2 * (kModel + kModel));
}

}  // namespace
}  // namespace dmuon::simulator
