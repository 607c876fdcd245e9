// Regions, and how a region meets a piece: the arithmetic of the packed layout, for both sides.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "proto/session_spec.h"
#include "proto/status.h"

namespace dmuon {

enum class Contribution { kPartial, kReplica };

// A box of a parameter in elements. Any extent 0: empty.
struct Region {
  std::vector<int64_t> start;
  std::vector<int64_t> extent;

  static Region Whole(const std::vector<int64_t>& shape);
  int64_t elements() const;
  bool operator==(const Region&) const = default;
};

// Checks that the box lies inside `shape`. The message names the dimension; `name` is the
// parameter.
Status ValidateRegion(const std::string& name, const std::vector<int64_t>& shape,
                      const Region& region);

// `length` consecutive elements, counted from different starts.
struct Run {
  int64_t piece = 0;   // offset inside the piece, in the piece's row-major order
  int64_t region = 0;  // offset inside the region's own row-major storage
  int64_t packed = 0;  // offset inside the packed entry
  int64_t length = 0;

  bool operator==(const Run&) const = default;
};

// The elements of `piece` that lie in `region`, in the piece's row-major order, as maximal runs.
// Packing copies run after run; the packed offsets are consecutive.
std::vector<Run> IntersectRuns(const std::vector<int64_t>& shape, const Region& region,
                               const StridedMatrix& piece);

// Each trainer's share of a parameter must cover it evenly: every element the same number of
// contributors. Returns InvalidArgument naming parameter and rows (first dimension) otherwise.
// `regions` has one entry per trainer.
Status ValidateCoverage(const std::string& name, const std::vector<int64_t>& shape,
                        const std::vector<Region>& regions);

}  // namespace dmuon
