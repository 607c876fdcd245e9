// Whether the regions of all trainers together cover a parameter evenly.
#include <algorithm>
#include <iterator>
#include <optional>

#include "proto/region.h"

namespace dmuon {
namespace {

using Regions = std::vector<const Region*>;

// Indices begin to end-1 of one dimension, over which the same regions apply.
struct Slab {
  int64_t begin = 0;
  int64_t end = 0;
  std::optional<size_t> contributors;  // of each element; nothing when elements differ
};

int64_t EndOf(const Region& region, size_t d) { return region.start[d] + region.extent[d]; }

std::vector<int64_t> CutsOf(const std::vector<int64_t>& shape, const Regions& regions, size_t d) {
  std::vector<int64_t> cuts = {0, shape[d]};
  for (const Region* region : regions) {
    cuts.push_back(region->start[d]);
    cuts.push_back(EndOf(*region, d));
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

bool AllWholeFrom(const std::vector<int64_t>& shape, const Regions& regions, size_t d) {
  return std::all_of(regions.begin(), regions.end(), [&](const Region* region) {
    const auto offset = static_cast<std::ptrdiff_t>(d);
    return std::equal(shape.begin() + offset, shape.end(), region->extent.begin() + offset);
  });
}

// One sweep: for regions that are whole in all dimensions after `d`.
void CountBySweep(const Regions& regions, size_t d, std::vector<Slab>* slabs) {
  std::vector<int64_t> change(slabs->size() + 1, 0);
  const auto slab_at = [&](int64_t position) {
    const auto before = [](const Slab& slab, int64_t value) { return slab.begin < value; };
    return std::lower_bound(slabs->begin(), slabs->end(), position, before) - slabs->begin();
  };
  for (const Region* region : regions) {
    ++change[slab_at(region->start[d])];
    --change[slab_at(EndOf(*region, d))];
  }
  int64_t contributors = 0;
  for (size_t i = 0; i < slabs->size(); ++i) {
    contributors += change[i];
    (*slabs)[i].contributors = static_cast<size_t>(contributors);
  }
}

std::vector<Slab> SlabsOf(const std::vector<int64_t>& shape, const Regions& regions, size_t d);

std::optional<size_t> UniformCount(const std::vector<int64_t>& shape, const Regions& regions,
                                   size_t d) {
  const std::vector<Slab> slabs = SlabsOf(shape, regions, d);
  const std::optional<size_t> first = slabs.front().contributors;
  const bool uniform = std::all_of(slabs.begin(), slabs.end(),
                                   [&](const Slab& slab) { return slab.contributors == first; });
  return uniform ? first : std::nullopt;
}

std::vector<Slab> SlabsOf(const std::vector<int64_t>& shape, const Regions& regions, size_t d) {
  const std::vector<int64_t> cuts = CutsOf(shape, regions, d);
  std::vector<Slab> slabs;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    slabs.push_back({cuts[i], cuts[i + 1], std::nullopt});
  }
  if (AllWholeFrom(shape, regions, d + 1)) {
    CountBySweep(regions, d, &slabs);
    return slabs;
  }
  for (Slab& slab : slabs) {
    Regions inside;
    std::copy_if(regions.begin(), regions.end(), std::back_inserter(inside), [&](const Region* r) {
      return r->start[d] <= slab.begin && slab.begin < EndOf(*r, d);
    });
    slab.contributors = UniformCount(shape, inside, d + 1);
  }
  return slabs;
}

std::string RowsText(const Slab& slab) {
  return slab.end - slab.begin == 1
             ? "row " + std::to_string(slab.begin)
             : "rows " + std::to_string(slab.begin) + " to " + std::to_string(slab.end - 1);
}

}  // namespace

Status ValidateCoverage(const std::string& name, const std::vector<int64_t>& shape,
                        const std::vector<Region>& regions) {
  Regions nonempty;
  for (const Region& region : regions) {
    if (Status status = ValidateRegion(name, shape, region); !status.ok()) {
      return status;
    }
    if (region.elements() > 0) {
      nonempty.push_back(&region);
    }
  }
  const auto refuse = [&name](const std::string& what) {
    return Status::InvalidArgument("parameter '" + name + "': " + what +
                                   "; the regions of all trainers must cover it evenly");
  };
  const std::vector<Slab> slabs = SlabsOf(shape, nonempty, 0);
  for (const Slab& slab : slabs) {
    if (!slab.contributors) {
      return refuse("the elements of " + RowsText(slab) + " have unequal numbers of contributors");
    }
    if (*slab.contributors == 0) {
      return refuse("no trainer covers " + RowsText(slab));
    }
    if (slab.contributors != slabs.front().contributors) {
      return refuse("contributors of " + RowsText(slabs.front()) + ": " +
                    std::to_string(*slabs.front().contributors) + ", of " + RowsText(slab) + ": " +
                    std::to_string(*slab.contributors));
    }
  }
  return Status::Ok();
}

}  // namespace dmuon
