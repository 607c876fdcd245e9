// Times the Muon step of a batch of equal matrices against the machine's best GEMM rate.
//
//   bench_newton_schulz --shape 1024x4096 --batch 1 --precision auto --form auto --threads 2 --json
//   bench_newton_schulz --benchmark_format=json [--benchmark_filter=...]
//
// With --shape: one case, one JSON object. Without: the shipped list through Google Benchmark.
#include <benchmark/benchmark.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "kernels/newton_schulz.h"
#include "tests/bench/newton_schulz_case.h"

namespace dmuon::kernels::testing {
namespace {

constexpr int kMinRuns = 9;
constexpr double kMinTotal_s = 1.0;

struct Arguments {
  std::string shape;
  int64_t batch = 1;
  std::string precision = "auto";
  std::string form = "auto";
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  bool json = false;
  bool accuracy = true;
};

double MedianStep_s(NewtonSchulzCase& measured) {
  using Clock = std::chrono::steady_clock;
  measured.Step();
  measured.Step();
  std::vector<double> times;
  double total_s = 0.0;
  while (std::ssize(times) < kMinRuns || total_s < kMinTotal_s) {
    const auto begin = Clock::now();
    measured.Step();
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    total_s += times.back();
  }
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  return times[times.size() / 2];
}

// Rates are measured once per type and thread count.
const GemmRate& RateOf(ElementType type, int threads) {
  static std::map<std::pair<ElementType, int>, GemmRate> rates;
  const auto [entry, is_new] = rates.try_emplace({type, threads});
  if (is_new) {
    entry->second = MeasureGemmRate(type, threads);
  }
  return entry->second;
}

struct Rates {
  GemmRate x;
  GemmRate square;
};

Rates RatesOf(const CaseOptions& options) {
  const NewtonSchulzStorage storage = StorageOf(options.newton_schulz);
  return {RateOf(storage.x, options.threads), RateOf(storage.square, options.threads)};
}

int RunOne(const Arguments& arguments) {
  long rows = 0;
  long cols = 0;
  char extra = 0;
  if (std::sscanf(arguments.shape.c_str(), "%ldx%ld%c", &rows, &cols, &extra) != 2 || rows < 1 ||
      cols < 1) {
    throw std::invalid_argument("--shape '" + arguments.shape + "' is not ROWSxCOLS");
  }
  const CaseOptions options =
      MakeCase(rows, cols, arguments.batch, arguments.threads, arguments.precision, arguments.form);
  NewtonSchulzCase measured(options);
  const Rates rates = RatesOf(options);
  const double step_s = MedianStep_s(measured);
  nlohmann::ordered_json report;
  report["shape"] = arguments.shape;
  report["batch"] = arguments.batch;
  report["threads"] = arguments.threads;
  report["device"] = measured.device().Describe();
  report["precision"] = NameOf(options.newton_schulz.precision);
  report["form"] = NameOf(options.newton_schulz.form);
  report["restart"] = options.newton_schulz.restart;
  report["median_ms"] = step_s * 1e3;
  report["useful_gflop"] = measured.useful_gflop();
  report["gemm_gflops"] = rates.x.gflops;
  report["gemm_how"] = rates.x.how;
  report["gemm_gflops_squares"] = rates.square.gflops;
  report["roofline"] = RooflineFraction(options, step_s, rates.x, rates.square);
  if (arguments.accuracy) {
    const Accuracy accuracy = MeasureAccuracy(options);
    report["error_vs_plain"] = accuracy.error_vs_plain;
    report["error_worst_class"] = accuracy.worst;
    report["error_shape"] = std::to_string(accuracy.rows) + "x" + std::to_string(accuracy.cols);
  }
  if (arguments.json) {
    std::printf("%s\n", report.dump().c_str());
  } else {
    for (const auto& [key, value] : report.items()) {
      std::printf("%-20s %s\n", key.c_str(), value.dump().c_str());
    }
  }
  return 0;
}

// Google Benchmark: the shapes of the project's goals.
void RunCase(benchmark::State& state, const CaseOptions& options) {
  NewtonSchulzCase measured(options);
  measured.Step();
  const Rates rates = RatesOf(options);
  double total_s = 0.0;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    measured.Step();
    total_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  const double step_s = total_s / static_cast<double>(state.iterations());
  state.counters["useful_gflop"] = measured.useful_gflop();
  state.counters["gemm_gflops"] = rates.x.gflops;
  state.counters["roofline"] = RooflineFraction(options, step_s, rates.x, rates.square);
  state.SetLabel(std::string(NameOf(options.newton_schulz.form)) + " " +
                 std::string(NameOf(options.newton_schulz.precision)));
}

void RegisterCases(const Arguments& arguments) {
  struct Shape {
    int64_t rows, cols, batch;
  };
  for (const Shape& s : std::vector<Shape>{{1024, 4096, 1},
                                           {512, 2048, 1},
                                           {256, 1024, 1},
                                           {1024, 1024, 1},
                                           {2048, 2048, 1},
                                           {256, 256, 16},
                                           {128, 128, 32}}) {
    const CaseOptions options =
        MakeCase(s.rows, s.cols, s.batch, arguments.threads, arguments.precision, arguments.form);
    const std::string name = std::to_string(s.rows) + "x" + std::to_string(s.cols) +
                             "/batch:" + std::to_string(s.batch) +
                             "/threads:" + std::to_string(arguments.threads);
    benchmark::RegisterBenchmark(name.c_str(), RunCase, options)
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
}

int Main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);  // takes its own flags out
  Arguments arguments;
  CLI::App app("Times the Muon step against the machine's best GEMM rate.");
  app.add_option("--shape", arguments.shape, "ROWSxCOLS of one case; without it, the shipped list");
  app.add_option("--batch", arguments.batch, "matrices")->check(CLI::PositiveNumber);
  app.add_option("--precision", arguments.precision, "auto, fp32 or bf16");
  app.add_option("--form", arguments.form, "auto, direct or gram");
  app.add_option("--threads", arguments.threads, "threads")->check(CLI::PositiveNumber);
  app.add_flag("--json", arguments.json, "one JSON object instead of lines");
  app.add_flag("--accuracy,!--no-accuracy", arguments.accuracy, "measure errors too");
  CLI11_PARSE(app, argc, argv);
  if (!arguments.shape.empty()) {
    return RunOne(arguments);
  }
  RegisterCases(arguments);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace dmuon::kernels::testing

int main(int argc, char** argv) {
  try {
    return dmuon::kernels::testing::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_newton_schulz: %s\n", error.what());
    return 2;
  }
}
