#include "tests/bench/measure.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>
#include <vector>

#include "kernels/newton_schulz.h"

namespace dmuon::kernels::testing {
namespace {

constexpr int kRounds = 3;
constexpr int kWarmUps =
    3;  // the first may load, the second set up, the third comes again and again
constexpr int kMinRuns = 5;
constexpr double kMinTotal_s = 0.34;

GemmRate MeasureRate(DeviceKind device, ElementType type, int threads) {
  return device == DeviceKind::kCpu ? MeasureCpuGemmRate(type, threads) : MeasureCudaGemmRate(type);
}

Rates MeasureRates(const CaseOptions& options) {
  const NewtonSchulzStorage storage = StorageOf(options.newton_schulz);
  Rates rates;
  rates.x = MeasureRate(options.device, storage.x, options.threads);
  rates.square = storage.square == storage.x
                     ? rates.x
                     : MeasureRate(options.device, storage.square, options.threads);
  return rates;
}

}  // namespace

double Median_s(const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  double total_s = 0.0;
  while (std::ssize(times) < kMinRuns || total_s < kMinTotal_s) {
    const auto begin = Clock::now();
    run();
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    total_s += times.back();
  }
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  return times[times.size() / 2];
}

Rates RatesOf(const CaseOptions& options) {
  static std::map<std::tuple<DeviceKind, ElementType, ElementType, int>, Rates> known;
  const NewtonSchulzStorage storage = StorageOf(options.newton_schulz);
  const auto [entry, is_new] =
      known.try_emplace({options.device, storage.x, storage.square, options.threads});
  if (is_new) {
    entry->second = MeasureRates(options);
  }
  return entry->second;
}

Measurement MeasureRounds(const CaseOptions& options, NewtonSchulzCase& measured) {
  for (int i = 0; i < kWarmUps; ++i) {
    measured.Step();
  }
  std::vector<Measurement> rounds;
  for (int i = 0; i < kRounds; ++i) {
    Measurement& round = rounds.emplace_back();
    round.rates = MeasureRates(options);
    round.step_s = Median_s([&] { measured.Step(); });
    round.roofline = RooflineFraction(options, round.step_s, round.rates.x, round.rates.square);
  }
  std::sort(rounds.begin(), rounds.end(),
            [](const Measurement& a, const Measurement& b) { return a.roofline < b.roofline; });
  return rounds[kRounds / 2];
}

}  // namespace dmuon::kernels::testing
