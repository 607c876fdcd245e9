#include "daemon/session/segments.h"

#include <algorithm>

namespace dmuon {
namespace {

// Whether `next` continues `last`, so that both are one segment.
bool Continues(const Segment& last, const Segment& next) {
  if (last.begin + last.length != next.begin || last.sources.size() != next.sources.size()) {
    return false;
  }
  for (size_t i = 0; i < last.sources.size(); ++i) {
    if (last.sources[i].trainer != next.sources[i].trainer ||
        last.sources[i].packed + last.length != next.sources[i].packed) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<Segment> MakeSegments(const std::vector<int64_t>& shape, const StridedMatrix& piece,
                                  const std::vector<Region>& regions) {
  std::vector<std::vector<Run>> runs(regions.size());
  std::vector<int64_t> cuts;
  for (size_t trainer = 0; trainer < regions.size(); ++trainer) {
    runs[trainer] = IntersectRuns(shape, regions[trainer], piece);
    for (const Run& run : runs[trainer]) {
      cuts.push_back(run.piece);
      cuts.push_back(run.piece + run.length);
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());

  std::vector<Segment> segments;
  std::vector<size_t> next_run(regions.size(), 0);
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    Segment segment{cuts[i], cuts[i + 1] - cuts[i], {}};
    for (uint32_t trainer = 0; trainer < regions.size(); ++trainer) {
      const std::vector<Run>& own = runs[trainer];
      size_t& at = next_run[trainer];
      while (at < own.size() && own[at].piece + own[at].length <= segment.begin) ++at;
      if (at < own.size() && own[at].piece <= segment.begin) {
        segment.sources.push_back({trainer, own[at].packed + segment.begin - own[at].piece});
      }
    }
    if (segment.sources.empty()) continue;
    if (!segments.empty() && Continues(segments.back(), segment)) {
      segments.back().length += segment.length;
    } else {
      segments.push_back(std::move(segment));
    }
  }
  return segments;
}

std::vector<std::vector<uint32_t>> ReductionGroups(const std::vector<std::string>& host_ids) {
  std::vector<std::vector<uint32_t>> groups;
  std::vector<std::string> names;
  for (uint32_t trainer = 0; trainer < host_ids.size(); ++trainer) {
    auto found = std::find(names.begin(), names.end(), host_ids[trainer]);
    if (found == names.end()) {
      names.push_back(host_ids[trainer]);
      groups.push_back({trainer});
    } else {
      groups[found - names.begin()].push_back(trainer);
    }
  }
  return groups;
}

}  // namespace dmuon
