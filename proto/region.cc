#include "proto/region.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

namespace dmuon {
namespace {

// `length` consecutive elements of a parameter, `start` counted row-major from its first element;
// `offset` is where they begin in the storage of the region or piece that they belong to.
struct Segment {
  int64_t start = 0;
  int64_t offset = 0;
  int64_t length = 0;

  int64_t end() const { return start + length; }
};

// A region as ascending segments, found by arithmetic: no list is kept.
class RegionSegments {
 public:
  RegionSegments(const std::vector<int64_t>& shape, const Region& region) {
    // Inner dimensions that the region takes whole join the first one that it does not.
    size_t inner = shape.size() - 1;
    int64_t below = 1;  // elements of the parameter per index of dimension `inner`
    while (inner > 0 && region.extent[inner] == shape[inner]) {
      below *= shape[inner];
      --inner;
    }
    length_ = below * region.extent[inner];
    first_ = below * region.start[inner];
    int64_t stride = below * shape[inner];
    int64_t offset_stride = length_;
    for (size_t d = inner; d-- > 0;) {
      outer_.push_back({region.start[d], region.extent[d], stride, offset_stride});
      stride *= shape[d];
      offset_stride *= region.extent[d];
    }
    std::reverse(outer_.begin(), outer_.end());
  }

  std::optional<Segment> FirstEndingAfter(int64_t position) const { return Find(0, position); }

 private:
  struct Outer {
    int64_t start;
    int64_t extent;
    int64_t stride;         // elements of the parameter per index
    int64_t offset_stride;  // elements of the region per index
  };

  // Of the segments below one index of each dimension before `d`, the first that ends after
  // `position`, both counted from the first element below that index.
  std::optional<Segment> Find(size_t d, int64_t position) const {
    if (d == outer_.size()) {
      return first_ + length_ > position ? std::optional(Segment{first_, 0, length_})
                                         : std::nullopt;
    }
    const Outer& outer = outer_[d];
    const int64_t last = outer.start + outer.extent - 1;
    int64_t index = std::max(position < 0 ? 0 : position / outer.stride, outer.start);
    if (index > last) {
      return std::nullopt;
    }
    std::optional<Segment> found = Find(d + 1, position - index * outer.stride);
    if (!found && index < last) {
      ++index;
      found = Find(d + 1, -1);
    }
    if (found) {
      found->start += index * outer.stride;
      found->offset += (index - outer.start) * outer.offset_stride;
    }
    return found;
  }

  int64_t first_ = 0;   // start of a segment below one index of the outer dimensions
  int64_t length_ = 0;  // of each segment
  std::vector<Outer> outer_;
};

// The rows of a piece, or the whole piece where they follow each other without a gap.
class PieceSegments {
 public:
  explicit PieceSegments(const StridedMatrix& piece) : piece_(piece) {
    if (piece_.row_stride == piece_.cols) {
      piece_.cols = piece_.elements();
      piece_.row_stride = piece_.cols;
      piece_.rows = 1;
    }
  }

  std::optional<Segment> FirstEndingAfter(int64_t position) const {
    int64_t row = 0;
    if (position >= piece_.base + piece_.cols) {
      row = (position - piece_.base - piece_.cols) / piece_.row_stride + 1;
    }
    if (row >= piece_.rows) {
      return std::nullopt;
    }
    return Segment{piece_.base + row * piece_.row_stride, row * piece_.cols, piece_.cols};
  }

 private:
  StridedMatrix piece_;
};

void AppendRun(const Segment& piece, const Segment& region, int64_t start, int64_t end,
               std::vector<Run>* runs) {
  Run run{piece.offset + start - piece.start, region.offset + start - region.start, 0, end - start};
  if (!runs->empty()) {
    Run& last = runs->back();
    if (last.piece + last.length == run.piece && last.region + last.length == run.region) {
      last.length += run.length;
      return;
    }
    run.packed = last.packed + last.length;
  }
  runs->push_back(run);
}

}  // namespace

Region Region::Whole(const std::vector<int64_t>& shape) {
  return {std::vector<int64_t>(shape.size(), 0), shape};
}

int64_t Region::elements() const {
  return std::accumulate(extent.begin(), extent.end(), int64_t{1}, std::multiplies<>());
}

Status ValidateRegion(const std::string& name, const std::vector<int64_t>& shape,
                      const Region& region) {
  const std::string subject = "parameter '" + name + "': ";
  if (region.start.size() != shape.size() || region.extent.size() != shape.size()) {
    return Status::InvalidArgument(
        subject + "its region has " + std::to_string(region.start.size()) + " starts and " +
        std::to_string(region.extent.size()) + " extents, but the parameter has " +
        std::to_string(shape.size()) + " dimensions; give one of each for every dimension");
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t start = region.start[d];
    const int64_t extent = region.extent[d];
    if (start < 0 || extent < 0 || start > shape[d] || extent > shape[d] - start) {
      return Status::InvalidArgument(subject + "its region starts at " + std::to_string(start) +
                                     " with extent " + std::to_string(extent) + " in dimension " +
                                     std::to_string(d) + ", which has " + std::to_string(shape[d]) +
                                     "; a region lies inside its parameter");
    }
  }
  return Status::Ok();
}

std::vector<Run> IntersectRuns(const std::vector<int64_t>& shape, const Region& region,
                               const StridedMatrix& piece) {
  std::vector<Run> runs;
  if (piece.elements() == 0 || region.elements() == 0) {
    return runs;
  }
  const RegionSegments region_segments(shape, region);
  const PieceSegments piece_segments(piece);
  // Each sequence jumps to where the other one is, so what lies outside of both costs nothing.
  int64_t position = piece.base;
  while (true) {
    const std::optional<Segment> in_piece = piece_segments.FirstEndingAfter(position);
    if (!in_piece) {
      return runs;
    }
    position = std::max(position, in_piece->start);
    const std::optional<Segment> in_region = region_segments.FirstEndingAfter(position);
    if (!in_region) {
      return runs;
    }
    position = std::max(position, in_region->start);
    const int64_t end = std::min(in_piece->end(), in_region->end());
    if (position < end) {
      AppendRun(*in_piece, *in_region, position, end, &runs);
      position = end;
    }
  }
}

}  // namespace dmuon
