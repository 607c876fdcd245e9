#include "scheduler/plan.h"

namespace dmuon::scheduler {
namespace {

kernels::ElementType ResolvePrecision(Precision precision, kernels::ElementType auto_precision) {
  switch (precision) {
    case Precision::kBf16:
      return kernels::ElementType::kBFloat16;
    case Precision::kFp16:
      return kernels::ElementType::kFloat16;
    case Precision::kFp32:
      return kernels::ElementType::kFloat32;
    case Precision::kAuto:
      break;
  }
  return auto_precision;
}

kernels::Form ResolveForm(NsForm form, int64_t rows, int64_t cols, kernels::ElementType precision) {
  switch (form) {
    case NsForm::kDirect:
      return kernels::Form::kDirect;
    case NsForm::kGram:
      return kernels::Form::kGram;
    case NsForm::kAuto:
      break;
  }
  return kernels::DefaultForm(rows, cols, precision);
}

kernels::UpdateScale ConvertScale(UpdateScale scale) {
  switch (scale) {
    case UpdateScale::kOriginal:
      return kernels::UpdateScale::kOriginal;
    case UpdateScale::kMatchRmsAdamW:
      return kernels::UpdateScale::kMatchRmsAdamW;
    case UpdateScale::kSpectral:
      return kernels::UpdateScale::kSpectral;
    case UpdateScale::kSpectralMax:
      return kernels::UpdateScale::kSpectralMax;
    case UpdateScale::kNone:
      break;
  }
  return kernels::UpdateScale::kNone;
}

kernels::Normalize ConvertNormalize(Normalize normalize) {
  switch (normalize) {
    case Normalize::kEpsAdd:
      return kernels::Normalize::kEpsAdd;
    case Normalize::kEpsMax:
      return kernels::Normalize::kEpsMax;
    case Normalize::kStrict:
      break;
  }
  return kernels::Normalize::kStrict;
}

}  // namespace

kernels::MuonOptions NumericsOf(const MuonSettings& settings, int64_t rows, int64_t cols,
                                kernels::ElementType auto_precision) {
  kernels::MuonOptions options;
  options.momentum_form = settings.momentum_form == MomentumForm::kSgd
                              ? kernels::MomentumForm::kSgd
                              : kernels::MomentumForm::kEma;
  options.nesterov = settings.nesterov;
  options.scale = ConvertScale(settings.scale);
  options.momentum_type = settings.momentum_dtype == DType::kBFloat16
                              ? kernels::ElementType::kBFloat16
                              : kernels::ElementType::kFloat32;
  kernels::NewtonSchulzOptions& newton_schulz = options.newton_schulz;
  newton_schulz.coefficients = settings.coefficients;
  newton_schulz.normalize = ConvertNormalize(settings.normalize);
  newton_schulz.eps = settings.eps;
  newton_schulz.precision = ResolvePrecision(settings.precision, auto_precision);
  newton_schulz.form = ResolveForm(settings.form, rows, cols, newton_schulz.precision);
  if (newton_schulz.form == kernels::Form::kGram) {
    newton_schulz.restart = settings.restart
                                ? *settings.restart
                                : kernels::DefaultRestart(rows, cols, newton_schulz.precision,
                                                          newton_schulz.coefficients);
  }
  return options;
}

}  // namespace dmuon::scheduler
