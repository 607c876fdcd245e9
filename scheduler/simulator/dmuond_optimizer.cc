#include "scheduler/simulator/dmuond_optimizer.h"

#include <algorithm>

namespace dmuon::simulator {

DmuondOptimizer::DmuondOptimizer(const Scene& scene)
    : scene_(scene),
      placement_(scene.network->placement()),
      work_(scene, [this] { TryCommit(); }),
      buckets_of_layer_(scene.layers.size()),
      layer_buckets_left_(scene.layers.size(), 0),
      rails_(static_cast<size_t>(placement_.gpus_per_node)),
      senders_(static_cast<size_t>(placement_.gpus())),
      publishers_(static_cast<size_t>(placement_.gpus())) {
  const std::vector<size_t> layer_of = LayerOfParameter(scene.layers);
  const scheduler::Plan& plan = scene.scenario.plan;
  for (size_t i = 0; i < plan.buckets.size(); ++i) {
    Bucket bucket = MakeBucket(i);
    for (const uint32_t piece : plan.buckets[i].pieces) {  // ascending, so layers are too
      const size_t layer = layer_of[plan.pieces[piece].parameter];
      if (bucket.layers.empty() || bucket.layers.back() != layer) {
        bucket.layers.push_back(layer);
        buckets_of_layer_[layer].push_back(i);
        ++layer_buckets_left_[layer];
      }
    }
    bucket.layers_left = bucket.layers.size();
    publishers_[plan.buckets[i].owner].buckets.push_back(i);
    buckets_.push_back(std::move(bucket));
  }
}

// Shards: a node has 1 / nodes of each bucket and a device its equal part of that. Replicas: every
// device has all of it; sums of nodes cross in fp32.
DmuondOptimizer::Bucket DmuondOptimizer::MakeBucket(size_t index) const {
  const Scenario& scenario = scene_.scenario;
  const scheduler::PlanBucket& planned = scenario.plan.buckets[index];
  double elements = 0.0;
  double bytes = 0.0;
  for (const uint32_t piece : planned.pieces) {
    const StridedMatrix& geometry = scenario.plan.pieces[piece].geometry;
    const ParameterSpec& parameter =
        scenario.spec.parameters[scenario.plan.pieces[piece].parameter];
    elements += static_cast<double>(geometry.elements());
    bytes += static_cast<double>(geometry.elements() * SizeOf(parameter.dtype));
  }
  const auto owner = static_cast<int>(planned.owner);
  const double others = placement_.gpus_per_node - 1;
  Bucket bucket;
  bucket.node = owner / placement_.gpus_per_node;
  bucket.local = owner % placement_.gpus_per_node;
  if (scenario.options.sharded) {
    bucket.in_node_bytes = bytes / placement_.gpus() * others;
    bucket.push_bytes = bytes / placement_.nodes;
    bucket.publish_bytes = bucket.push_bytes;
  } else {
    bucket.in_node_bytes = bytes * others;
    bucket.push_bytes = elements * kFp32Bytes;
    bucket.publish_bytes = bytes;
  }
  bucket.nodes_left = placement_.nodes;
  return bucket;
}

size_t DmuondOptimizer::sender(int node, int local) const {
  return static_cast<size_t>(node) * static_cast<size_t>(placement_.gpus_per_node) +
         static_cast<size_t>(local);
}

void DmuondOptimizer::AddSpan(SpanKind kind, size_t bucket) {
  if (scene_.spans != nullptr) {
    const auto owner = static_cast<int>(scene_.scenario.plan.buckets[bucket].owner);
    scene_.spans->push_back({owner, kind, buckets_[bucket].first_start, scene_.events->now(),
                             "bucket " + std::to_string(bucket)});
  }
}

void DmuondOptimizer::GradientReady(size_t layer) {
  for (const size_t index : buckets_of_layer_[layer]) {
    Bucket& bucket = buckets_[index];
    if (--bucket.layers_left == 0) {
      bucket.first_start = scene_.events->now();
      rails_[static_cast<size_t>(bucket.local)].push_back(index);
    }
  }
  for (int node = 0; node < placement_.nodes; ++node) {
    for (int local = 0; local < placement_.gpus_per_node; ++local) {
      Push(node, local);
    }
  }
}

// On each node the device with the owner's number gathers the bucket and sends it on.
void DmuondOptimizer::Push(int node, int local) {
  Sender& device = senders_[sender(node, local)];
  const std::vector<size_t>& rail = rails_[static_cast<size_t>(local)];
  if (device.busy || device.next == rail.size()) {
    return;
  }
  const size_t index = rail[device.next++];
  device.busy = true;
  const auto next = [this, node, local] {
    senders_[sender(node, local)].busy = false;
    Push(node, local);
  };
  scene_.network->GatherInNode(
      node, local, buckets_[index].in_node_bytes, [this, node, local, index, next] {
        const Bucket& bucket = buckets_[index];
        if (bucket.node == node) {
          Arrived(index);
          next();
          return;
        }
        scene_.network->SendToNode({node, bucket.node, local, bucket.push_bytes}, next,
                                   [this, index] { Arrived(index); });
      });
}

void DmuondOptimizer::Arrived(size_t bucket) {
  if (--buckets_[bucket].nodes_left > 0) {
    return;
  }
  AddSpan(SpanKind::kPush, bucket);
  work_.Arrived(bucket);
}

void DmuondOptimizer::BackwardDone() {
  scene_.events->After(scene_.scenario.options.control_s, [this] {
    sealed_ = true;
    TryCommit();
  });
}

void DmuondOptimizer::TryCommit() {
  if (!sealed_ || !work_.done()) {
    return;
  }
  const double start = scene_.events->now();
  scene_.network->Agree(scene_.scenario.options.message_overhead_s, [this, start] {
    updated_s_ = scene_.events->now();
    if (scene_.spans != nullptr) {
      scene_.spans->push_back({kTrainersLane, SpanKind::kCommit, start, updated_s_, "commit"});
    }
    for (Bucket& bucket : buckets_) {
      bucket.nodes_left = placement_.nodes;
      bucket.first_start = -1.0;
    }
    for (size_t owner = 0; owner < publishers_.size(); ++owner) {
      Publish(owner);
    }
  });
}

// One message after the other, early buckets first; each owner begins with its own node and then
// goes around, so that no node hears all owners at once.
void DmuondOptimizer::Publish(size_t owner) {
  Publisher& publisher = publishers_[owner];
  if (publisher.next_bucket == publisher.buckets.size()) {
    return;
  }
  const size_t index = publisher.buckets[publisher.next_bucket];
  Bucket& bucket = buckets_[index];
  const int node = (bucket.node + publisher.next_hop) % placement_.nodes;
  if (publisher.next_hop++ == 0) {
    bucket.first_start = scene_.events->now();
  }
  if (publisher.next_hop == placement_.nodes) {
    publisher.next_hop = 0;
    ++publisher.next_bucket;
  }
  if (node == bucket.node) {
    Deliver(index, node);
    Publish(owner);
    return;
  }
  scene_.network->SendToNode(
      {bucket.node, node, bucket.local, bucket.publish_bytes}, [this, owner] { Publish(owner); },
      [this, index, node] { Deliver(index, node); });
}

void DmuondOptimizer::Deliver(size_t bucket, int node) {
  scene_.network->ScatterInNode(node, buckets_[bucket].local, buckets_[bucket].in_node_bytes,
                                [this, bucket] { Delivered(bucket); });
}

void DmuondOptimizer::Delivered(size_t bucket) {
  if (--buckets_[bucket].nodes_left > 0) {
    return;
  }
  AddSpan(SpanKind::kPublish, bucket);
  for (const size_t layer : buckets_[bucket].layers) {
    if (--layer_buckets_left_[layer] == 0) {
      scene_.loop->ParametersReady(layer);
    }
  }
}

std::unique_ptr<Optimizer> MakeDmuond(const Scene& scene) {
  return std::make_unique<DmuondOptimizer>(scene);
}

}  // namespace dmuon::simulator
