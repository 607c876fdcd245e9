// "dmuon-profile-1": a device from its data sheet. The step's products are counted by running the
// recurrences on an object that adds up arithmetic instead of doing it.
#include <algorithm>
#include <array>
#include <tuple>

#include "kernels/newton_schulz.h"
#include "scheduler/profile_formats.h"

namespace dmuon::scheduler {
namespace {

using kernels::ElementType;

// Products at the speed of `flops_per_s`, reached half way by a product of `half_work_flops`.
struct GemmRate {
  double flops_per_s = 0.0;
  double half_work_flops = 0.0;

  // A product of w flops runs at flops_per_s * w / (w + half_work), so it takes this long.
  double Seconds(double flops) const { return (flops + half_work_flops) / flops_per_s; }
};

struct AnalyticModel {
  std::string name;
  std::array<std::optional<GemmRate>, 3> gemm;  // by ElementType
  double memory_bytes_per_s = 0.0;              // sustained
  double launch_s = 0.0;
  double muon_bytes_per_element = 0.0;
  std::optional<ElementType> auto_precision;
  std::optional<int64_t> memory_bytes;
  std::optional<double> link_bytes_per_s;
};

// Adds up the time of the products of a batch.
class ProductTimes : public kernels::NewtonSchulzOperations {
 public:
  ProductTimes(const AnalyticModel& model, const kernels::NewtonSchulzOptions& options, double m,
               double n, double count)
      : m_(m), n_(n), count_(count), launch_s_(model.launch_s) {
    const kernels::NewtonSchulzStorage storage = kernels::StorageOf(options);
    x_ = *model.gemm[static_cast<size_t>(storage.x)];
    square_ = *model.gemm[static_cast<size_t>(storage.square)];
  }

  // Symmetric results cost half, as in kernels::UsefulFlops.
  void GramOfX(int) override { Add(x_, m_ * m_ * n_); }
  void Multiply(const SymmetricProduct&) override { Add(square_, m_ * m_ * m_); }
  void AddIdentity(int, double, int) override { seconds_ += launch_s_; }
  void ApplyToX(int, double, bool) override { Add(x_, 2.0 * m_ * m_ * n_); }

  double seconds() const { return seconds_; }

 private:
  void Add(const GemmRate& rate, double flops) {
    seconds_ += launch_s_ + rate.Seconds(flops * count_);
  }

  GemmRate x_;
  GemmRate square_;
  double m_;
  double n_;
  double count_;
  double launch_s_;
  double seconds_ = 0.0;
};

class AnalyticProfile : public CostProfile {
 public:
  explicit AnalyticProfile(AnalyticModel model) : model_(std::move(model)) {}

  const std::string& name() const override { return model_.name; }

  double MuonSeconds(int64_t rows, int64_t cols, const kernels::NewtonSchulzOptions& options,
                     int64_t count) const override {
    if (count <= 0) {
      return 0.0;
    }
    const auto m = static_cast<double>(std::min(rows, cols));
    const auto n = static_cast<double>(std::max(rows, cols));
    ProductTimes products(model_, options, m, n, static_cast<double>(count));
    kernels::RunNewtonSchulz(options, products);
    const double bytes = model_.muon_bytes_per_element * m * n * static_cast<double>(count);
    return products.seconds() + ElementwiseSeconds(bytes);
  }

  std::string GuessAbout(int64_t, int64_t, const kernels::NewtonSchulzOptions&) const override {
    return "";
  }

  double ElementwiseSeconds(double bytes) const override {
    return bytes / model_.memory_bytes_per_s;
  }

  std::optional<ElementType> auto_precision() const override { return model_.auto_precision; }
  std::optional<int64_t> memory_bytes() const override { return model_.memory_bytes; }
  std::optional<double> memory_bytes_per_s() const override { return model_.memory_bytes_per_s; }
  std::optional<double> link_bytes_per_s() const override { return model_.link_bytes_per_s; }
  std::optional<double> gemm_flops_per_s(ElementType type) const override {
    return model_.gemm[static_cast<size_t>(type)]->flops_per_s;
  }

 private:
  AnalyticModel model_;
};

// A share of a peak: more than 0, at most 1; 1 where it is not stated.
double ReadShare(const Json& object, const spec::KeyPath& path, std::string_view key) {
  const spec::NumberRange share{
      .max = 1.0, .exclude_min = true, .rule = "a share of the peak is in (0, 1]"};
  const Json* value = spec::Find(object, key);
  return value == nullptr ? 1.0 : spec::ReadNumber(*value, spec::KeyPath(path, key), share);
}

double ReadCost(const Json& object, const spec::KeyPath& path, std::string_view key) {
  const spec::NumberRange cost{.rule = "it must be >= 0"};
  const Json* value = spec::Find(object, key);
  return value == nullptr ? 0.0 : spec::ReadNumber(*value, spec::KeyPath(path, key), cost);
}

GemmRate ReadGemmRate(const Json& object, const spec::KeyPath& path) {
  spec::CheckKeys(object, path, {"peak_flops_per_s", "sustained", "half_work_flops"});
  return {ReadPositive(object, path, "peak_flops_per_s") * ReadShare(object, path, "sustained"),
          ReadCost(object, path, "half_work_flops")};
}

// "sources" and "assumptions" are for people; they must be lists of strings all the same.
void CheckNotes(const Json& json, const spec::KeyPath& path, std::string_view key) {
  const Json* notes = spec::Find(json, key);
  const auto is_text = [](const Json& note) { return note.is_string(); };
  if (notes != nullptr &&
      !(notes->is_array() && std::all_of(notes->begin(), notes->end(), is_text))) {
    spec::Refuse(spec::KeyPath(path, key), Excerpt(*notes) + " is not a list of strings");
  }
}

}  // namespace

CostProfilePtr ReadAnalyticProfile(const Json& json, const spec::KeyPath& path) {
  spec::CheckKeys(json, path,
                  {"format", "name", "sources", "assumptions", "auto_precision", "gemm",
                   "memory_bytes", "memory_bytes_per_s", "memory_sustained", "launch_s",
                   "muon_bytes_per_element", "link_bytes_per_s"});
  CheckNotes(json, path, "sources");
  CheckNotes(json, path, "assumptions");
  AnalyticModel model;
  model.name = spec::ReadText(Require(json, path, "name"), spec::KeyPath(path, "name"), 64);
  const spec::KeyPath gemm_path(path, "gemm");
  const Json& gemm = Require(json, path, "gemm");
  spec::CheckKeys(gemm, gemm_path, {"fp32", "bf16", "fp16"});
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16}) {
    const std::string_view key = kernels::NameOf(type);
    model.gemm[static_cast<size_t>(type)] =
        ReadGemmRate(Require(gemm, gemm_path, key), spec::KeyPath(gemm_path, key));
  }
  model.memory_bytes_per_s =
      ReadPositive(json, path, "memory_bytes_per_s") * ReadShare(json, path, "memory_sustained");
  model.launch_s = ReadCost(json, path, "launch_s");
  model.muon_bytes_per_element = ReadCost(json, path, "muon_bytes_per_element");
  if (const Json* precision = spec::Find(json, "auto_precision")) {
    model.auto_precision =
        spec::ReadEnum(*precision, spec::KeyPath(path, "auto_precision"), kPrecisionNames);
  }
  if (const Json* bytes = spec::Find(json, "memory_bytes")) {
    model.memory_bytes =
        spec::ReadInteger(*bytes, spec::KeyPath(path, "memory_bytes"), 1, int64_t{1} << 50);
  }
  if (spec::Find(json, "link_bytes_per_s") != nullptr) {
    model.link_bytes_per_s = ReadPositive(json, path, "link_bytes_per_s");
  }
  return std::make_shared<AnalyticProfile>(std::move(model));
}

}  // namespace dmuon::scheduler
