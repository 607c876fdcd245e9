// What holds for every model and cluster.
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <numeric>
#include <sstream>

#include "tests/scheduler/simulator/support.h"
#include "tests/scheduler/spec_text.h"

namespace dmuon::simulator {
namespace {

using dmuon::test::MixedParameters;
using dmuon::test::SpecText;
using test::Session;
using test::SmallCluster;

constexpr System kSystems[] = {System::kTrainingOnly, System::kAdamW, System::kGather,
                               System::kDmuond};

std::string Model(const std::string& name) {
  std::ifstream file(std::string(DMUON_MODELS_DIR) + "/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Properties, PartsAddUpToTheStep) {
  for (const bool sharded : {true, false}) {
    Session session(SpecText(MixedParameters()), SmallCluster(2, 2), 1e9);
    session.options().sharded = sharded;
    session.options().control_s = 1e-4;
    for (const System system : kSystems) {
      const SystemResult result = session.Run(system);
      const double parts[] = {result.forward_s, result.backward_s, result.optimizer_s,
                              result.communication_s, result.idle_s};
      EXPECT_NEAR(std::accumulate(std::begin(parts), std::end(parts), 0.0), result.step_s,
                  1e-9 * result.step_s);
      for (const double part : parts) {
        EXPECT_GE(part, -1e-12) << NameOf(system);
      }
    }
  }
}

// Every system, sharded and not, on links of growing bandwidth.
TEST(Properties, ASlowerLinkIsNeverFaster) {
  for (const bool sharded : {true, false}) {
    Session session(Model("gpt2-124m.json"), SmallCluster(4, 4), 1e11);
    session.options().sharded = sharded;
    session.options().tokens = 2000.0;
    for (const System system : kSystems) {
      double slower = std::numeric_limits<double>::max();
      for (double bandwidth = 1e7; bandwidth < 1e13; bandwidth *= 3) {
        session.cluster().nic.bytes_per_s = bandwidth;
        session.cluster().intra_node.bytes_per_s = 5 * bandwidth;
        const double step = session.Run(system).step_s;
        EXPECT_LE(step, slower * (1 + 1e-9)) << NameOf(system) << " " << bandwidth;
        slower = step;
      }
    }
  }
}

TEST(Properties, LatencyNeverHelps) {
  Session session(Model("gpt2-124m.json"), SmallCluster(4, 4), 1e11);
  for (const System system : kSystems) {
    double faster = 0.0;
    for (const double latency : {0.0, 1e-6, 1e-5, 1e-4, 1e-3}) {
      session.cluster().nic.latency_s = latency;
      const double step = session.Run(system).step_s;
      EXPECT_GE(step, faster * (1 - 1e-9)) << NameOf(system) << " " << latency;
      faster = step;
    }
  }
}

TEST(Properties, TheSameRunTwiceIsTheSame) {
  Session session(Model("gpt2-124m.json"), SmallCluster(2, 4), 1e11);
  session.options().timeline = true;
  for (const System system : kSystems) {
    const SystemResult first = session.Run(system);
    const SystemResult second = session.Run(system);
    EXPECT_EQ(first.step_s, second.step_s);
    EXPECT_EQ(first.owner_busy_s, second.owner_busy_s);
    ASSERT_EQ(first.spans.size(), second.spans.size());
    for (size_t i = 0; i < first.spans.size(); ++i) {
      EXPECT_EQ(first.spans[i].lane, second.spans[i].lane);
      EXPECT_EQ(first.spans[i].start_s, second.spans[i].start_s);
      EXPECT_EQ(first.spans[i].end_s, second.spans[i].end_s);
      EXPECT_EQ(first.spans[i].label, second.spans[i].label);
    }
  }
}

TEST(Properties, SpansLieInsideTheStep) {
  Session session(Model("gpt2-124m.json"), SmallCluster(2, 4), 1e11);
  session.options().timeline = true;
  const SystemResult result = session.Run(System::kDmuond);
  size_t published = 0;
  for (const Span& span : result.spans) {
    EXPECT_GE(span.start_s, 0.0);
    EXPECT_LE(span.start_s, span.end_s);
    EXPECT_LE(span.end_s, result.step_s);
    published += span.kind == SpanKind::kPublish ? 1 : 0;
  }
  EXPECT_EQ(published, session.plan().buckets.size());
}

TEST(Properties, RefusesAPlanOfOtherOwners) {
  Session session(SpecText(MixedParameters()), SmallCluster(2, 2));
  session.options().gpus = 2;
  EXPECT_THROW(session.Run(System::kDmuond), ClusterError);
}

#ifndef DMUON_SANITIZED
TEST(Properties, FourThousandDevicesTakeSeconds) {
  Session session(Model("gpt2-124m.json"), SmallCluster(512, 8), 1e11);
  const std::clock_t begin = std::clock();  // of the processor: others may use the machine
  for (const System system : kSystems) {
    EXPECT_GT(session.Run(system).step_s, 0.0);
  }
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 60.0);
}
#endif

}  // namespace
}  // namespace dmuon::simulator
