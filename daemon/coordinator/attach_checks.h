// What Attach checks before anything changes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dmuon/v1/control.pb.h"
#include "proto/region.h"
#include "proto/session_spec.h"
#include "proto/status.h"

namespace dmuon {

std::string ChannelName(v1::Channel channel);

// The trainer's parameter list must hold exactly the session's names. Fills both directions between
// its numbers and the canonical ones.
Status MapParameterNames(const SessionSpec& spec, const v1::AttachRequest& request,
                         std::vector<uint32_t>* canonical, std::vector<uint32_t>* own);

// One region per parameter in canonical order; parameters that the request does not mention are
// held whole. Boxes are checked against shapes.
Status CollectRegions(const SessionSpec& spec, const v1::AttachRequest& request,
                      const std::vector<uint32_t>& canonical, std::vector<v1::Region>* regions);

// Regions of all trainers, null where one has not attached: contributions must agree, and once all
// are there, every parameter must be covered evenly.
Status CheckRegionsTogether(const SessionSpec& spec,
                            const std::vector<const std::vector<v1::Region>*>& trainers);

bool SameRegions(const std::vector<v1::Region>& a, const std::vector<v1::Region>& b);

Region RegionOf(const v1::Region& region);
std::vector<Region> RegionsOf(const std::vector<v1::Region>& regions);

}  // namespace dmuon
