// Times the Muon step of a batch of equal matrices against the machine's best GEMM rate.
//
//   bench_newton_schulz --shape 1024x4096 --batch 1 --precision auto --form auto --threads 2 --json
//   bench_newton_schulz --shape 2048x5464 --batch 16 --device cuda --precision fp16 --json
//   bench_newton_schulz --benchmark_format=json [--benchmark_filter=...]
//
// With --shape: one case, one JSON object. Without: the shipped list through Google Benchmark.
#include <cstdio>
#include <exception>
#include <string>

#include "tests/bench/arguments.h"
#include "tests/bench/json_record.h"
#include "tests/bench/measure.h"
#include "tests/bench/newton_schulz_case.h"
#include "tests/bench/plain_newton_schulz.h"
#include "tests/bench/shipped_list.h"

namespace dmuon::kernels::testing {
namespace {

void AddAccuracy(const CaseOptions& options, JsonRecord& report) {
  const Accuracy accuracy = MeasureAccuracy(options);
  report.Add("error_vs_plain", accuracy.error_vs_plain);
  report.Add("error_worst_class", accuracy.worst);
  report.Add("error_shape", std::to_string(accuracy.rows) + "x" + std::to_string(accuracy.cols));
}

// The comparison that people ask for, in the same process and on the same device.
void AddPlain(const CaseOptions& options, double step_s, JsonRecord& report) {
  PlainNewtonSchulz plain(options.rows, options.cols, options.batch);
  plain.Run();  // the library loads its kernels
  plain.Run();
  const double plain_s = Median_s([&] { plain.Run(); });
  report.Add("plain_bf16_ms", plain_s * 1e3);
  report.Add("ratio_plain_bf16", plain_s / step_s);
}

void RunOne(const Arguments& arguments) {
  const CaseOptions options = MakeCase(arguments.request);
  NewtonSchulzCase measured(options);
  const auto [step_s, rates, roofline] = MeasureRounds(options, measured);
  JsonRecord report;
  report.Add("shape", arguments.shape);
  report.Add("batch", options.batch);
  if (options.device == DeviceKind::kCpu) {
    report.Add("threads", int64_t{options.threads});
  }
  report.Add("device", measured.device().Describe());
  report.Add("precision", NameOf(options.newton_schulz.precision));
  report.Add("form", NameOf(options.newton_schulz.form));
  report.Add("restart", options.newton_schulz.restart);
  report.Add("median_ms", step_s * 1e3);
  report.Add("useful_gflop", measured.useful_gflop());
  report.Add("gemm_gflops", rates.x.gflops);
  report.Add("gemm_how", rates.x.how);
  report.Add("gemm_gflops_squares", rates.square.gflops);
  report.Add("roofline", roofline);
  if (options.device == DeviceKind::kCuda) {
    AddPlain(options, step_s, report);
  }
  if (arguments.accuracy) {
    AddAccuracy(options, report);
  }
  std::fputs((arguments.json ? report.OneLine() + "\n" : report.Lines()).c_str(), stdout);
}

void Main(int argc, char** argv) {
  TakeBenchmarkOptions(&argc, argv);
  const Arguments arguments = ParseArguments(argc, argv);
  if (arguments.help) {
    std::fputs(Usage().c_str(), stdout);
  } else if (!arguments.shape.empty()) {
    RunOne(arguments);
  } else {
    RunShippedList(arguments);
  }
}

}  // namespace
}  // namespace dmuon::kernels::testing

int main(int argc, char** argv) {
  try {
    dmuon::kernels::testing::Main(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_newton_schulz: %s\n", error.what());
    return 2;
  }
}
