#include "client/cli/tune_cases.h"

#include <algorithm>

#include "client/cli/command.h"
#include "scheduler/plan.h"

namespace dmuon::cli {
namespace {

// A shape with its numerics, and how many matrices one owner has of it at most.
struct Demand {
  kernels::TuningCase one;  // batch 1
  kernels::ExecutionCase key;
  int64_t most = 0;
};

// Matrices of one group and shape; they share their numerics.
struct GroupShape {
  int group = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t count = 0;
};

std::vector<GroupShape> CountMatrices(const SessionSpec& spec) {
  std::vector<GroupShape> shapes;
  for (const ParameterSpec& parameter : spec.parameters) {
    if (parameter.rule != Rule::kMuon) {
      continue;
    }
    for (const StridedMatrix& matrix : MatricesOf(parameter)) {
      const auto same = std::find_if(shapes.begin(), shapes.end(), [&](const GroupShape& shape) {
        return shape.group == parameter.group && shape.rows == matrix.rows &&
               shape.cols == matrix.cols;
      });
      if (same == shapes.end()) {
        shapes.push_back({parameter.group, matrix.rows, matrix.cols, 1});
      } else {
        ++same->count;
      }
    }
  }
  return shapes;
}

std::vector<Demand> DemandsOf(const SessionSpec& spec, const kernels::Device& device, int owners) {
  std::vector<Demand> demands;
  for (const GroupShape& shape : CountMatrices(spec)) {
    const GroupSpec& group = spec.groups[static_cast<size_t>(shape.group)];
    Demand demand;
    demand.one = {
        shape.rows, shape.cols, 1,
        scheduler::NumericsOf(group.muon, shape.rows, shape.cols, device.AutoPrecision())};
    const kernels::NewtonSchulzOptions& numerics = demand.one.options.newton_schulz;
    if (std::string why; !device.Supports(numerics.precision, &why)) {
      throw InputError("groups." + group.name + ".precision: \"" +
                       std::string(NameOf(numerics.precision)) + "\" does not work here: " + why);
    }
    demand.key = kernels::ExecutionCaseOf(shape.rows, shape.cols, 1, numerics);
    demand.most = (shape.count + owners - 1) / owners;
    const auto same = std::find_if(demands.begin(), demands.end(),
                                   [&](const Demand& known) { return known.key == demand.key; });
    if (same == demands.end()) {
      demands.push_back(demand);
    } else {
      same->most = std::max(same->most, demand.most);
    }
  }
  return demands;
}

std::vector<int64_t> BatchesUpTo(int64_t most) {
  std::vector<int64_t> batches;
  for (int64_t batch = 1; batch < most; batch *= 2) {
    batches.push_back(batch);
  }
  batches.push_back(most);
  return batches;
}

}  // namespace

std::vector<kernels::TuningCase> TuningCasesOf(const SessionSpec& spec,
                                               const kernels::Device& device,
                                               const TuneCaseOptions& options) {
  std::vector<kernels::TuningCase> cases;
  for (const Demand& demand : DemandsOf(spec, device, options.owners)) {
    std::vector<int64_t> batches =
        options.batches.empty() ? BatchesUpTo(demand.most) : options.batches;
    std::sort(batches.begin(), batches.end());
    batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
    for (const int64_t batch : batches) {
      cases.push_back(demand.one);
      cases.back().batch = batch;
    }
  }
  if (cases.empty()) {
    throw InputError("nothing to tune: the spec has no parameter with rule muon");
  }
  return cases;
}

}  // namespace dmuon::cli
