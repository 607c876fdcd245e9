#include "scheduler/simulator/owner_work.h"

#include <algorithm>
#include <set>

namespace dmuon::simulator {
namespace {

// Of a batch or block: the master is read and the parameter written for publishing.
double PackBytes(const SessionSpec& spec, const scheduler::Piece& piece) {
  return static_cast<double>(piece.geometry.elements()) *
         (kFp32Bytes + static_cast<double>(SizeOf(spec.parameters[piece.parameter].dtype)));
}

}  // namespace

OwnerWork::OwnerWork(const Scene& scene, Action finished)
    : scene_(scene), finished_(std::move(finished)) {
  const scheduler::Plan& plan = scene_.scenario.plan;
  reductions_left_ = plan.buckets.size();
  jobs_of_bucket_.resize(plan.buckets.size());
  bucket_of_piece_.resize(plan.pieces.size());
  for (size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
    for (const uint32_t piece : plan.buckets[bucket].pieces) {
      bucket_of_piece_[piece] = static_cast<uint32_t>(bucket);
    }
  }
  for (uint32_t owner = 0; owner < static_cast<uint32_t>(plan.owners); ++owner) {
    AddBatches(owner);
  }
  for (size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
    AddBlocks(bucket);
  }
}

void OwnerWork::AddJob(Job job, const std::vector<uint32_t>& pieces) {
  std::set<uint32_t> buckets;
  for (const uint32_t piece : pieces) {
    buckets.insert(bucket_of_piece_[piece]);
  }
  for (const uint32_t bucket : buckets) {
    jobs_of_bucket_[bucket].push_back(jobs_.size());
  }
  job.buckets_left = buckets.size();
  jobs_.push_back(std::move(job));
  ++jobs_left_;
}

void OwnerWork::AddBatches(uint32_t owner) {
  const Scenario& scenario = scene_.scenario;
  for (const std::vector<uint32_t>& batch : scheduler::BatchesOf(scenario.plan, owner)) {
    const scheduler::Piece& first = scenario.plan.pieces[batch.front()];
    double pack_bytes = 0.0;
    for (const uint32_t piece : batch) {
      pack_bytes += PackBytes(scenario.spec, scenario.plan.pieces[piece]);
    }
    const StridedMatrix& shape = first.geometry;
    const double seconds =
        scenario.profile.MuonSeconds(shape.rows, shape.cols, first.muon.newton_schulz,
                                     static_cast<int64_t>(batch.size())) +
        scenario.profile.ElementwiseSeconds(pack_bytes);
    AddJob({static_cast<int>(owner), seconds,
            std::to_string(batch.size()) + " of " + std::to_string(shape.rows) + " x " +
                std::to_string(shape.cols)},
           batch);
  }
}

// The bucket's elementwise blocks, updated together.
void OwnerWork::AddBlocks(size_t bucket) {
  const Scenario& scenario = scene_.scenario;
  std::vector<uint32_t> blocks;
  double bytes = 0.0;
  for (const uint32_t index : scenario.plan.buckets[bucket].pieces) {
    const scheduler::Piece& piece = scenario.plan.pieces[index];
    if (piece.rule == Rule::kAdamW) {
      blocks.push_back(index);
      bytes += static_cast<double>(piece.geometry.elements()) * scheduler::kAdamWBytesPerElement +
               PackBytes(scenario.spec, piece);
    }
  }
  if (!blocks.empty()) {
    AddJob({static_cast<int>(scenario.plan.buckets[bucket].owner),
            scenario.profile.ElementwiseSeconds(bytes),
            "AdamW on " + std::to_string(blocks.size()) + " blocks"},
           blocks);
  }
}

// Shards are read once in their own type; sums of replicas come in fp32, one from each node.
double OwnerWork::ReductionSeconds(size_t bucket) const {
  const Scenario& scenario = scene_.scenario;
  const double sums = PlaceOn(scenario.cluster, scenario.options.gpus).nodes;
  double bytes = 0.0;
  for (const uint32_t index : scenario.plan.buckets[bucket].pieces) {
    const scheduler::Piece& piece = scenario.plan.pieces[index];
    const auto elements = static_cast<double>(piece.geometry.elements());
    const auto own_type =
        static_cast<double>(SizeOf(scenario.spec.parameters[piece.parameter].dtype));
    bytes += elements * ((scenario.options.sharded ? own_type : sums * kFp32Bytes) + kFp32Bytes);
  }
  return scenario.profile.ElementwiseSeconds(bytes);
}

void OwnerWork::Arrived(size_t bucket) {
  const auto owner = static_cast<int>(scene_.scenario.plan.buckets[bucket].owner);
  scene_.devices->RunForOwner(owner, {SpanKind::kOptimizer, ReductionSeconds(bucket), "reduce"},
                              [this, bucket] { Reduced(bucket); });
}

void OwnerWork::Reduced(size_t bucket) {
  --reductions_left_;
  const bool clips = scene_.scenario.spec.max_grad_norm.has_value();
  for (const size_t job : jobs_of_bucket_[bucket]) {
    if (--jobs_[job].buckets_left > 0) {
      continue;
    }
    if (clips) {
      waiting_.push_back(job);
    } else {
      Run(job);
    }
  }
  if (clips && reductions_left_ == 0) {
    scene_.network->Agree(scene_.scenario.options.message_overhead_s, [this] {
      for (const size_t job : waiting_) {
        Run(job);
      }
    });
  }
}

void OwnerWork::Run(size_t job) {
  scene_.devices->RunForOwner(jobs_[job].owner,
                              {SpanKind::kOptimizer, jobs_[job].seconds, jobs_[job].label}, [this] {
                                if (--jobs_left_ == 0) {
                                  finished_();
                                }
                              });
}

}  // namespace dmuon::simulator
