// The values of one step, checked, in the form that kernels take them. What replay and the daemon
// both do between a begin_step and the kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "proto/session_spec.h"
#include "proto/status.h"

namespace dmuon::scheduler {

// What a step says about one group; what it leaves open keeps the spec's value.
struct GroupOverrides {
  std::string group;
  std::optional<double> lr = std::nullopt;
  std::optional<double> weight_decay = std::nullopt;
  std::optional<double> momentum = std::nullopt;
  std::optional<double> beta1 = std::nullopt;
  std::optional<double> beta2 = std::nullopt;
};

class StepValues {
 public:
  // InvalidArgument naming group and value: an unknown or repeated group, a value outside its range
  // (the ranges are the spec's), a grad_scale that is not > 0 and finite.
  static Result<StepValues> Make(const SessionSpec& spec,
                                 const std::vector<GroupOverrides>& overrides, double grad_scale);

  double grad_scale() const { return grad_scale_; }
  // `group` is an index into SessionSpec::groups; `clip_factor` multiplies gradients.
  kernels::MuonValues Muon(uint32_t group, double clip_factor) const;
  // With `step` still to be filled in.
  kernels::AdamWValues AdamW(uint32_t group, double clip_factor) const;

 private:
  struct Group {
    kernels::MuonValues muon;
    kernels::AdamWValues adamw;
  };
  std::vector<Group> groups_;  // as in SessionSpec::groups
  double grad_scale_ = 1.0;
};

// What Device::Reduce multiplies the sum of `contributors` gradients with. REPLICA gradients have
// one contributor.
float ReductionFactor(Reduce reduce, int64_t contributors, double grad_scale);

// sqrt of the sum, added in the order given: one squared norm per present piece, in plan order.
double GradientNorm(std::span<const double> squared_norms);

// min(1, max_norm/norm); 1 without a limit.
double ClipFactor(std::optional<double> max_norm, double norm);

kernels::ElementType ElementTypeOf(DType dtype);  // not for kInt64

}  // namespace dmuon::scheduler
