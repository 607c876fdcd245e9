// "dmuon-tuning-1": the autotuner's measurements on a device, read as costs.
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "scheduler/profile_formats.h"
#include "scheduler/tuning_format.h"

namespace dmuon::scheduler {
namespace {

// What decides the arithmetic of a shape, and so its time.
struct Numerics {
  kernels::ElementType precision = kernels::ElementType::kFloat32;
  kernels::Form form = kernels::Form::kDirect;
  std::vector<int> restart;
  int iterations = 0;

  bool operator==(const Numerics&) const = default;
  bool operator<(const Numerics& other) const {
    return std::tie(precision, form, restart, iterations) <
           std::tie(other.precision, other.form, other.restart, other.iterations);
  }
};

struct Shape {
  int64_t rows = 0;
  int64_t cols = 0;

  bool operator==(const Shape&) const = default;
  bool operator<(const Shape& other) const {
    return std::tie(rows, cols) < std::tie(other.rows, other.cols);
  }
};

Numerics NumericsOfOptions(const kernels::NewtonSchulzOptions& options) {
  Numerics numerics{
      options.precision, options.form, {}, static_cast<int>(options.coefficients.size())};
  if (options.form == kernels::Form::kGram) {
    numerics.restart = options.restart;
  }
  return numerics;
}

double FlopsOf(const Shape& shape, const Numerics& numerics) {
  kernels::NewtonSchulzOptions options;
  options.precision = numerics.precision;
  options.form = numerics.form;
  options.restart = numerics.restart;
  options.coefficients.resize(static_cast<size_t>(numerics.iterations));
  return kernels::UsefulFlops(shape.rows, shape.cols, options);
}

// Seconds by batch size.
using Curve = std::map<int64_t, double>;

// Linear between the measured batches and down to 0; beyond the largest, every further matrix costs
// what one costs there on average.
double CurveSeconds(const Curve& curve, int64_t count) {
  const auto above = curve.lower_bound(count);
  if (above == curve.end()) {
    const auto& [batch, seconds] = *curve.rbegin();
    return seconds * (static_cast<double>(count) / static_cast<double>(batch));
  }
  if (above->first == count) {
    return above->second;
  }
  int64_t low_batch = 0;
  double low_seconds = 0.0;
  if (above != curve.begin()) {
    std::tie(low_batch, low_seconds) = *std::prev(above);
  }
  const double share =
      static_cast<double>(count - low_batch) / static_cast<double>(above->first - low_batch);
  return low_seconds + share * (above->second - low_seconds);
}

std::string TextOf(const Shape& shape, const Numerics& numerics) {
  std::string text = std::to_string(shape.rows) + " x " + std::to_string(shape.cols) + " (" +
                     std::string(NameOf(numerics.form)) + ", " +
                     std::string(NameOf(numerics.precision));
  for (const int iteration : numerics.restart) {
    text += ", restart " + std::to_string(iteration);
  }
  return text + ", " + std::to_string(numerics.iterations) + " iterations)";
}

class MeasuredProfile : public CostProfile {
 public:
  using Key = std::pair<Numerics, Shape>;

  MeasuredProfile(std::string name, double elementwise_bytes_per_s,
                  std::optional<kernels::ElementType> auto_precision,
                  std::optional<int64_t> memory_bytes, std::map<Key, Curve> curves)
      : name_(std::move(name)),
        elementwise_bytes_per_s_(elementwise_bytes_per_s),
        auto_precision_(auto_precision),
        memory_bytes_(memory_bytes),
        curves_(std::move(curves)) {}

  const std::string& name() const override { return name_; }

  double MuonSeconds(int64_t rows, int64_t cols, const kernels::NewtonSchulzOptions& options,
                     int64_t count) const override {
    if (count <= 0) {
      return 0.0;
    }
    const Key wanted{NumericsOfOptions(options), {rows, cols}};
    const auto& [key, curve] = *Nearest(wanted);
    const double seconds = CurveSeconds(curve, count);
    return key == wanted
               ? seconds
               : seconds * (FlopsOf(wanted.second, wanted.first) / FlopsOf(key.second, key.first));
  }

  std::string GuessAbout(int64_t rows, int64_t cols,
                         const kernels::NewtonSchulzOptions& options) const override {
    const Key wanted{NumericsOfOptions(options), {rows, cols}};
    const Key& key = Nearest(wanted)->first;
    if (key == wanted) {
      return "";
    }
    return "no measurement of " + TextOf(wanted.second, wanted.first) + ": scaled from " +
           TextOf(key.second, key.first) + " by useful flops; dmuonctl tune measures it";
  }

  double ElementwiseSeconds(double bytes) const override {
    return bytes / elementwise_bytes_per_s_;
  }

  std::optional<kernels::ElementType> auto_precision() const override { return auto_precision_; }
  std::optional<int64_t> memory_bytes() const override { return memory_bytes_; }
  std::optional<double> memory_bytes_per_s() const override { return elementwise_bytes_per_s_; }
  std::optional<double> link_bytes_per_s() const override { return std::nullopt; }
  std::optional<double> gemm_flops_per_s(kernels::ElementType) const override {
    return std::nullopt;
  }

 private:
  // Curves compare by how far their numerics are from the wanted ones, then their shape.
  static auto Distance(const Key& key, const Key& wanted) {
    const auto dimension = [](int64_t a, int64_t b) {
      return std::abs(std::log(static_cast<double>(a) / static_cast<double>(b)));
    };
    const auto& [numerics, shape] = key;
    const auto& [wanted_numerics, wanted_shape] = wanted;
    const double apart =
        dimension(std::min(shape.rows, shape.cols),
                  std::min(wanted_shape.rows, wanted_shape.cols)) +
        dimension(std::max(shape.rows, shape.cols), std::max(wanted_shape.rows, wanted_shape.cols));
    return std::tuple(numerics.precision != wanted_numerics.precision,
                      numerics.form != wanted_numerics.form, numerics != wanted_numerics, apart,
                      shape != wanted_shape);
  }

  std::map<Key, Curve>::const_iterator Nearest(const Key& wanted) const {
    const auto exact = curves_.find(wanted);
    if (exact != curves_.end()) {
      return exact;
    }
    return std::min_element(curves_.begin(), curves_.end(),
                            [&wanted](const auto& a, const auto& b) {
                              return Distance(a.first, wanted) < Distance(b.first, wanted);
                            });
  }

  std::string name_;
  double elementwise_bytes_per_s_;
  std::optional<kernels::ElementType> auto_precision_;
  std::optional<int64_t> memory_bytes_;
  std::map<Key, Curve> curves_;  // not empty
};

std::map<MeasuredProfile::Key, Curve> CurvesOf(const std::vector<TuningRecord>& records,
                                               const spec::KeyPath& path) {
  std::map<MeasuredProfile::Key, Curve> curves;
  for (size_t i = 0; i < records.size(); ++i) {
    const kernels::ExecutionCase& measured = records[i].measured;
    Numerics numerics{measured.precision, measured.form, {}, measured.iterations};
    if (measured.form == kernels::Form::kGram) {
      numerics.restart = measured.restart;
    }
    Curve& curve = curves[{numerics, {measured.rows, measured.cols}}];
    if (!curve.try_emplace(measured.batch, records[i].median_s).second) {
      spec::Refuse(spec::KeyPath(path, i),
                   "measures a batch that an earlier record measures as well; keep one");
    }
  }
  return curves;
}

CostProfilePtr ReadEntry(const Json& root, const spec::KeyPath& path, const std::string& name) {
  const TuningEntry entry = ReadTuningEntry(root, name).value();
  const spec::KeyPath records_path(path, "records");
  if (entry.records.empty()) {
    spec::Refuse(records_path, "has no record; dmuonctl tune makes them");
  }
  const spec::KeyPath device_path(path, "device");
  const Json& device = root.at("entries").at(name).at("device");
  spec::CheckKeys(device, device_path, {"kind", "name", "threads", "libraries", "memory_bytes"});
  std::optional<int64_t> memory_bytes;
  if (const Json* bytes = spec::Find(device, "memory_bytes")) {
    memory_bytes =
        spec::ReadInteger(*bytes, spec::KeyPath(device_path, "memory_bytes"), 1, int64_t{1} << 50);
  }
  // A GPU computes in fp16 where nothing else is asked for; what a CPU does depends on the CPU.
  std::optional<kernels::ElementType> auto_precision;
  if (Require(device, device_path, "kind") == "cuda") {
    auto_precision = kernels::ElementType::kFloat16;
  }
  return std::make_shared<MeasuredProfile>(name, entry.elementwise_bytes_per_s, auto_precision,
                                           memory_bytes, CurvesOf(entry.records, records_path));
}

std::string ListKeys(const Json& entries) {
  std::string list;
  for (const auto& [key, value] : entries.items()) {
    list += (list.empty() ? "" : ", ") + Excerpt(Json(key));
  }
  return list;
}

}  // namespace

CostProfilePtr ReadMeasuredProfile(const Json& json, const spec::KeyPath& path,
                                   const std::string& entry) {
  CheckTuningRoot(json);
  const spec::KeyPath entries_path(path, "entries");
  const Json& entries = json.at("entries");
  if (entries.empty()) {
    spec::Refuse(entries_path, "has no device; dmuonctl tune measures one");
  }
  if (entry.empty() && entries.size() > 1) {
    spec::Refuse(entries_path, "has several devices; name one of " + ListKeys(entries));
  }
  const std::string key = entry.empty() ? entries.begin().key() : entry;
  if (spec::Find(entries, key) == nullptr) {
    spec::Refuse(entries_path, "has no " + Excerpt(Json(key)) + ", only " + ListKeys(entries));
  }
  return ReadEntry(json, spec::KeyPath(entries_path, key), key);
}

}  // namespace dmuon::scheduler
