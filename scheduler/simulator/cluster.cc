#include "scheduler/simulator/cluster.h"

#include "proto/session_spec.h"
#include "proto/spec_reader.h"
#include "scheduler/profile_formats.h"

namespace dmuon::simulator {
namespace {

using scheduler::Require;

constexpr std::string_view kFormat = "dmuon-cluster-1";
constexpr int kMaxDepth = 3;
constexpr size_t kMaxText = 1024;
constexpr int64_t kMaxNodes = 1 << 16;
constexpr int64_t kMaxPerNode = 256;

int ReadCount(const Json& object, const spec::KeyPath& path, std::string_view key, int64_t max) {
  return static_cast<int>(
      spec::ReadInteger(Require(object, path, key), spec::KeyPath(path, key), 1, max));
}

double ReadBandwidth(const Json& object, const spec::KeyPath& path) {
  constexpr std::string_view kKey = "bytes_per_s";
  return spec::ReadNumber(Require(object, path, kKey), spec::KeyPath(path, kKey),
                          {.exclude_min = true, .rule = "a bandwidth is > 0 bytes a second"});
}

double ReadLatency(const Json& object, const spec::KeyPath& path) {
  constexpr std::string_view kKey = "latency_s";
  return spec::ReadNumber(Require(object, path, kKey), spec::KeyPath(path, kKey),
                          {.max = 10.0, .rule = "a latency is between 0 and 10 seconds"});
}

LinkSpeed ReadLink(const Json& json, const spec::KeyPath& path) {
  spec::CheckKeys(json, path, {"bytes_per_s", "latency_s"});
  return {ReadBandwidth(json, path), ReadLatency(json, path)};
}

std::vector<std::string> ReadNotes(const Json& json, std::string_view key) {
  const Json* notes = spec::Find(json, key);
  if (notes == nullptr) {
    return {};
  }
  const spec::KeyPath path(spec::KeyPath(), key);
  if (!notes->is_array()) {
    spec::Refuse(path, Excerpt(*notes) + " is not a list of strings");
  }
  std::vector<std::string> texts;
  for (size_t i = 0; i < notes->size(); ++i) {
    texts.push_back(spec::ReadText((*notes)[i], spec::KeyPath(path, i), kMaxText));
  }
  return texts;
}

void ReadNic(const Json& json, const spec::KeyPath& path, Cluster* cluster) {
  spec::CheckKeys(json, path, {"per_node", "bytes_per_s", "latency_s"});
  cluster->nics_per_node = ReadCount(json, path, "per_node", kMaxPerNode);
  cluster->nic = {ReadBandwidth(json, path), ReadLatency(json, path)};
  if (cluster->gpus_per_node % cluster->nics_per_node != 0) {
    spec::Refuse(spec::KeyPath(path, "per_node"),
                 std::to_string(cluster->nics_per_node) + " cards cannot be shared evenly by " +
                     std::to_string(cluster->gpus_per_node) +
                     " devices; state a number that divides gpus_per_node");
  }
}

void ReadOptionalLinks(const Json& json, const spec::KeyPath& root, Cluster* cluster) {
  if (const Json* fabric = spec::Find(json, "fabric")) {
    const spec::KeyPath path(root, "fabric");
    spec::CheckKeys(*fabric, path, {"bytes_per_s"});
    cluster->fabric_bytes_per_s = ReadBandwidth(*fabric, path);
  }
  if (const Json* host = spec::Find(json, "host_link")) {
    cluster->host_link = ReadLink(*host, spec::KeyPath(root, "host_link"));
  }
}

Cluster Read(const Json& json) {
  const spec::KeyPath root;
  spec::CheckKeys(json, root,
                  {"format", "name", "sources", "assumptions", "nodes", "gpus_per_node", "profile",
                   "intra_node", "nic", "fabric", "host_link"});
  const Json& format = Require(json, root, "format");
  if (format != kFormat) {
    spec::Refuse(spec::KeyPath(root, "format"),
                 Excerpt(format) + " is not \"" + std::string(kFormat) + "\"");
  }
  Cluster cluster;
  cluster.name = spec::ReadText(Require(json, root, "name"), spec::KeyPath(root, "name"), kMaxText);
  ReadNotes(json, "sources");
  cluster.assumptions = ReadNotes(json, "assumptions");
  cluster.nodes = ReadCount(json, root, "nodes", kMaxNodes);
  cluster.gpus_per_node = ReadCount(json, root, "gpus_per_node", kMaxPerNode);
  cluster.profile =
      spec::ReadText(Require(json, root, "profile"), spec::KeyPath(root, "profile"), kMaxText);
  cluster.intra_node =
      ReadLink(Require(json, root, "intra_node"), spec::KeyPath(root, "intra_node"));
  ReadNic(Require(json, root, "nic"), spec::KeyPath(root, "nic"), &cluster);
  ReadOptionalLinks(json, root, &cluster);
  return cluster;
}

}  // namespace

Cluster ParseCluster(std::string_view json, const std::string& file) {
  try {
    return Read(ParseStrictJson(json, kMaxDepth));
  } catch (const SpecError& error) {
    throw ClusterError(file + ": " + error.what());
  }
}

Placement PlaceOn(const Cluster& cluster, int gpus) {
  const int per_node = cluster.gpus_per_node;
  const int64_t all = int64_t{cluster.nodes} * per_node;
  if (gpus < 1 || gpus > all) {
    throw ClusterError(std::to_string(gpus) + " GPUs: " + cluster.name + " has 1 to " +
                       std::to_string(all));
  }
  if (gpus <= per_node) {
    return {1, gpus};
  }
  if (gpus % per_node != 0) {
    throw ClusterError(std::to_string(gpus) + " GPUs are not whole nodes of " + cluster.name +
                       ", which have " + std::to_string(per_node) + " each");
  }
  return {gpus / per_node, per_node};
}

}  // namespace dmuon::simulator
