// Times the operations that only stream memory against the machine's best plain copy.
//
//   bench_elementwise --json [--case adamw] [--mb 64] [--threads 2] [--rounds 21] [--clock cpu]
//   bench_elementwise --benchmark_format=json [--benchmark_filter=...]
//
// With --json or --case: a list of results at once. Without: the same list through Google
// Benchmark. Rounds alternate between copies and the operation, and both sides' medians are
// compared: other work on the machine slows both alike. fraction_fastest compares the fastest runs
// instead, which is what an idle machine gives.
#include <benchmark/benchmark.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_features.h"
#include "tests/bench/copy_rate.h"
#include "tests/bench/elementwise_case.h"

namespace dmuon::kernels::testing {
namespace {

struct Arguments {
  std::string only = "all";
  int64_t mb = 64;
  int threads = AvailableCores();
  int rounds = 21;
  Clock clock = Clock::kWall;
  bool json = false;
};

int64_t BytesOf(const Arguments& arguments) { return arguments.mb << 20; }

double TimeCase_s(const Arguments& arguments, ElementwiseCase& measured) {
  return TimeOnce_s(arguments.clock, arguments.threads, [&] { measured.Run(); });
}

nlohmann::ordered_json MeasureCase(const Arguments& arguments, const ElementwiseOptions& options,
                                   Device& device, CopyRate& copy) {
  ElementwiseCase measured(device, options, BytesOf(arguments), arguments.threads);
  measured.Run();
  copy.RunRound();
  copy.Clear();
  RunTimes times;
  for (int round = 0; round < arguments.rounds; ++round) {
    copy.RunRound();
    times.Add(TimeCase_s(arguments, measured));
  }
  const CopyRate::Rate rate = copy.Best();
  const double gigabytes = static_cast<double>(measured.bytes()) / 1e9;
  nlohmann::ordered_json report;
  report["case"] = NameOf(options);
  report["bytes"] = measured.bytes();
  report["median_ms"] = times.median_s() * 1e3;
  report["gb_s"] = gigabytes / times.median_s();
  report["copy_gb_s"] = rate.median_gb_s;
  report["copy_how"] = rate.how;
  report["fraction"] = gigabytes / times.median_s() / rate.median_gb_s;
  report["fastest_gb_s"] = gigabytes / times.fastest_s();
  report["copy_fastest_gb_s"] = rate.fastest_gb_s;
  report["fraction_fastest"] = gigabytes / times.fastest_s() / rate.fastest_gb_s;
  return report;
}

void PrintRow(const nlohmann::ordered_json& row) {
  std::printf("%-14s %7.2f GB/s of %7.2f: %.2f  (fastest %7.2f of %7.2f: %.2f)  %s\n",
              row["case"].get<std::string>().c_str(), row["gb_s"].get<double>(),
              row["copy_gb_s"].get<double>(), row["fraction"].get<double>(),
              row["fastest_gb_s"].get<double>(), row["copy_fastest_gb_s"].get<double>(),
              row["fraction_fastest"].get<double>(), row["copy_how"].get<std::string>().c_str());
  std::fflush(stdout);
}

int RunList(const Arguments& arguments) {
  const std::unique_ptr<Device> device = MakeCpuDevice({arguments.threads});
  CopyRate copy(*device, arguments.threads, BytesOf(arguments), arguments.clock);
  nlohmann::ordered_json report;
  report["device"] = device->Describe();
  report["threads"] = arguments.threads;
  report["smallest_array_mb"] = arguments.mb;
  report["clock"] = arguments.clock == Clock::kWall ? "wall" : "cpu";
  report["rounds"] = arguments.rounds;
  report["cases"] = nlohmann::ordered_json::array();
  for (const ElementwiseOptions& options : AllElementwiseCases()) {
    if (arguments.only != "all" && arguments.only != NameOf(options)) {
      continue;
    }
    report["cases"].push_back(MeasureCase(arguments, options, *device, copy));
    if (!arguments.json) {
      PrintRow(report["cases"].back());
    }
  }
  if (report["cases"].empty()) {
    throw std::invalid_argument("--case '" + arguments.only + "' is not in the list");
  }
  if (arguments.json) {
    std::printf("%s\n", report.dump().c_str());
  }
  return 0;
}

// Google Benchmark: each iteration is one round; its time is the operation's.
void RunCase(benchmark::State& state, const Arguments& arguments,
             const ElementwiseOptions& options) {
  const std::unique_ptr<Device> device = MakeCpuDevice({arguments.threads});
  CopyRate copy(*device, arguments.threads, BytesOf(arguments), arguments.clock);
  ElementwiseCase measured(*device, options, BytesOf(arguments), arguments.threads);
  measured.Run();
  copy.RunRound();
  copy.Clear();
  RunTimes times;
  for (auto _ : state) {
    copy.RunRound();
    const double time_s = TimeCase_s(arguments, measured);
    times.Add(time_s);
    state.SetIterationTime(time_s);
  }
  const CopyRate::Rate rate = copy.Best();
  const double gb_s = static_cast<double>(measured.bytes()) / 1e9 / times.median_s();
  state.counters["bytes"] = static_cast<double>(measured.bytes());
  state.counters["gb_s"] = gb_s;
  state.counters["copy_gb_s"] = rate.median_gb_s;
  state.counters["fraction"] = gb_s / rate.median_gb_s;
  state.SetLabel(rate.how);
}

void RegisterCases(const Arguments& arguments) {
  for (const ElementwiseOptions& options : AllElementwiseCases()) {
    const std::string name = NameOf(options) + "/mb:" + std::to_string(arguments.mb) +
                             "/threads:" + std::to_string(arguments.threads);
    benchmark::RegisterBenchmark(name.c_str(), RunCase, arguments, options)
        ->Unit(benchmark::kMillisecond)
        ->UseManualTime();
  }
}

int Main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);  // takes its own flags out
  Arguments arguments;
  CLI::App app("Times operations that stream memory against the machine's best plain copy.");
  app.add_option("--case", arguments.only, "all, or one of the list, for example reduce4_bf16");
  app.add_option("--mb", arguments.mb, "MiB of the smallest array: well beyond the caches")
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", arguments.threads, "threads")->check(CLI::PositiveNumber);
  app.add_option("--rounds", arguments.rounds, "rounds per case")->check(CLI::PositiveNumber);
  app.add_option("--clock", arguments.clock, "wall or cpu (processor time over threads)")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, Clock>{{"wall", Clock::kWall}, {"cpu", Clock::kCpu}}));
  app.add_flag("--json", arguments.json, "one JSON object");
  CLI11_PARSE(app, argc, argv);
  if (arguments.json || app.count("--case") > 0) {
    return RunList(arguments);
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
    std::fprintf(stderr, "bench_elementwise: %s\n", error.what());
    return 2;
  }
}
