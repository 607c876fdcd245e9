// What hides behind what, and what never may.
#include <gtest/gtest.h>

#include "tests/scheduler/simulator/support.h"
#include "tests/scheduler/spec_text.h"

namespace dmuon::simulator {
namespace {

using dmuon::test::ParameterText;
using dmuon::test::SpecText;
using test::kFlopsPerS;
using test::Session;
using test::SmallCluster;

// Layers h.0, h.1, ... of one block each; updating them takes no time.
std::string Blocks(int layers, const std::string& more = "") {
  std::vector<std::string> parameters;
  for (int i = 0; i < layers; ++i) {
    parameters.push_back(
        ParameterText("h." + std::to_string(i), "[65536]", R"(, "rule": "adamw")"));
  }
  return SpecText(parameters, more);
}

constexpr double kForward = 2.0 * 65536 * 1000 / kFlopsPerS;  // of a layer and 1000 tokens
constexpr double kLatency = 1e-4;                             // of SmallCluster's cards
constexpr double kAgreement = 2 * kLatency + 2 * 64 / 1e8;    // of two owners

// Two nodes of one device, replicas: each layer has one owner, which gets a bucket of fp32 from the
// other node and sends one back.
TEST(Overlap, APushThatFitsUnderBackwardIsNotExposed) {
  Session session(Blocks(2), SmallCluster(2, 1));
  session.options().sharded = false;
  const double push = kLatency + 65536 * 4 / 1e8;
  for (const double tokens : {20e6, 100e6}) {  // a layer's backward takes longer than a push
    session.options().tokens = tokens;
    const double forward = kForward * tokens / 1000;
    const SystemResult result = session.Run(System::kDmuond);
    // Only the push of h.0, whose gradient comes last, and the publish of h.0 are waited for; those
    // of h.1 go beside them on another owner's links.
    EXPECT_NEAR(result.communication_s, 2 * push + kAgreement, 1e-9);
    EXPECT_NEAR(result.step_s, 6 * forward + 2 * push + kAgreement, 1e-9);
  }
}

TEST(Overlap, OneLayerHasNothingToHideBehind) {
  Session session(Blocks(1), SmallCluster(2, 1));
  session.options().sharded = false;
  const double push = kLatency + 65536 * 4 / 1e8;
  const SystemResult result = session.Run(System::kDmuond);
  EXPECT_NEAR(result.step_s, 3 * kForward + 2 * push + kAgreement, 1e-9);
}

// Eight layers, a bucket each; owner 0 has the even ones, owner 1 the odd ones. A transfer takes as
// long as ten forward or five backward passes of a layer.
TEST(Overlap, TransfersGoOnWhileLayersAreComputed) {
  Session session(Blocks(8), SmallCluster(2, 1), test::kNever, 1);
  session.options().sharded = false;
  ASSERT_EQ(session.plan().buckets.size(), 8U);
  for (uint32_t i = 0; i < 8; ++i) {
    session.plan().pieces[i].owners = {i % 2};
    session.plan().buckets[i].owner = i % 2;
  }
  const double transfer = 65536 * 4 / 1e8;
  session.options().tokens = 1000 * 0.1 * transfer / kForward;
  const SystemResult result = session.Run(System::kDmuond);
  // Layer 6 is the first even one to be ready, after two backward passes. Four even buckets then
  // follow each other on one link, long after the 8 passes have ended. After the commit, four
  // buckets go out on each owner's link and the last two layers are computed.
  const double commit = (2 * 0.2 + 4) * transfer + kLatency + kAgreement;
  EXPECT_NEAR(result.optimizer_step_s, commit - 8 * 0.2 * transfer, 1e-9);
  EXPECT_NEAR(result.step_s, commit + 4 * transfer + kLatency + 2 * 0.1 * transfer, 1e-9);
  EXPECT_NEAR(result.communication_s, result.step_s - 24 * 0.1 * transfer, 1e-9);
}

TEST(Overlap, ClippingWaitsForTheNorm) {
  Session without(Blocks(2), SmallCluster(2, 1));
  Session with(Blocks(2, R"("max_grad_norm": 1.0, )"), SmallCluster(2, 1));
  const double step = without.Run(System::kDmuond).step_s;
  EXPECT_NEAR(with.Run(System::kDmuond).step_s, step + kAgreement, 1e-9);
}

TEST(Overlap, CommitWaitsForTheSeal) {
  Session session(Blocks(2), SmallCluster(2, 1));
  const double step = session.Run(System::kDmuond).step_s;
  session.options().control_s = 1.0;
  const SystemResult late = session.Run(System::kDmuond);
  EXPECT_GT(late.step_s, step + 0.9);
  EXPECT_NEAR(late.optimizer_step_s, 1.0 + kAgreement, 1e-9);
}

}  // namespace
}  // namespace dmuon::simulator
