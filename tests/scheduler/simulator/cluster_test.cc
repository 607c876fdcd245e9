#include "scheduler/simulator/cluster.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace dmuon::simulator {
namespace {

constexpr std::string_view kGood = R"({"format": "dmuon-cluster-1", "name": "lab", "nodes": 4,
  "gpus_per_node": 8, "profile": "h100", "intra_node": {"bytes_per_s": 4.5e11, "latency_s": 3e-6},
  "nic": {"per_node": 4, "bytes_per_s": 5e10, "latency_s": 5e-6}})";

// kGood with `from` replaced by `to`.
std::string With(const std::string& from, const std::string& to) {
  std::string text(kGood);
  return text.replace(text.find(from), from.size(), to);
}

std::string Refusal(const std::string& text) {
  try {
    ParseCluster(text, "lab.json");
  } catch (const ClusterError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Cluster, ReadsADescription) {
  const Cluster cluster = ParseCluster(kGood, "lab.json");
  EXPECT_EQ(cluster.nodes, 4);
  EXPECT_EQ(cluster.gpus_per_node, 8);
  EXPECT_EQ(cluster.profile, "h100");
  EXPECT_EQ(cluster.intra_node.bytes_per_s, 4.5e11);
  EXPECT_EQ(cluster.nics_per_node, 4);
  EXPECT_EQ(cluster.nic.latency_s, 5e-6);
  EXPECT_FALSE(cluster.fabric_bytes_per_s.has_value());
  EXPECT_FALSE(cluster.host_link.has_value());
}

TEST(Cluster, ReadsOptionalLinks) {
  const Cluster cluster =
      ParseCluster(With(R"("nodes": 4)", R"("nodes": 4, "fabric": {"bytes_per_s": 1e11},
           "host_link": {"bytes_per_s": 2e10, "latency_s": 1e-5})"),
                   "lab.json");
  EXPECT_EQ(cluster.fabric_bytes_per_s, 1e11);
  EXPECT_EQ(cluster.host_link->bytes_per_s, 2e10);
}

TEST(Cluster, RefusalsNameFileKeyAndValue) {
  EXPECT_EQ(Refusal(With(R"("nodes")", R"("noodes")")),
            "lab.json: noodes: unknown key; did you mean nodes? (its value is 4)");
  const std::vector<std::pair<std::string, std::string>> refusals = {
      {With(R"("latency_s": 5e-6)", R"("latency_ms": 5e-6)"), "nic.latency_ms: unknown key"},
      {With(R"("nodes": 4,)", ""), "\"nodes\""},
      {With(R"("nodes": 4)", R"("nodes": 0)"), "nodes: 0"},
      {With(R"("nodes": 4)", R"("nodes": "4")"), "nodes: \"4\""},
      {With("4.5e11", "0"), "intra_node.bytes_per_s: 0"},
      {With("4.5e11", "-1"), "intra_node.bytes_per_s: -1"},
      {With("3e-6", "-1"), "intra_node.latency_s: -1"},
      {With(R"("per_node": 4)", R"("per_node": 3)"), "nic.per_node: 3 cards"},
      {With("dmuon-cluster-1", "dmuon-cluster-2"), "format: \"dmuon-cluster-2\""},
      {With(R"("nodes": 4)", R"("nodes": 4, "nodes": 5)"), "occurs twice"},
      {"", "is empty"},
      {"{", "not JSON"},
  };
  for (const auto& [text, expected] : refusals) {
    const std::string refusal = Refusal(text);
    EXPECT_EQ(refusal.rfind("lab.json: ", 0), 0U) << refusal;
    EXPECT_NE(refusal.find(expected), std::string::npos) << refusal;
    EXPECT_EQ(refusal.find('\n'), std::string::npos) << refusal;
  }
}

TEST(Cluster, PlacesRunsOnWholeNodesOrAPartOfOne) {
  const Cluster cluster = ParseCluster(kGood, "lab.json");
  EXPECT_EQ(PlaceOn(cluster, 1).gpus_per_node, 1);
  EXPECT_EQ(PlaceOn(cluster, 8).nodes, 1);
  EXPECT_EQ(PlaceOn(cluster, 24).nodes, 3);
  EXPECT_EQ(PlaceOn(cluster, 32).gpus(), 32);
  for (const int gpus : {0, -8, 12, 33, 40}) {
    EXPECT_THROW(PlaceOn(cluster, gpus), ClusterError) << gpus;
  }
}

TEST(Cluster, SamplesAreRead) {
  int samples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(DMUON_CLUSTERS_DIR)) {
    std::ifstream file(entry.path());
    std::ostringstream text;
    text << file.rdbuf();
    const Cluster cluster = ParseCluster(text.str(), entry.path().filename());
    EXPECT_FALSE(cluster.assumptions.empty()) << entry.path();
    ++samples;
  }
  EXPECT_GE(samples, 4);
}

}  // namespace
}  // namespace dmuon::simulator
