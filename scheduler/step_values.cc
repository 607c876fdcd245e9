#include "scheduler/step_values.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace dmuon::scheduler {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// Whether 0 <= value < limit; the message names group, key and value.
Status CheckValue(const std::string& group, const char* key, const std::optional<double>& value,
                  double limit) {
  if (!value || (*value >= 0.0 && *value < limit)) {
    return Status::Ok();
  }
  const std::string range = limit == kNoLimit ? "finite and >= 0" : "in [0, 1)";
  return Status::InvalidArgument("groups." + group + "." + key + ": " +
                                 nlohmann::json(*value).dump() + " is not " + range);
}

Status Check(const GroupOverrides& overrides) {
  struct Entry {
    const char* key;
    const std::optional<double>& value;
    double limit;
  };
  const Entry entries[] = {{"lr", overrides.lr, kNoLimit},
                           {"weight_decay", overrides.weight_decay, kNoLimit},
                           {"momentum", overrides.momentum, 1.0},
                           {"beta1", overrides.beta1, 1.0},
                           {"beta2", overrides.beta2, 1.0}};
  for (const Entry& entry : entries) {
    Status status = CheckValue(overrides.group, entry.key, entry.value, entry.limit);
    if (!status.ok()) {
      return status;
    }
  }
  return Status::Ok();
}

}  // namespace

Result<StepValues> StepValues::Make(const SessionSpec& spec,
                                    const std::vector<GroupOverrides>& overrides,
                                    double grad_scale) {
  StepValues values;
  if (!(grad_scale > 0.0) || !std::isfinite(grad_scale)) {
    return Status::InvalidArgument("grad_scale: " + nlohmann::json(grad_scale).dump() +
                                   " is not finite and > 0; gradients are divided by it");
  }
  values.grad_scale_ = grad_scale;
  values.groups_.reserve(spec.groups.size());
  for (const GroupSpec& group : spec.groups) {
    values.groups_.push_back({{group.muon.lr, group.muon.weight_decay, group.muon.momentum, 1.0},
                              {group.adamw.lr, group.adamw.weight_decay, group.adamw.beta1,
                               group.adamw.beta2, group.adamw.eps, 1, 1.0}});
  }
  std::vector<bool> seen(spec.groups.size(), false);
  for (const GroupOverrides& override : overrides) {
    const auto found = std::find_if(spec.groups.begin(), spec.groups.end(), [&](const auto& group) {
      return group.name == override.group;
    });
    const auto index = static_cast<size_t>(found - spec.groups.begin());
    if (found == spec.groups.end() || seen[index]) {
      return Status::InvalidArgument("groups." + override.group + ": " +
                                     (found == spec.groups.end()
                                          ? "the session's spec has no such group"
                                          : "named twice in one step; name each group once"));
    }
    seen[index] = true;
    if (Status status = Check(override); !status.ok()) {
      return status;
    }
    Group& group = values.groups_[index];
    group.muon.lr = override.lr.value_or(group.muon.lr);
    group.adamw.lr = override.lr.value_or(group.adamw.lr);
    group.muon.weight_decay = override.weight_decay.value_or(group.muon.weight_decay);
    group.adamw.weight_decay = override.weight_decay.value_or(group.adamw.weight_decay);
    group.muon.momentum = override.momentum.value_or(group.muon.momentum);
    group.adamw.beta1 = override.beta1.value_or(group.adamw.beta1);
    group.adamw.beta2 = override.beta2.value_or(group.adamw.beta2);
  }
  return values;
}

kernels::MuonValues StepValues::Muon(uint32_t group, double clip_factor) const {
  kernels::MuonValues values = groups_[group].muon;
  values.gradient_factor = clip_factor;
  return values;
}

kernels::AdamWValues StepValues::AdamW(uint32_t group, double clip_factor) const {
  kernels::AdamWValues values = groups_[group].adamw;
  values.gradient_factor = clip_factor;
  return values;
}

float ReductionFactor(Reduce reduce, int64_t contributors, double grad_scale) {
  const double divisor = reduce == Reduce::kMean ? static_cast<double>(contributors) : 1.0;
  return static_cast<float>(1.0 / (divisor * grad_scale));
}

double GradientNorm(std::span<const double> squared_norms) {
  double sum = 0.0;
  for (const double squared : squared_norms) {
    sum += squared;
  }
  return std::sqrt(sum);
}

double ClipFactor(std::optional<double> max_norm, double norm) {
  return max_norm && norm > *max_norm ? *max_norm / norm : 1.0;
}

kernels::ElementType ElementTypeOf(DType dtype) {
  assert(dtype != DType::kInt64);
  switch (dtype) {
    case DType::kBFloat16:
      return kernels::ElementType::kBFloat16;
    case DType::kFloat16:
      return kernels::ElementType::kFloat16;
    default:
      return kernels::ElementType::kFloat32;
  }
}

}  // namespace dmuon::scheduler
