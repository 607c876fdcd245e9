#include "tests/bench/newton_schulz_case.h"

#include <algorithm>
#include <random>
#include <stdexcept>

#include "kernels/newton_schulz.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/inputs.h"

namespace dmuon::kernels::testing {
namespace {

constexpr int64_t kAccuracySide = 128;  // largest m on which accuracy is measured

// Useful flops on X and among squares: each part has its own precision in mixed forms.
struct FlopParts {
  double x = 0.0;
  double squares = 0.0;
};

FlopParts PartsOf(const CaseOptions& options) {
  const auto m = static_cast<double>(std::min(options.rows, options.cols));
  const auto n = static_cast<double>(std::max(options.rows, options.cols));
  const double all = UsefulFlops(options.rows, options.cols, options.newton_schulz);
  const auto passes = options.newton_schulz.form == Form::kGram
                          ? static_cast<double>(options.newton_schulz.restart.size() + 1)
                          : static_cast<double>(options.newton_schulz.coefficients.size());
  FlopParts parts;
  parts.x = passes * 3.0 * m * m * n;  // XX^T, half of it, and the product with X
  parts.squares = all - parts.x;
  return parts;
}

DeviceKind DeviceOf(const std::string& name) {
  if (name == "cpu") {
    return DeviceKind::kCpu;
  }
  if (name == "cuda") {
    return DeviceKind::kCuda;
  }
  throw std::invalid_argument("device '" + name + "': choose cpu or cuda");
}

std::unique_ptr<Device> MakeDevice(const CaseOptions& options) {
  if (options.device == DeviceKind::kCpu) {
    return MakeCpuDevice({options.threads});
  }
  return MakeCudaDevice({.deterministic = !options.batched});
}

ElementType PrecisionOf(const std::string& name, const Device& device) {
  if (name == "auto") {
    return device.AutoPrecision();
  }
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16}) {
    if (name != NameOf(type)) {
      continue;
    }
    std::string why;
    if (!device.Supports(type, &why)) {
      throw std::invalid_argument("precision '" + name + "': " + why);
    }
    return type;
  }
  throw std::invalid_argument("precision '" + name + "': choose auto, fp32, bf16 or fp16");
}

Form FormOf(const CaseRequest& request, ElementType precision) {
  if (request.form == "auto") {
    return DefaultForm(request.rows, request.cols, precision);
  }
  for (const Form form : {Form::kDirect, Form::kGram}) {
    if (request.form == NameOf(form)) {
      return form;
    }
  }
  throw std::invalid_argument("form '" + request.form + "': choose auto, direct or gram");
}

std::vector<float> RandomFloats(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) {
    value = normal(generator);
  }
  return values;
}

}  // namespace

CaseOptions MakeCase(const CaseRequest& request) {
  CaseOptions options;
  options.device = DeviceOf(request.device);
  if (request.batched && options.device == DeviceKind::kCpu) {
    throw std::invalid_argument("--batched is for --device cuda: the cpu's batches keep bits");
  }
  options.rows = request.rows;
  options.cols = request.cols;
  options.batch = request.batch;
  options.threads = request.threads;
  options.batched = request.batched;
  NewtonSchulzOptions& ns = options.newton_schulz;
  ns.coefficients = PolarExpress();
  ns.precision = PrecisionOf(request.precision, *MakeDevice(options));
  ns.form = FormOf(request, ns.precision);
  if (ns.form == Form::kGram) {
    ns.restart = DefaultRestart(request.rows, request.cols, ns.precision, ns.coefficients);
  }
  return options;
}

NewtonSchulzCase::NewtonSchulzCase(const CaseOptions& options)
    : options_(options),
      device_(MakeDevice(options)),
      finite_(std::make_unique<bool[]>(options.batch)) {
  const int64_t elements = options.rows * options.cols;
  for (int64_t i = 0; i < options.batch; ++i) {
    const std::size_t first = buffers_.size();
    buffers_.push_back(Upload(*device_, RandomFloats(elements, static_cast<uint32_t>(i + 1))));
    for (int state = 0; state < 4; ++state) {  // master, momentum, and both of the next step
      buffers_.push_back(device_->Allocate(elements * static_cast<int64_t>(sizeof(float))));
    }
    matrices_.push_back({buffers_[first].floats(), buffers_[first + 1].floats(),
                         buffers_[first + 2].data(), buffers_[first + 3].floats(),
                         buffers_[first + 4].data()});
  }
}

void NewtonSchulzCase::Step() {
  MuonOptions muon;
  muon.newton_schulz = options_.newton_schulz;
  MuonValues values;
  values.lr = 0.02;
  values.momentum = 0.95;
  device_->MuonStep(muon, values, options_.rows, options_.cols, matrices_,
                    {finite_.get(), static_cast<std::size_t>(options_.batch)});
  if (!std::all_of(finite_.get(), finite_.get() + options_.batch, [](bool f) { return f; })) {
    throw std::runtime_error("a measured step is not finite");
  }
}

double NewtonSchulzCase::useful_gflop() const {
  const FlopParts parts = PartsOf(options_);
  return static_cast<double>(options_.batch) * (parts.x + parts.squares) / 1e9;
}

double RooflineFraction(const CaseOptions& options, double step_s, const GemmRate& x_rate,
                        const GemmRate& square_rate) {
  const FlopParts parts = PartsOf(options);
  const double floor_s = static_cast<double>(options.batch) *
                         (parts.x / x_rate.gflops + parts.squares / square_rate.gflops) / 1e9;
  return floor_s / step_s;
}

Accuracy MeasureAccuracy(const CaseOptions& options) {
  const int64_t side = std::min(options.rows, options.cols);
  const double scale =
      std::min(1.0, static_cast<double>(kAccuracySide) / static_cast<double>(side));
  const auto scaled = [&](int64_t size) {
    return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(size) * scale));
  };
  Accuracy accuracy;
  accuracy.rows = scaled(options.rows);
  accuracy.cols = scaled(options.cols);
  const std::unique_ptr<Device> device = MakeDevice(options);
  const NewtonSchulzOptions& ns = options.newton_schulz;
  for (const InputClass input : AllInputClasses()) {
    const Matrix u = MakeInput(input, accuracy.rows, accuracy.cols, 7);
    const Matrix ours = RunNewtonSchulz(*device, ns, u);
    const Matrix cast = CastInput(u, ns.normalize, ns.eps, ns.precision);
    const double error = RelativeError(ours, Polynomial(cast, ns.coefficients));
    const Matrix plain = CastInput(u, ns.normalize, ns.eps, ElementType::kBFloat16);
    const double plain_error =
        RelativeError(PlainBFloat16(plain, ns.coefficients), Polynomial(plain, ns.coefficients));
    if (error / plain_error > accuracy.error_vs_plain) {
      accuracy.error_vs_plain = error / plain_error;
      accuracy.worst = NameOf(input);
    }
  }
  return accuracy;
}

}  // namespace dmuon::kernels::testing
