#include "scheduler/simulator/network.h"

#include <algorithm>
#include <bit>

namespace dmuon::simulator {
namespace {

constexpr double kMessageBytes = 64.0;  // of an agreement

// An action that runs `done` when it has been called `count` times.
Action Countdown(int64_t count, Action done) {
  return [left = std::make_shared<int64_t>(count), done = std::move(done)] {
    if (--*left == 0) {
      done();
    }
  };
}

double HopsOfDoubling(int nodes) { return std::bit_width(static_cast<unsigned>(nodes - 1)); }

double Sum(const std::vector<std::unique_ptr<Link>>& links) {
  double bytes = 0.0;
  for (const auto& link : links) {
    bytes += link->bytes();
  }
  return bytes;
}

double Largest(const std::vector<std::unique_ptr<Link>>& links) {
  double bytes = 0.0;
  for (const auto& link : links) {
    bytes = std::max(bytes, link->bytes());
  }
  return bytes;
}

}  // namespace

Network::Network(const Cluster& cluster, const Placement& placement, EventQueue* events,
                 Activity* activity)
    : cluster_(cluster),
      placement_(placement),
      events_(events),
      activity_(activity),
      nics_per_node_(placement.nodes > 1 ? cluster.nics_per_node : 0) {
  const auto devices = static_cast<size_t>(placement.gpus());
  const auto nics = static_cast<size_t>(placement.nodes) * static_cast<size_t>(nics_per_node_);
  ports_out_ = MakeLinks(devices, cluster.intra_node.bytes_per_s);
  ports_in_ = MakeLinks(devices, cluster.intra_node.bytes_per_s);
  nics_out_ = MakeLinks(nics, cluster.nic.bytes_per_s);
  nics_in_ = MakeLinks(nics, cluster.nic.bytes_per_s);
  if (cluster.host_link.has_value() && placement.nodes > 1) {
    hosts_out_ = MakeLinks(devices, cluster.host_link->bytes_per_s);
    hosts_in_ = MakeLinks(devices, cluster.host_link->bytes_per_s);
  }
  if (cluster.fabric_bytes_per_s.has_value() && placement.nodes > 1) {
    fabric_ = MakeLinks(1, *cluster.fabric_bytes_per_s);
  }
}

Network::Links Network::MakeLinks(size_t count, double bytes_per_s) {
  Links links;
  for (size_t i = 0; i < count; ++i) {
    links.push_back(std::make_unique<Link>(events_, bytes_per_s));
  }
  return links;
}

size_t Network::device(int node, int local) const {
  return static_cast<size_t>(node) * static_cast<size_t>(placement_.gpus_per_node) +
         static_cast<size_t>(local);
}

// Neighbouring devices share a card.
size_t Network::nic(int node, int local) const {
  return static_cast<size_t>(node) * static_cast<size_t>(nics_per_node_) +
         static_cast<size_t>(local * nics_per_node_ / placement_.gpus_per_node);
}

// `done`, after taking what is under way off the count.
Action Network::Counted(Action done) {
  activity_->Begin(Part::kCommunication);
  return [this, done = std::move(done)] {
    activity_->End(Part::kCommunication);
    done();
  };
}

void Network::GatherOrScatter(double bytes, Action done) {
  Collective(bytes,
             cluster_.nic.latency_s * HopsOfDoubling(placement_.nodes) +
                 cluster_.intra_node.latency_s * (placement_.gpus_per_node - 1),
             std::move(done));
}

void Network::AllReduce(double bytes, Action done) {
  GatherOrScatter(bytes, [this, bytes, done = std::move(done)]() mutable {
    GatherOrScatter(bytes, std::move(done));
  });
}

// Of b bytes on n nodes of l devices, each device moves b (n-1) / (n l) over its card and
// b (l-1) / l inside its node: b (nl-1) / (nl) in all, as on a ring.
void Network::Collective(double bytes, double latency_s, Action done) {
  const double nodes = placement_.nodes;
  const double locals = placement_.gpus_per_node;
  const double per_port = bytes * (locals - 1.0) / locals;
  const double per_nic =
      placement_.nodes > 1 ? bytes * (nodes - 1.0) / (nodes * nics_per_node_) : 0;
  const Action last = [this, latency_s, counted = Counted(std::move(done))] {
    events_->After(latency_s, counted);
  };
  const auto links = static_cast<int64_t>(ports_out_.size() + ports_in_.size() + nics_out_.size() +
                                          nics_in_.size() + fabric_.size());
  const Action one = Countdown(links, last);
  collective_port_bytes_ += per_port * static_cast<double>(ports_in_.size());
  for (const Links* group : {&ports_out_, &ports_in_}) {
    for (const auto& link : *group) {
      link->Send(Traffic::kTraining, per_port, nullptr, one);
    }
  }
  for (const Links* group : {&nics_out_, &nics_in_}) {
    for (const auto& link : *group) {
      link->Send(Traffic::kTraining, per_nic, nullptr, one);
    }
  }
  for (const auto& link : fabric_) {
    link->Send(Traffic::kTraining, per_nic * static_cast<double>(nics_out_.size()), nullptr, one);
  }
}

// One link from end to end.
void Network::Stage(Link* link, const LinkSpeed& speed, double bytes, Action started, Action done) {
  link->Send(Traffic::kOwners, bytes, std::move(started),
             [this, latency = speed.latency_s, done = std::move(done)]() mutable {
               events_->After(latency, std::move(done));
             });
}

// The device in the middle is the narrow place: the others have one share each to move.
void Network::InNode(Direction direction, int node, int local, double bytes, Action done) {
  if (bytes <= 0.0) {
    done();
    return;
  }
  Links& ports = direction == Direction::kIn ? ports_in_ : ports_out_;
  Stage(ports[device(node, local)].get(), cluster_.intra_node, bytes, nullptr,
        Counted(std::move(done)));
}

void Network::GatherInNode(int node, int local, double bytes, Action done) {
  InNode(Direction::kIn, node, local, bytes, std::move(done));
}

void Network::ScatterInNode(int node, int local, double bytes, Action done) {
  InNode(Direction::kOut, node, local, bytes, std::move(done));
}

void Network::SendToNode(const Message& message, Action started, Action done) {
  Action counted = Counted(std::move(done));
  if (hosts_out_.empty()) {
    Wire(message, std::move(started), std::move(counted));
    return;
  }
  const LinkSpeed& speed = *cluster_.host_link;
  Stage(hosts_out_[device(message.from, message.local)].get(), speed, message.bytes,
        std::move(started), [this, message, &speed, counted = std::move(counted)]() mutable {
          Link* to_device = hosts_in_[device(message.to, message.local)].get();
          Wire(message, nullptr,
               [this, to_device, &speed, message, counted = std::move(counted)]() mutable {
                 Stage(to_device, speed, message.bytes, nullptr, std::move(counted));
               });
        });
}

// Cut-through: the first byte enters the receiver's card one latency after it left the sender's,
// and the message is there when the slower of the two has passed it. The fabric never refuses a
// byte.
void Network::Wire(const Message& message, Action started, Action done) {
  Link* receiver = nics_in_[nic(message.to, message.local)].get();
  Link* fabric = fabric_.empty() ? nullptr : fabric_.front().get();
  const double latency = cluster_.nic.latency_s;
  const Action one = Countdown(fabric == nullptr ? 2 : 3, std::move(done));
  const Action one_later = [this, latency, one] { events_->After(latency, one); };
  nics_out_[nic(message.from, message.local)]->Send(
      Traffic::kOwners, message.bytes,
      [this, receiver, fabric, latency, bytes = message.bytes, one, one_later,
       started = std::move(started)] {
        if (fabric != nullptr) {
          fabric->Send(Traffic::kOwners, bytes, nullptr, one_later);
        }
        events_->After(latency, [receiver, bytes, one] {
          receiver->Send(Traffic::kOwners, bytes, nullptr, one);
        });
        if (started) {
          started();
        }
      },
      one_later);
}

// Owner 0 receives and sends one message after the other, as MPI does.
void Network::Agree(double message_overhead_s, Action done) {
  const bool far = placement_.nodes > 1;
  const LinkSpeed& link = far ? cluster_.nic : cluster_.intra_node;
  const double messages = 2.0 * (placement_.gpus() - 1);
  const double latency = placement_.gpus() > 1 ? 2.0 * link.latency_s : 0.0;
  events_->After(latency + messages * (message_overhead_s + kMessageBytes / link.bytes_per_s),
                 Counted(std::move(done)));
}

LinkBytes Network::bytes() const {
  LinkBytes bytes;
  bytes.intra_node = Sum(ports_out_) + Sum(ports_in_) - collective_port_bytes_;
  bytes.nic = Sum(nics_out_);
  bytes.host = Sum(hosts_out_) + Sum(hosts_in_);
  bytes.busiest_nic_out = Largest(nics_out_);
  bytes.busiest_nic_in = Largest(nics_in_);
  return bytes;
}

}  // namespace dmuon::simulator
