// How a piece is put together from what trainers send.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/region.h"
#include "proto/session_spec.h"

namespace dmuon {

struct SegmentSource {
  uint32_t trainer = 0;
  int64_t packed = 0;  // element offset inside that trainer's bucket entry

  bool operator==(const SegmentSource&) const = default;
};

// Consecutive elements of a piece that have the same contributors.
struct Segment {
  int64_t begin = 0;  // in the piece's row-major order
  int64_t length = 0;
  std::vector<SegmentSource> sources;  // ascending trainers

  bool operator==(const Segment&) const = default;
};

// Cuts `piece` into segments; together they cover what the regions cover. `regions` has one region
// per trainer.
std::vector<Segment> MakeSegments(const std::vector<int64_t>& shape, const StridedMatrix& piece,
                                  const std::vector<Region>& regions);

// The canonical reduction tree: trainers in rank order, those of one node (equal host id) together,
// nodes in the order of their first trainer. Each inner vector is one node's trainers.
std::vector<std::vector<uint32_t>> ReductionGroups(const std::vector<std::string>& host_ids);

}  // namespace dmuon
