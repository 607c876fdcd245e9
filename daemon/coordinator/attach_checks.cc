#include "daemon/coordinator/attach_checks.h"

#include <algorithm>
#include <unordered_map>

namespace dmuon {
namespace {

constexpr uint32_t kUnset = UINT32_MAX;

std::string ContributionName(v1::Contribution contribution) {
  return contribution == v1::CONTRIBUTION_REPLICA ? "REPLICA" : "PARTIAL";
}

}  // namespace

std::string ChannelName(v1::Channel channel) {
  switch (channel) {
    case v1::CHANNEL_AUTO:
      return "auto";
    case v1::CHANNEL_GRPC:
      return "grpc";
    case v1::CHANNEL_MPI:
      return "mpi";
    case v1::CHANNEL_SHM:
      return "shm";
    case v1::CHANNEL_CUDA_IPC:
      return "cuda_ipc";
    default:
      return "none";
  }
}

Status MapParameterNames(const SessionSpec& spec, const v1::AttachRequest& request,
                         std::vector<uint32_t>* canonical, std::vector<uint32_t>* own) {
  std::unordered_map<std::string, uint32_t> numbers;
  for (uint32_t i = 0; i < spec.parameters.size(); ++i) numbers[spec.parameters[i].name] = i;
  canonical->clear();
  own->assign(spec.parameters.size(), kUnset);
  for (const std::string& name : request.parameters()) {
    auto found = numbers.find(name);
    if (found == numbers.end()) {
      return Status::InvalidArgument("parameters: the session's spec has no parameter \"" + name +
                                     "\"");
    }
    if ((*own)[found->second] != kUnset) {
      return Status::InvalidArgument("parameters: \"" + name + "\" is listed twice");
    }
    (*own)[found->second] = static_cast<uint32_t>(canonical->size());
    canonical->push_back(found->second);
  }
  auto missing = std::find(own->begin(), own->end(), kUnset);
  if (missing != own->end()) {
    return Status::InvalidArgument("parameters: \"" + spec.parameters[missing - own->begin()].name +
                                   "\" of the session's spec is not listed");
  }
  return Status::Ok();
}

Status CollectRegions(const SessionSpec& spec, const v1::AttachRequest& request,
                      const std::vector<uint32_t>& canonical, std::vector<v1::Region>* regions) {
  regions->assign(spec.parameters.size(), {});
  std::vector<bool> given(spec.parameters.size(), false);
  for (const v1::Region& region : request.regions()) {
    if (region.parameter() >= canonical.size()) {
      return Status::InvalidArgument("regions: parameter number " +
                                     std::to_string(region.parameter()) + ", but only " +
                                     std::to_string(canonical.size()) + " are listed");
    }
    uint32_t parameter = canonical[region.parameter()];
    if (given[parameter]) {
      return Status::InvalidArgument("regions: parameter " + spec.parameters[parameter].name +
                                     " has two regions on one trainer");
    }
    given[parameter] = true;
    (*regions)[parameter] = region;
  }
  for (uint32_t i = 0; i < spec.parameters.size(); ++i) {
    const ParameterSpec& parameter = spec.parameters[i];
    v1::Region& region = (*regions)[i];
    region.set_parameter(i);
    if (!given[i]) {
      for (int64_t extent : parameter.shape) {
        region.add_start(0);
        region.add_extent(extent);
      }
    }
    if (region.contribution() == v1::CONTRIBUTION_UNSPECIFIED) {
      region.set_contribution(request.contribution());
    }
    if (region.contribution() == v1::CONTRIBUTION_UNSPECIFIED) {
      return Status::InvalidArgument("contribution of parameter " + parameter.name +
                                     " is not set: PARTIAL (to be summed over trainers) or REPLICA "
                                     "(already reduced)");
    }
    Status status = ValidateRegion(parameter.name, parameter.shape, RegionOf(region));
    if (!status.ok()) return status;
  }
  return Status::Ok();
}

Status CheckRegionsTogether(const SessionSpec& spec,
                            const std::vector<const std::vector<v1::Region>*>& trainers) {
  bool all = std::find(trainers.begin(), trainers.end(), nullptr) == trainers.end();
  for (uint32_t i = 0; i < spec.parameters.size(); ++i) {
    std::vector<Region> regions;
    size_t first = trainers.size();
    for (size_t trainer = 0; trainer < trainers.size(); ++trainer) {
      if (trainers[trainer] == nullptr) continue;
      const v1::Region& region = (*trainers[trainer])[i];
      if (first == trainers.size()) first = trainer;
      v1::Contribution expected = (*trainers[first])[i].contribution();
      if (region.contribution() != expected) {
        return Status::InvalidArgument(
            "parameter " + spec.parameters[i].name + " is " + ContributionName(expected) +
            " on trainer " + std::to_string(first) + " and " +
            ContributionName(region.contribution()) + " on trainer " + std::to_string(trainer));
      }
      regions.push_back(RegionOf(region));
    }
    if (!all) continue;
    Status status = ValidateCoverage(spec.parameters[i].name, spec.parameters[i].shape, regions);
    if (!status.ok()) return status;
  }
  return Status::Ok();
}

bool SameRegions(const std::vector<v1::Region>& a, const std::vector<v1::Region>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const v1::Region& x, const v1::Region& y) {
                      return RegionOf(x) == RegionOf(y) && x.contribution() == y.contribution();
                    });
}

Region RegionOf(const v1::Region& region) {
  return {{region.start().begin(), region.start().end()},
          {region.extent().begin(), region.extent().end()}};
}

std::vector<Region> RegionsOf(const std::vector<v1::Region>& regions) {
  std::vector<Region> out;
  out.reserve(regions.size());
  for (const v1::Region& region : regions) out.push_back(RegionOf(region));
  return out;
}

}  // namespace dmuon
