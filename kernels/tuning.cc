#include "kernels/tuning.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <limits>
#include <random>
#include <stdexcept>

#include "kernels/resident_batch.h"

namespace dmuon::kernels {
namespace {

constexpr int kMostRuns = 101;
constexpr int64_t kElementwiseCount = 8 << 20;  // 32 MB per array
constexpr int64_t kAdamWTensors = 7;            // gradient, master and moments, the latter written

double SteadyNow_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string ShapeText(int64_t rows, int64_t cols) {
  return std::to_string(rows) + "x" + std::to_string(cols);
}

std::string CaseText(const TuningCase& wanted) {
  const NewtonSchulzOptions& numerics = wanted.options.newton_schulz;
  return ShapeText(wanted.rows, wanted.cols) + " batch " + std::to_string(wanted.batch) + " " +
         std::string(NameOf(numerics.precision)) + " " + std::string(NameOf(numerics.form));
}

std::vector<float> RandomGradient(int64_t count) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> values(count);
  std::generate(values.begin(), values.end(), [&] { return uniform(random); });
  return values;
}

// "error 3.1e-02 on power_law, the limit is 3.0e-04 (measured on 128x512)"
std::string Verdict(double error, const accuracy::JudgedInput& judged) {
  std::array<char, 160> text;
  std::snprintf(text.data(), text.size(), "error %.1e on %s, the limit is %.1e (measured on %s)",
                error, accuracy::NameOf(judged.input).c_str(), judged.limit,
                ShapeText(judged.u.rows, judged.u.cols).c_str());
  return text.data();
}

// Plain steps whose written master is the negative direction.
MuonOptions DirectionOptions(const NewtonSchulzOptions& numerics) {
  MuonOptions options;
  options.scale = UpdateScale::kNone;
  options.newton_schulz = numerics;
  return options;
}

MuonValues DirectionValues() {
  MuonValues values;
  values.lr = 1.0;
  return values;
}

MuonValues TimedValues() {
  MuonValues values;
  values.lr = 0.02;
  values.momentum = 0.95;
  return values;
}

ExecutionTable TableOf(const ExecutionCase& key, const MuonExecution& choice) {
  ExecutionTable table;
  table.Set(key, choice);
  return table;
}

// While it lives the device executes one case as it is told; then by its own defaults again.
class Trial {
 public:
  Trial(Device& device, const ExecutionCase& key, const MuonExecution& choice) : device_(device) {
    device.UseTuning(TableOf(key, choice));
  }
  ~Trial() { device_.UseTuning({}); }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

 private:
  Device& device_;
};

}  // namespace

Tuner::Tuner(Device& device, TunerOptions options) : device_(device), options_(std::move(options)) {
  if (!options_.clock) {
    options_.clock = SteadyNow_s;
  }
}

void Tuner::Warn(const std::string& line) const {
  if (options_.warn) {
    options_.warn(line);
  }
}

void Tuner::Discard(const TuningCase& wanted, const MuonExecution& choice, const std::string& why,
                    TuningResult* result) const {
  result->discarded.push_back({choice, why});
  Warn(CaseText(wanted) + ": candidate (" + TextOf(choice) + ") is discarded: " + why);
}

const std::vector<accuracy::JudgedInput>& Tuner::JudgedInputsFor(
    const accuracy::Shape& shape, const NewtonSchulzOptions& options) {
  if (judged_.empty() || judged_shape_ != shape || judged_options_ != options) {
    judged_ = accuracy::MakeJudgedInputs(shape, options);
    judged_shape_ = shape;
    judged_options_ = options;
  }
  return judged_;
}

std::string Tuner::JudgeAccuracy(const TuningCase& wanted, const MuonExecution& choice) {
  const NewtonSchulzOptions& numerics = wanted.options.newton_schulz;
  const accuracy::Shape shape = accuracy::ReducedShape(wanted.rows, wanted.cols);
  const auto& inputs = JudgedInputsFor(shape, numerics);
  const int64_t count = std::ssize(inputs);
  ResidentBatch batch(device_, DirectionOptions(numerics), shape.rows, shape.cols, count);
  for (int64_t i = 0; i < count; ++i) {
    batch.SetGradient(i, accuracy::ToFloats(inputs[i].u));
  }
  const Trial trial(device_, ExecutionCaseOf(shape.rows, shape.cols, 1, numerics), choice);
  batch.Step(DirectionValues());
  for (int64_t i = 0; i < count; ++i) {
    const accuracy::Matrix written =
        accuracy::FromFloats(shape.rows, shape.cols, batch.Result(i).data());
    const double error = accuracy::RelativeError(accuracy::Scaled(written, -1.0), inputs[i].exact);
    if (!(error <= inputs[i].limit)) {  // NaN too
      return Verdict(error, inputs[i]);
    }
  }
  return "";
}

std::vector<MuonExecution> Tuner::Accurate(const TuningCase& wanted, TuningResult* result) {
  std::vector<MuonExecution> candidates =
      device_.Candidates(wanted.rows, wanted.cols, wanted.batch, wanted.options.newton_schulz);
  const MuonExecution own = candidates.at(0);
  if (const std::string why = JudgeAccuracy(wanted, own); !why.empty()) {
    Warn(CaseText(wanted) + ": these numerics break the accuracy rule: " + why +
         "; only the default is timed. State another form, restart or precision");
    return {own};
  }
  std::erase_if(candidates, [&](const MuonExecution& choice) {
    const std::string why = JudgeAccuracy(wanted, choice);
    if (!why.empty()) {
      Discard(wanted, choice, why, result);
    }
    return !why.empty();
  });
  return candidates;
}

double Tuner::RunOnce(const TuningCase& wanted, ResidentBatch& batch, const MuonExecution& choice) {
  const Trial trial(
      device_,
      ExecutionCaseOf(wanted.rows, wanted.cols, wanted.batch, wanted.options.newton_schulz),
      choice);
  const double begin_s = options_.clock();
  const bool finite = batch.Step(TimedValues());
  const double time_s = options_.clock() - begin_s;
  if (!finite) {
    throw std::runtime_error(CaseText(wanted) + ": a step with (" + TextOf(choice) +
                             ") is not finite on " + device_.Describe() +
                             ", on gradients between -1 and 1: this device computes wrongly");
  }
  return time_s;
}

std::vector<Tuner::Contender> Tuner::SameBits(const TuningCase& wanted, ResidentBatch& batch,
                                              TuningResult* result) {
  std::vector<Contender> contenders;
  uint64_t expected = 0;
  for (const MuonExecution& choice : Accurate(wanted, result)) {
    RunOnce(wanted, batch, choice);  // warms up: memory, kernels made on first use
    const uint64_t fingerprint = batch.Fingerprint();
    if (contenders.empty()) {
      expected = fingerprint;
    }
    if (fingerprint == expected || !device_.ChoicesKeepBits()) {
      contenders.push_back({choice, {}, false});
    } else {
      Discard(wanted, choice, "its bits are not the default's", result);
    }
  }
  return contenders;
}

void Tuner::Time(const TuningCase& wanted, ResidentBatch& batch,
                 std::vector<Contender>& contenders) {
  const auto best_of = [](const Contender& c) { return *std::ranges::min_element(c.times_s); };
  double best_s = std::numeric_limits<double>::infinity();
  const auto run_round = [&] {
    for (Contender& contender : contenders) {
      if (!contender.given_up) {
        contender.times_s.push_back(RunOnce(wanted, batch, contender.choice));
        best_s = std::min(best_s, contender.times_s.back());
      }
    }
  };
  for (int round = 0; round < 2; ++round) {
    run_round();
    for (std::size_t i = 1; i < contenders.size(); ++i) {
      contenders[i].given_up |= best_of(contenders[i]) > options_.hopeless * best_s;
    }
  }
  const double wanted_runs = best_s > 0.0 ? options_.least_time_s / best_s : kMostRuns;
  const int runs =
      std::max(options_.runs, static_cast<int>(std::min(wanted_runs, double{kMostRuns})));
  for (int round = 2; round < runs; ++round) {
    run_round();
  }
}

// Of many candidates of equal speed, the best median is the luckiest: it has to win once more.
bool Tuner::BeatsDefault(const TuningCase& wanted, ResidentBatch& batch, Contender& own,
                         Contender& challenger) {
  const std::size_t rounds = challenger.times_s.size();
  std::vector<double> ratios;
  for (std::size_t round = 0; round < rounds; ++round) {
    Contender& first = round % 2 == 0 ? own : challenger;
    Contender& second = round % 2 == 0 ? challenger : own;
    first.times_s.push_back(RunOnce(wanted, batch, first.choice));
    second.times_s.push_back(RunOnce(wanted, batch, second.choice));
    ratios.push_back(own.times_s.back() / challenger.times_s.back());
  }
  const auto won = std::ranges::count_if(ratios, [](double ratio) { return ratio > 1.0; });
  return MedianOf(ratios) > 1.0 + options_.noise && 4 * won >= 3 * std::ssize(ratios);
}

TuningResult Tuner::Tune(const TuningCase& wanted) {
  TuningResult result;
  ResidentBatch batch(device_, wanted.options, wanted.rows, wanted.cols, wanted.batch);
  const std::vector<float> gradient = RandomGradient(wanted.rows * wanted.cols);
  for (int64_t i = 0; i < wanted.batch; ++i) {
    batch.SetGradient(i, gradient);
  }
  std::vector<Contender> contenders = SameBits(wanted, batch, &result);
  Time(wanted, batch, contenders);
  Contender& own = contenders[0];
  Contender* chosen = &own;
  for (Contender& contender : contenders) {
    if (!contender.given_up && MedianOf(contender.times_s) < MedianOf(chosen->times_s)) {
      chosen = &contender;
    }
  }
  if (chosen != &own && !BeatsDefault(wanted, batch, own, *chosen)) {
    chosen = &own;
  }
  for (const Contender& contender : contenders) {
    result.measured.push_back({contender.choice, MedianOf(contender.times_s),
                               static_cast<int>(contender.times_s.size())});
  }
  result.choice = chosen->choice;
  result.median_s = MedianOf(chosen->times_s);
  result.default_s = MedianOf(own.times_s);
  return result;
}

double Tuner::MeasureElementwise() {
  constexpr int64_t kBytes = kElementwiseCount * SizeOf(ElementType::kFloat32);
  std::array<Buffer, kAdamWTensors> tensors;
  for (Buffer& tensor : tensors) {
    tensor = device_.Allocate(kBytes);
  }
  AdamWValues values;
  values.lr = 1e-3;
  const AdamWRange range = {kElementwiseCount,   tensors[0].floats(), tensors[1].floats(),
                            tensors[2].floats(), tensors[3].floats(), tensors[4].floats(),
                            tensors[5].floats(), tensors[6].floats()};
  device_.AdamWStep(values, range);
  std::vector<double> times_s;
  for (int run = 0; run < options_.runs; ++run) {
    const double begin_s = options_.clock();
    device_.AdamWStep(values, range);
    times_s.push_back(options_.clock() - begin_s);
  }
  return static_cast<double>(kAdamWTensors * kBytes) / MedianOf(times_s);
}

}  // namespace dmuon::kernels
