// The machines that a step is simulated on. File format: scheduler/simulator/README.md.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace dmuon::simulator {

// A cluster file or a choice that is refused. what() is one line naming file, key and value.
class ClusterError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

struct LinkSpeed {
  double bytes_per_s = 0.0;  // one direction; the other is the same
  double latency_s = 0.0;
};

// Alike nodes of alike devices.
struct Cluster {
  std::string name;
  std::vector<std::string> assumptions;  // for people
  int nodes = 1;
  int gpus_per_node = 1;
  std::string profile;   // of a device: a shipped profile's name or a file
  LinkSpeed intra_node;  // each device to the others of its node
  int nics_per_node = 1;
  LinkSpeed nic;  // each card; its latency is that of one message from device to device
  // What all nodes together can have under way between them; unset: the cards are the only limit.
  std::optional<double> fabric_bytes_per_s;
  // Where cards cannot reach device memory: the daemon's traffic between nodes takes this link on
  // both ends, one per device.
  std::optional<LinkSpeed> host_link;
};

// Reads a description strictly. `file` is for messages. Throws ClusterError.
Cluster ParseCluster(std::string_view json, const std::string& file);

// The devices of a run: whole nodes, or a part of one.
struct Placement {
  int nodes = 1;
  int gpus_per_node = 1;

  int gpus() const { return nodes * gpus_per_node; }
};

// Throws ClusterError where the cluster has no such set of devices.
Placement PlaceOn(const Cluster& cluster, int gpus);

}  // namespace dmuon::simulator
