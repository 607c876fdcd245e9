#include "tests/bench/shipped_list.h"

#include <benchmark/benchmark.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/bench/measure.h"
#include "tests/bench/newton_schulz_case.h"

namespace dmuon::kernels::testing {
namespace {

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
    CaseRequest request = arguments.request;
    request.rows = s.rows;
    request.cols = s.cols;
    request.batch = s.batch;
    const std::string name =
        std::to_string(s.rows) + "x" + std::to_string(s.cols) +
        "/batch:" + std::to_string(s.batch) +
        (request.device == "cpu" ? "/threads:" + std::to_string(request.threads)
                                 : "/" + request.device);
    benchmark::RegisterBenchmark(name.c_str(), RunCase, MakeCase(request))
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
}

}  // namespace

void TakeBenchmarkOptions(int* argc, char** argv) { benchmark::Initialize(argc, argv); }

void RunShippedList(const Arguments& arguments) {
  RegisterCases(arguments);
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace dmuon::kernels::testing
