// "dmuon-tuning-1": the autotuner's measurements on a device, read as costs.
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "scheduler/profile_formats.h"

namespace dmuon::scheduler {
namespace {

constexpr int64_t kMaxDimension = int64_t{1} << 31;
constexpr int64_t kMaxBatch = int64_t{1} << 31;
constexpr int64_t kMaxIterations = 64;

constexpr spec::EnumName<kernels::Form> kRecordForms[] = {{"direct", kernels::Form::kDirect},
                                                          {"gram", kernels::Form::kGram}};

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

std::vector<int> ReadRestart(const Json& json, const spec::KeyPath& path, int iterations) {
  if (!json.is_array()) {
    spec::Refuse(path, Excerpt(json) + " is not a list of iterations");
  }
  std::vector<int> restart;
  for (size_t i = 0; i < json.size(); ++i) {
    restart.push_back(static_cast<int>(
        spec::ReadInteger(json[i], spec::KeyPath(path, i), 0, int64_t{iterations} - 1)));
  }
  return restart;
}

Numerics ReadNumerics(const Json& record, const spec::KeyPath& path) {
  Numerics numerics;
  const auto read = [&](const char* key, const auto& table) {
    return spec::ReadEnum(Require(record, path, key), spec::KeyPath(path, key), table);
  };
  numerics.precision = read("precision", kPrecisionNames);
  numerics.form = read("form", kRecordForms);
  numerics.iterations = static_cast<int>(spec::ReadInteger(
      Require(record, path, "iterations"), spec::KeyPath(path, "iterations"), 1, kMaxIterations));
  if (const Json* restart = spec::Find(record, "restart")) {
    numerics.restart = ReadRestart(*restart, spec::KeyPath(path, "restart"), numerics.iterations);
  }
  if (numerics.form == kernels::Form::kDirect) {
    numerics.restart.clear();
  }
  return numerics;
}

void ReadRecord(const Json& record, const spec::KeyPath& path,
                std::map<MeasuredProfile::Key, Curve>* curves) {
  spec::CheckKeys(record, path,
                  {"rows", "cols", "batch", "precision", "form", "restart", "iterations", "choice",
                   "median_s"});
  const auto integer = [&](const char* key, int64_t max) {
    return spec::ReadInteger(Require(record, path, key), spec::KeyPath(path, key), 1, max);
  };
  const Shape shape{integer("rows", kMaxDimension), integer("cols", kMaxDimension)};
  const int64_t batch = integer("batch", kMaxBatch);
  const double seconds = ReadPositive(record, path, "median_s");
  Curve& curve = (*curves)[{ReadNumerics(record, path), shape}];
  if (!curve.try_emplace(batch, seconds).second) {
    spec::Refuse(path, "measures a batch that an earlier record measures as well; keep one");
  }
}

CostProfilePtr ReadEntry(const Json& entry, const spec::KeyPath& path, const std::string& name) {
  spec::CheckKeys(entry, path, {"device", "elementwise_bytes_per_s", "records"});
  const spec::KeyPath device_path(path, "device");
  const Json& device = Require(entry, path, "device");
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
  const spec::KeyPath records_path(path, "records");
  const Json& records = Require(entry, path, "records");
  if (!records.is_array() || records.empty()) {
    spec::Refuse(records_path, Excerpt(records) + " is not a list of at least one record");
  }
  std::map<MeasuredProfile::Key, Curve> curves;
  for (size_t i = 0; i < records.size(); ++i) {
    ReadRecord(records[i], spec::KeyPath(records_path, i), &curves);
  }
  return std::make_shared<MeasuredProfile>(name,
                                           ReadPositive(entry, path, "elementwise_bytes_per_s"),
                                           auto_precision, memory_bytes, std::move(curves));
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
  spec::CheckKeys(json, path, {"format", "entries"});
  const spec::KeyPath entries_path(path, "entries");
  const Json& entries = Require(json, path, "entries");
  if (!entries.is_object() || entries.empty()) {
    spec::Refuse(entries_path, Excerpt(entries) + " is not an object with at least one device");
  }
  if (entry.empty() && entries.size() > 1) {
    spec::Refuse(entries_path, "has several devices; name one of " + ListKeys(entries));
  }
  const std::string key = entry.empty() ? entries.begin().key() : entry;
  const Json* chosen = spec::Find(entries, key);
  if (chosen == nullptr) {
    spec::Refuse(entries_path, "has no " + Excerpt(Json(key)) + ", only " + ListKeys(entries));
  }
  return ReadEntry(*chosen, spec::KeyPath(entries_path, key), key);
}

}  // namespace dmuon::scheduler
