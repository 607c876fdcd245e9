// The optimizers that run in the trainers: AdamW and gather-then-compute Muon.
#include <algorithm>

#include "scheduler/simulator/optimizer.h"

namespace dmuon::simulator {
namespace {

// Traffic of a gather-then-compute rank in device memory, bytes an element: momentum (gradient and
// momentum read, momentum and update written) and step (master and update read, master and
// parameter written), both of what the rank holds; norm and cast of each whole matrix (read twice,
// written once in half precision).
constexpr double kMomentumBytes = 16.0;
constexpr double kStepBytes = 16.0;
constexpr double kCastBytes = 10.0;

struct Elements {
  double muon = 0.0;
  double adamw = 0.0;
};

Elements CountElements(const SessionSpec& spec) {
  Elements elements;
  for (const ParameterSpec& parameter : spec.parameters) {
    (parameter.rule == Rule::kMuon ? elements.muon : elements.adamw) +=
        static_cast<double>(parameter.elements());
  }
  return elements;
}

// The share of each parameter that a rank holds.
double HeldShare(const RunOptions& options) { return options.sharded ? 1.0 / options.gpus : 1.0; }

class AdamW : public Optimizer {
 public:
  explicit AdamW(const Scene& scene) : scene_(scene) {}

  void GradientReady(size_t) override {}

  void BackwardDone() override {
    const Scenario& scenario = scene_.scenario;
    const Elements elements = CountElements(scenario.spec);
    const double bytes = scheduler::kAdamWBytesPerElement * (elements.muon + elements.adamw) *
                         HeldShare(scenario.options);
    scene_.devices->RunOnAll(
        {SpanKind::kOptimizer, scenario.profile.ElementwiseSeconds(bytes), "AdamW"}, [this] {
          updated_s_ = scene_.events->now();
          scene_.loop->AllParametersReady();
        });
  }

 private:
  Scene scene_;
};

// Every rank gathers the update of one Muon parameter after the other, one ahead of the
// orthogonalisation, and runs the plain direct iteration on all of them.
class GatherThenCompute : public Optimizer {
 public:
  explicit GatherThenCompute(const Scene& scene)
      : scene_(scene), elements_(CountElements(scene.scenario.spec)) {
    for (const ParameterSpec& parameter : scene.scenario.spec.parameters) {
      if (parameter.rule == Rule::kMuon) {
        parameters_.push_back(&parameter);
      }
    }
    gathered_.assign(parameters_.size(), !scene.scenario.options.sharded);
  }

  void GradientReady(size_t) override {}

  void BackwardDone() override {
    Elementwise(kMomentumBytes * elements_.muon, "momentum", [this] {
      Gather();
      Orthogonalise();
    });
  }

 private:
  void Elementwise(double bytes, const char* label, Action done) {
    const double held = bytes * HeldShare(scene_.scenario.options);
    scene_.devices->RunOnAll(
        {SpanKind::kOptimizer, scene_.scenario.profile.ElementwiseSeconds(held), label},
        std::move(done));
  }

  // At most the one in work and the next.
  void Gather() {
    while (scene_.scenario.options.sharded && next_gather_ < parameters_.size() &&
           next_gather_ <= current_ + 1) {
      const size_t index = next_gather_++;
      const ParameterSpec& parameter = *parameters_[index];
      const double start = scene_.events->now();
      scene_.network->GatherOrScatter(
          static_cast<double>(parameter.elements() * SizeOf(parameter.dtype)),
          [this, index, start] {
            if (scene_.spans != nullptr) {
              scene_.spans->push_back({kCollectivesLane, SpanKind::kCollective, start,
                                       scene_.events->now(),
                                       "gather update of " + parameters_[index]->name});
            }
            gathered_[index] = true;
            Orthogonalise();
          });
    }
  }

  void Orthogonalise() {
    if (computing_) {
      return;
    }
    if (current_ == parameters_.size()) {
      Finish();
      return;
    }
    if (!gathered_[current_]) {
      return;
    }
    computing_ = true;
    scene_.devices->RunOnAll(
        {SpanKind::kOptimizer, PlainSeconds(*parameters_[current_]), parameters_[current_]->name},
        [this] {
          computing_ = false;
          ++current_;
          Gather();
          Orthogonalise();
        });
  }

  // X X^T, A A and B X of every iteration in full, without symmetry, at the rate of large products;
  // starting kernels costs nothing.
  double PlainSeconds(const ParameterSpec& parameter) const {
    const Scenario& scenario = scene_.scenario;
    const MuonSettings& settings = scenario.spec.groups[static_cast<size_t>(parameter.group)].muon;
    const auto iterations = static_cast<double>(settings.coefficients.size());
    double flops = 0.0;
    double elements = 0.0;
    for (const StridedMatrix& matrix : MatricesOf(parameter)) {
      const auto m = static_cast<double>(std::min(matrix.rows, matrix.cols));
      const auto n = static_cast<double>(std::max(matrix.rows, matrix.cols));
      flops += iterations * (4.0 * m * m * n + 2.0 * m * m * m);
      elements += m * n;
    }
    return flops / *scenario.profile.gemm_flops_per_s(scenario.options.training_precision) +
           scenario.profile.ElementwiseSeconds(kCastBytes * elements);
  }

  void Finish() {
    const double bytes =
        kStepBytes * elements_.muon + scheduler::kAdamWBytesPerElement * elements_.adamw;
    Elementwise(bytes, "step", [this] {
      updated_s_ = scene_.events->now();
      scene_.loop->AllParametersReady();
    });
  }

  Scene scene_;
  Elements elements_;
  std::vector<const ParameterSpec*> parameters_;
  std::vector<bool> gathered_;
  size_t next_gather_ = 0;
  size_t current_ = 0;
  bool computing_ = false;
};

}  // namespace

std::unique_ptr<Optimizer> MakeAdamW(const Scene& scene) { return std::make_unique<AdamW>(scene); }

std::unique_ptr<Optimizer> MakeGatherThenCompute(const Scene& scene) {
  return std::make_unique<GatherThenCompute>(scene);
}

}  // namespace dmuon::simulator
