#include "client/cli/replay_session.h"

#include <algorithm>

#include "client/cli/command.h"

namespace dmuon::cli {
namespace {

constexpr int64_t kNone = -1;

scheduler::Plan MakeOneOwnerPlan(const SessionSpec& spec, kernels::Device& device) {
  scheduler::PlanOptions options;
  options.owners = 1;
  options.auto_precision = device.AutoPrecision();
  scheduler::Plan plan = scheduler::MakePlan(spec, options);
  for (const scheduler::Piece& piece : plan.pieces) {
    const kernels::ElementType precision = piece.muon.newton_schulz.precision;
    std::string why;
    if (piece.rule == Rule::kMuon && !device.Supports(precision, &why)) {
      throw InputError("groups." + spec.groups[piece.group].name + ".precision: \"" +
                       std::string(NameOf(precision)) + "\" does not work here: " + why);
    }
  }
  return plan;
}

int64_t LargestPiece(const scheduler::Plan& plan) {
  int64_t elements = 0;
  for (const scheduler::Piece& piece : plan.pieces) {
    elements = std::max(elements, piece.geometry.elements());
  }
  return elements;
}

[[noreturn]] void RefuseGradient(const std::string& path, const std::string& name) {
  throw InputError(path + ": the gradient of '" + name +
                   "' has another shape than the parameter, or an integer type");
}

// The earlier of two parameters, where -1 stands for none.
int64_t Earlier(int64_t a, int64_t b) { return a == kNone ? b : b == kNone ? a : std::min(a, b); }

}  // namespace

ReplaySession::ReplaySession(SessionSpec spec, std::unique_ptr<kernels::Device> device)
    : spec_(std::move(spec)),
      device_(std::move(device)),
      plan_(MakeOneOwnerPlan(spec_, *device_)),
      layout_(spec_, plan_),
      state_(*device_, plan_, 0),
      batches_(scheduler::BatchesOf(plan_, 0)),
      present_(spec_.parameters.size(), false),
      staging_(static_cast<size_t>(LargestPiece(plan_)) * sizeof(float)) {
  for (uint32_t i = 0; i < spec_.parameters.size(); ++i) {
    parameter_index_[spec_.parameters[i].name] = i;
  }
}

uint32_t ReplaySession::ParameterIndex(const std::string& path, const std::string& name) const {
  const auto found = parameter_index_.find(name);
  if (found == parameter_index_.end()) {
    throw InputError(path + ": tensor '" + name + "' is no parameter of the spec");
  }
  return found->second;
}

void ReplaySession::MarkPresent(const std::string& path, const SafetensorsFile& file) {
  std::fill(present_.begin(), present_.end(), false);
  for (const auto& [name, tensor] : file.tensors()) {
    const uint32_t index = ParameterIndex(path, name);
    if (tensor.shape != spec_.parameters[index].shape || tensor.dtype == DType::kInt64) {
      RefuseGradient(path, name);
    }
    present_[index] = true;
  }
}

int64_t ReplaySession::LoadGradients(const std::string& path, const SafetensorsFile& file,
                                     const scheduler::StepValues& values, StepReport* report) {
  MarkPresent(path, file);
  const float factor =
      scheduler::ReductionFactor(spec_.reduce, /*contributors=*/1, values.grad_scale());
  int64_t not_finite = kNone;
  std::vector<double> squared_norms;
  for (uint32_t parameter = 0; parameter < spec_.parameters.size(); ++parameter) {
    if (!present_[parameter]) {
      ++report->absent_parameters;
      continue;
    }
    const std::string& name = spec_.parameters[parameter].name;
    const DType dtype = file.tensors().at(name).dtype;
    const auto [first, last] = layout_.PiecesOf(parameter);
    for (uint32_t piece = first; piece < last; ++piece) {
      const int64_t count = plan_.pieces[piece].geometry.elements();
      layout_.Gather(piece, SizeOf(dtype), file.data(name).data(), staging_.data());
      const kernels::ReduceSource source{staging_.data()};
      device_->Reduce(scheduler::ElementTypeOf(dtype), std::span(&source, 1), count, factor,
                      state_.gradient(piece));
      const kernels::NormAndFinite measured = device_->MeasureNorm(state_.gradient(piece), count);
      squared_norms.push_back(measured.squared_sum);
      if (!measured.finite && not_finite == kNone) {
        not_finite = parameter;
      }
    }
  }
  report->grad_norm = scheduler::GradientNorm(squared_norms);
  return not_finite;
}

int64_t ReplaySession::UpdateBatch(const std::vector<uint32_t>& batch,
                                   const scheduler::StepValues& values, double clip_factor) {
  const auto finite = std::make_unique<bool[]>(batch.size());
  const uint32_t group = plan_.pieces[batch.front()].group;
  state_.UpdateBatch(batch, values.Muon(group, clip_factor), std::span(finite.get(), batch.size()));
  for (size_t i = 0; i < batch.size(); ++i) {
    if (!finite[i] || !StaysFinite(batch[i])) {
      return plan_.pieces[batch[i]].parameter;
    }
  }
  return kNone;
}

bool ReplaySession::StaysFinite(uint32_t piece) {
  return state_.StaysFiniteAs(spec_.parameters[plan_.pieces[piece].parameter].dtype, piece);
}

int64_t ReplaySession::Update(const scheduler::StepValues& values, StepReport* report) {
  int64_t not_finite = kNone;
  std::map<std::pair<std::string_view, std::string_view>, uint64_t> matrices;
  for (const std::vector<uint32_t>& batch : batches_) {
    std::vector<uint32_t> present;
    std::copy_if(batch.begin(), batch.end(), std::back_inserter(present),
                 [this](uint32_t piece) { return present_[plan_.pieces[piece].parameter]; });
    if (present.empty()) {
      continue;
    }
    not_finite = Earlier(not_finite, UpdateBatch(present, values, report->clip_factor));
    const kernels::NewtonSchulzOptions& numerics = plan_.pieces[present.front()].muon.newton_schulz;
    matrices[{NameOf(numerics.form), NameOf(numerics.precision)}] += present.size();
  }
  for (uint32_t index = 0; index < plan_.pieces.size(); ++index) {
    const scheduler::Piece& piece = plan_.pieces[index];
    if (piece.rule == Rule::kAdamW && present_[piece.parameter] &&
        !(state_.UpdateElementwise(index, values.AdamW(piece.group, report->clip_factor)) &&
          StaysFinite(index))) {
      not_finite = Earlier(not_finite, piece.parameter);
    }
  }
  for (const auto& [numerics, count] : matrices) {
    report->orthogonalised.push_back(
        {std::string(numerics.first), std::string(numerics.second), count});
  }
  return not_finite;
}

StepReport ReplaySession::Step(const std::string& path, const SafetensorsFile& file,
                               const scheduler::StepValues& values) {
  StepReport report;
  std::string what = "gradient";
  int64_t not_finite = LoadGradients(path, file, values, &report);
  if (not_finite == kNone) {
    report.clip_factor = scheduler::ClipFactor(spec_.max_grad_norm, report.grad_norm);
    not_finite = Update(values, &report);
    what = "update";
  }
  if (not_finite != kNone) {
    state_.Discard();
    report.parameter = spec_.parameters[static_cast<size_t>(not_finite)].name;
    report.reason = "the " + what + " of parameter '" + report.parameter + "' is not finite";
    report.orthogonalised.clear();
    return report;
  }
  state_.Commit();
  report.committed = true;
  return report;
}

}  // namespace dmuon::cli
