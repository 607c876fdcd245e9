// Owners at work: pushes while backward runs, reduction, batches, commit, publish. Internal to
// scheduler/simulator/.
#pragma once

#include <memory>
#include <vector>

#include "scheduler/simulator/optimizer.h"
#include "scheduler/simulator/owner_work.h"

namespace dmuon::simulator {

class DmuondOptimizer : public Optimizer {
 public:
  explicit DmuondOptimizer(const Scene& scene);

  void GradientReady(size_t layer) override;
  void BackwardDone() override;

 private:
  // What crosses the links for one bucket.
  struct Bucket {
    int node = 0;                // of its owner
    int local = 0;               // the owner's number on its node: its rail
    double in_node_bytes = 0.0;  // gathered or scattered on each node
    double push_bytes = 0.0;     // from each other node
    double publish_bytes = 0.0;  // to each other node
    std::vector<size_t> layers;  // with parameters in it
    size_t layers_left = 0;      // whose gradients are not ready
    int nodes_left = 0;          // that have not arrived, or not been delivered to
    double first_start = -1.0;   // of the push or publish
  };
  // A device that sends one bucket after the other: gathers the next one while one is on its way.
  struct Sender {
    size_t next = 0;  // in its rail's list
    bool busy = false;
  };
  // An owner that sends its buckets to every node.
  struct Publisher {
    std::vector<size_t> buckets;  // in publish order
    size_t next_bucket = 0;
    int next_hop = 0;  // 0: its own node
  };

  Bucket MakeBucket(size_t index) const;
  void Push(int node, int local);
  void Arrived(size_t bucket);
  void Sealed();
  void TryCommit();
  void Publish(size_t owner);
  void Deliver(size_t bucket, int node);
  void Delivered(size_t bucket);
  void AddSpan(SpanKind kind, size_t bucket);

  size_t sender(int node, int local) const;

  Scene scene_;
  Placement placement_;
  OwnerWork work_;
  std::vector<Bucket> buckets_;
  std::vector<std::vector<size_t>> buckets_of_layer_;
  std::vector<size_t> layer_buckets_left_;  // not delivered
  std::vector<std::vector<size_t>> rails_;  // buckets to push, by the local number of owners
  std::vector<Sender> senders_;             // one per device
  std::vector<Publisher> publishers_;       // one per owner
  bool sealed_ = false;
};

}  // namespace dmuon::simulator
