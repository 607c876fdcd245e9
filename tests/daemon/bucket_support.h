// Bucket messages for tests, packed element by element: a second statement of the layout that
// shares no code with IntersectRuns, MakeSegments or MakeTrainerLayout's offsets.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/owner/trainer_set.h"
#include "daemon/transport/bucket_buffer.h"
#include "proto/region.h"
#include "proto/session_spec.h"
#include "scheduler/plan.h"

namespace dmuon::test {

// Whole parameters in fp32, by name. Their values must be exact in the parameters' dtypes.
using Tensors = std::map<std::string, std::vector<float>>;

// Whether element `element` of a tensor of `shape`, counted row-major, lies in `region`.
bool Contains(const std::vector<int64_t>& shape, const Region& region, int64_t element);

// The elements of the parameter that an entry packs, in packed order.
std::vector<int64_t> PackedElements(const std::vector<int64_t>& shape, const Region& region,
                                    const StridedMatrix& piece);

// A session's spec and plan with the regions of each trainer.
struct Job {
  SessionSpec spec;
  scheduler::Plan plan;
  std::vector<std::string> host_ids;         // by trainer
  std::vector<std::vector<Region>> regions;  // by trainer, by parameter
  Contribution contribution = Contribution::kPartial;

  uint32_t trainers() const { return static_cast<uint32_t>(regions.size()); }
  uint32_t ParameterNamed(const std::string& name) const;
};

// Every trainer holds everything whole, all on one host.
Job MakeJob(const std::string& spec_json, int owners, uint32_t trainers,
            int64_t bucket_bytes = 32 << 20);

std::vector<TrainerInfo> TrainerInfosOf(const Job& job);
std::shared_ptr<const TrainerSet> TrainerSetOf(const Job& job, uint32_t owner);

// What the header of a message says besides what follows from the layout.
struct MessageOptions {
  BucketKind kind = BucketKind::kGradient;
  bool is_final = true;
  uint64_t session = 1;
  uint64_t generation = 1;
};

// The message in which `trainer` sends `bucket`; parameters that `tensors` lacks are absent.
std::shared_ptr<BucketBuffer> PackBucket(const Job& job, uint32_t trainer, uint32_t bucket,
                                         const Tensors& tensors, const MessageOptions& options);

// Copies what a published message holds into whole parameters. Elements that it does not hold are
// left alone.
void UnpackBucket(const Job& job, const BucketBuffer& message, Tensors* tensors);

}  // namespace dmuon::test
