#include "scheduler/simulator/network.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace dmuon::simulator {
namespace {

constexpr double kMessageBytes = 64.0;  // of an agreement

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

Network::Network(const Cluster& cluster, const Placement& placement, Load load, EventQueue* events,
                 Activity* activity)
    : cluster_(cluster),
      placement_(placement),
      events_(events),
      activity_(activity),
      nics_per_node_(placement.nodes > 1 ? cluster.nics_per_node : 0) {
  auto devices = static_cast<size_t>(placement.gpus());
  auto nics = static_cast<size_t>(placement.nodes) * static_cast<size_t>(nics_per_node_);
  if (load == Load::kCollectives) {
    ports_a_link_ = static_cast<double>(std::exchange(devices, 1));
    nics_a_link_ = static_cast<double>(std::exchange(nics, std::min<size_t>(nics, 1)));
  }
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

Network::Transfer* Network::Begin(Action done) {
  activity_->Begin(Part::kCommunication);
  if (free_transfers_.empty()) {
    transfers_.emplace_back();
    free_transfers_.push_back(&transfers_.back());
  }
  Transfer* transfer = free_transfers_.back();
  free_transfers_.pop_back();
  transfer->done = std::move(done);
  return transfer;
}

void Network::PartDone(Transfer* transfer) {
  if (--transfer->parts_left > 0) {
    return;
  }
  const double there = std::max(events_->now() + transfer->latency_s, transfer->not_before);
  if (there > events_->now()) {
    events_->At(there, [this, transfer] { Finish(transfer); });
  } else {
    Finish(transfer);
  }
}

// The last byte has left a sending card, or the fabric.
void Network::SenderDone(Transfer* transfer) {
  transfer->not_before = events_->now() + cluster_.nic.latency_s;
  PartDone(transfer);
}

void Network::Finish(Transfer* transfer) {
  activity_->End(Part::kCommunication);
  const Action done = std::exchange(transfer->done, nullptr);
  *transfer = Transfer{};
  free_transfers_.push_back(transfer);
  done();
}

void Network::SendPart(const Links& links, double bytes, Transfer* transfer) {
  for (const auto& link : links) {
    link->Send(Traffic::kTraining, bytes, nullptr, [this, transfer] { PartDone(transfer); });
  }
}

// Of b bytes on n nodes of l devices, each device moves b (n-1) / (n l) over its card and
// b (l-1) / l inside its node: b (nl-1) / (nl) in all, as on a ring.
void Network::GatherOrScatter(double bytes, Action done) {
  const double nodes = placement_.nodes;
  const double locals = placement_.gpus_per_node;
  const double per_port = bytes * (locals - 1.0) / locals;
  const double per_nic =
      placement_.nodes > 1 ? bytes * (nodes - 1.0) / (nodes * nics_per_node_) : 0.0;
  Transfer* transfer = Begin(std::move(done));
  transfer->parts_left =
      static_cast<int64_t>(2 * ports_out_.size() + 2 * nics_out_.size() + fabric_.size());
  transfer->latency_s = cluster_.nic.latency_s * HopsOfDoubling(placement_.nodes) +
                        cluster_.intra_node.latency_s * (placement_.gpus_per_node - 1);
  collective_port_bytes_ += per_port * static_cast<double>(ports_in_.size());
  SendPart(ports_out_, per_port, transfer);
  SendPart(ports_in_, per_port, transfer);
  SendPart(nics_out_, per_nic, transfer);
  SendPart(nics_in_, per_nic, transfer);
  SendPart(fabric_, per_nic * static_cast<double>(nics_out_.size()) * nics_a_link_, transfer);
}

void Network::AllReduce(double bytes, Action done) {
  GatherOrScatter(bytes, [this, bytes, done = std::move(done)]() mutable {
    GatherOrScatter(bytes, std::move(done));
  });
}

// One link from end to end.
void Network::Stage(Link* link, const LinkSpeed& speed, double bytes, Action started, Action done) {
  Transfer* transfer = Begin(std::move(done));
  transfer->parts_left = 1;
  transfer->latency_s = speed.latency_s;
  link->Send(Traffic::kOwners, bytes, std::move(started), [this, transfer] { PartDone(transfer); });
}

// The device in the middle is the narrow place: the others have one share each to move.
void Network::InNode(Direction direction, int node, int local, double bytes, Action done) {
  if (bytes <= 0.0) {
    done();
    return;
  }
  Links& ports = direction == Direction::kIn ? ports_in_ : ports_out_;
  Stage(ports[device(node, local)].get(), cluster_.intra_node, bytes, nullptr, std::move(done));
}

void Network::GatherInNode(int node, int local, double bytes, Action done) {
  InNode(Direction::kIn, node, local, bytes, std::move(done));
}

void Network::ScatterInNode(int node, int local, double bytes, Action done) {
  InNode(Direction::kOut, node, local, bytes, std::move(done));
}

void Network::SendToNode(const Message& message, Action started, Action done) {
  if (hosts_out_.empty()) {
    Wire(message, std::move(started), std::move(done));
    return;
  }
  Stage(hosts_out_[device(message.from, message.local)].get(), *cluster_.host_link, message.bytes,
        std::move(started), [this, message, done = std::move(done)]() mutable {
          Wire(message, nullptr, [this, message, done = std::move(done)]() mutable {
            Stage(hosts_in_[device(message.to, message.local)].get(), *cluster_.host_link,
                  message.bytes, nullptr, std::move(done));
          });
        });
}

// Cut-through: the first byte enters the receiver's card one latency after it left the sender's,
// and the message is there when the slower of the two has passed it. The fabric never refuses a
// byte.
void Network::Wire(const Message& message, Action started, Action done) {
  Transfer* transfer = Begin(std::move(done));
  transfer->parts_left = 2 + static_cast<int64_t>(fabric_.size());
  transfer->message = message;
  transfer->started = std::move(started);
  nics_out_[nic(message.from, message.local)]->Send(
      Traffic::kOwners, message.bytes, [this, transfer] { WireStarted(transfer); },
      [this, transfer] { SenderDone(transfer); });
}

void Network::WireStarted(Transfer* transfer) {
  for (const auto& fabric : fabric_) {
    fabric->Send(Traffic::kOwners, transfer->message.bytes, nullptr,
                 [this, transfer] { SenderDone(transfer); });
  }
  events_->After(cluster_.nic.latency_s, [this, transfer] {
    const Message& message = transfer->message;
    nics_in_[nic(message.to, message.local)]->Send(Traffic::kOwners, message.bytes, nullptr,
                                                   [this, transfer] { PartDone(transfer); });
  });
  if (transfer->started) {
    std::exchange(transfer->started, nullptr)();
  }
}

// Owner 0 receives and sends one message after the other, as MPI does.
void Network::Agree(double message_overhead_s, Action done) {
  const bool far = placement_.nodes > 1;
  const LinkSpeed& link = far ? cluster_.nic : cluster_.intra_node;
  const double messages = 2.0 * (placement_.gpus() - 1);
  const double latency = placement_.gpus() > 1 ? 2.0 * link.latency_s : 0.0;
  Transfer* transfer = Begin(std::move(done));
  events_->After(latency + messages * (message_overhead_s + kMessageBytes / link.bytes_per_s),
                 [this, transfer] { Finish(transfer); });
}

LinkBytes Network::bytes() const {
  LinkBytes bytes;
  bytes.intra_node = (Sum(ports_out_) + Sum(ports_in_) - collective_port_bytes_) * ports_a_link_;
  bytes.nic = Sum(nics_out_) * nics_a_link_;
  bytes.host = Sum(hosts_out_) + Sum(hosts_in_);
  bytes.busiest_nic_out = Largest(nics_out_);
  bytes.busiest_nic_in = Largest(nics_in_);
  return bytes;
}

}  // namespace dmuon::simulator
