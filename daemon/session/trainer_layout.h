// Where everything lies in the bucket messages of one trainer.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/transport/bucket_buffer.h"
#include "proto/region.h"
#include "proto/session_spec.h"
#include "proto/status.h"
#include "scheduler/plan.h"

namespace dmuon {

struct LayoutEntry {
  uint32_t piece = 0;  // index into Plan::pieces
  int64_t offset = 0;  // bytes from the start of the payload
  int64_t count = 0;   // elements of the piece that lie in the trainer's region
};

struct LayoutBucket {
  uint32_t owner = 0;
  int64_t payload_bytes = 0;  // 0: nothing of this bucket concerns the trainer, and none is sent
  std::vector<LayoutEntry> entries;
};

// One trainer's view of the plan's buckets, indexed by bucket number.
struct TrainerLayout {
  std::vector<LayoutBucket> buckets;

  int64_t LargestMessageBytes() const;
};

// `regions` has one region per parameter in canonical order; they have been validated.
TrainerLayout MakeTrainerLayout(const SessionSpec& spec, const scheduler::Plan& plan,
                                const std::vector<Region>& regions);

// Whether a message of `bytes` bytes that starts with `header` fits the layout: bucket number,
// entry count, payload size. `presence` may be null when only the header has arrived; with it, the
// payload must be there exactly when a presence bit is set. Messages name bucket, trainer and both
// numbers.
Status CheckBucketHeader(const TrainerLayout& layout, const BucketHeader& header);
Status CheckBucketMessage(const TrainerLayout& layout, const BucketBuffer& message);

}  // namespace dmuon
