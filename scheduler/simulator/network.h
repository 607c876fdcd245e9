// The links of the devices that take part, and what travels on them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "scheduler/simulator/activity.h"
#include "scheduler/simulator/cluster.h"
#include "scheduler/simulator/link.h"

namespace dmuon::simulator {

// Bytes sent in a step, each hop counted once.
struct LinkBytes {
  double intra_node = 0.0;
  double nic = 0.0;   // from node to node
  double host = 0.0;  // between device and host memory
  double busiest_nic_out = 0.0;
  double busiest_nic_in = 0.0;
};

// What a network will carry. Collectives load all links of a kind alike, so one stands for all.
enum class Load { kCollectives, kCollectivesAndBuckets };

class Network {
 public:
  // `cluster`, `events` and `activity` outlive the network. Everything that is under way counts as
  // communication there. Under Load::kCollectives only those and Agree may be called.
  Network(const Cluster& cluster, const Placement& placement, Load load, EventQueue* events,
          Activity* activity);

  // All-gather of `bytes` (what every rank then holds) or its mirror image, the reduce-scatter of
  // `bytes` on every rank: first between the devices of equal number on all nodes, then inside each
  // node, in pieces that keep both kinds of links busy at once.
  void GatherOrScatter(double bytes, Action done);
  // The two in a row.
  void AllReduce(double bytes, Action done);

  // Between the other devices of a node, which move `bytes` in all, and the device `local`.
  void GatherInNode(int node, int local, double bytes, Action done);
  void ScatterInNode(int node, int local, double bytes, Action done);

  // From a device to the device of the same number on another node. `started` runs when the first
  // byte leaves.
  struct Message {
    int from = 0;
    int to = 0;
    int local = 0;
    double bytes = 0.0;
  };
  void SendToNode(const Message& message, Action started, Action done);

  // One small message from each owner to the first and one back.
  void Agree(double message_overhead_s, Action done);

  const Placement& placement() const { return placement_; }
  LinkBytes bytes() const;

 private:
  enum class Direction { kOut, kIn };
  using Links = std::vector<std::unique_ptr<Link>>;

  // Something under way. Actions hold a pointer to it, which is small enough for them to need no
  // memory of their own: a large cluster has millions.
  struct Transfer {
    int64_t parts_left = 0;  // links that it has not passed
    double latency_s = 0.0;  // from the last of them until it is there
    double not_before = 0.0;
    Message message;
    Action started;
    Action done;
  };

  Transfer* Begin(Action done);
  void PartDone(Transfer* transfer);
  void SenderDone(Transfer* transfer);
  void Finish(Transfer* transfer);
  void SendPart(const Links& links, double bytes, Transfer* transfer);
  void InNode(Direction direction, int node, int local, double bytes, Action done);
  void Stage(Link* link, const LinkSpeed& speed, double bytes, Action started, Action done);
  void Wire(const Message& message, Action started, Action done);
  void WireStarted(Transfer* transfer);
  size_t device(int node, int local) const;
  size_t nic(int node, int local) const;
  Links MakeLinks(size_t count, double bytes_per_s);

  const Cluster& cluster_;
  Placement placement_;
  EventQueue* events_;
  Activity* activity_;
  int nics_per_node_;          // 0 on one node
  double ports_a_link_ = 1.0;  // that one link stands for
  double nics_a_link_ = 1.0;
  // A collective's bytes pass an outgoing and an incoming port, so these are subtracted once.
  double collective_port_bytes_ = 0.0;
  Links ports_out_;
  Links ports_in_;
  Links nics_out_;
  Links nics_in_;
  Links hosts_out_;  // empty without host links
  Links hosts_in_;
  Links fabric_;  // one, or empty
  std::deque<Transfer> transfers_;
  std::vector<Transfer*> free_transfers_;
};

}  // namespace dmuon::simulator
