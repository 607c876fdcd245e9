#include "tests/bench/measure.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>
#include <vector>

#include "kernels/newton_schulz.h"

namespace dmuon::kernels::testing {
namespace {

constexpr int kMinRuns = 9;
constexpr double kMinTotal_s = 1.0;

const GemmRate& RateOf(DeviceKind device, ElementType type, int threads) {
  static std::map<std::tuple<DeviceKind, ElementType, int>, GemmRate> rates;
  const auto [entry, is_new] = rates.try_emplace({device, type, threads});
  if (is_new) {
    entry->second =
        device == DeviceKind::kCpu ? MeasureCpuGemmRate(type, threads) : MeasureCudaGemmRate(type);
  }
  return entry->second;
}

}  // namespace

Rates RatesOf(const CaseOptions& options) {
  const NewtonSchulzStorage storage = StorageOf(options.newton_schulz);
  return {RateOf(options.device, storage.x, options.threads),
          RateOf(options.device, storage.square, options.threads)};
}

double Median_s(const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  run();
  run();
  run();  // the first may load, the second set up, the third is what comes again and again
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

double MedianStep_s(NewtonSchulzCase& measured) {
  return Median_s([&] { measured.Step(); });
}

}  // namespace dmuon::kernels::testing
