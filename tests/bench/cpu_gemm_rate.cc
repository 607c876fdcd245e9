#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/thread_pool.h"
#include "tests/bench/gemm_rate.h"

namespace dmuon::kernels::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kRun_s = 0.03;  // one timing, about
constexpr int kRuns = 5;         // the best one counts: a slow denominator would flatter us

struct Candidate {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t depth = 0;
};

constexpr std::array<Candidate, 7> kCandidates = {{{32, 32, 256},
                                                   {64, 64, 256},
                                                   {128, 128, 512},
                                                   {256, 256, 256},
                                                   {256, 256, 1024},
                                                   {256, 256, 4096},
                                                   {192, 240, 384}}};

constexpr int kFill = 0x3f;  // every byte: 0.747 in fp32 and bf16

// One thread's operands.
struct Operands {
  AlignedBytes left;
  AlignedBytes right;
  AlignedBytes result;
  Gemm gemm;                // libxsmm for fp32, where it is
  MatmulPrimitives onednn;  // oneDNN always

  Operands(const Candidate& c, ElementType type, bool native)
      : left(AllocateAligned(c.rows * c.depth * SizeOf(type))),
        right(AllocateAligned(c.depth * c.cols * SizeOf(type))),
        result(AllocateAligned(c.rows * c.cols * static_cast<int64_t>(sizeof(float)))),
        gemm(native) {
    std::memset(left.get(), kFill, c.rows * c.depth * SizeOf(type));
    std::memset(right.get(), kFill, c.depth * c.cols * SizeOf(type));
  }
};

double MeasureCandidate(const Candidate& c, ElementType type, bool onednn, ThreadPool& pool) {
  const bool native = NativeBFloat16Works();
  std::vector<std::unique_ptr<Operands>> operands;
  for (int i = 0; i < pool.threads(); ++i) {
    operands.push_back(std::make_unique<Operands>(c, type, native));
  }
  const auto run = [&](int64_t products) {
    const auto begin = Clock::now();
    pool.ParallelFor(pool.threads(), [&](int64_t index, int) {
      Operands& own = *operands[index];
      for (int64_t i = 0; i < products; ++i) {
        const GemmOperand left = {own.left.get(), type, c.depth, false};
        const GemmOperand right = {own.right.get(), type, c.cols, false};
        auto* result = reinterpret_cast<float*>(own.result.get());
        if (onednn) {
          own.onednn.Run(c.rows, c.cols, c.depth, left, right, result, c.cols);
        } else {
          own.gemm.Run(c.rows, c.cols, c.depth, left, right, result, c.cols);
        }
      }
    });
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  run(1);
  const auto products = std::max<int64_t>(1, static_cast<int64_t>(kRun_s / run(1)));
  double best_s = run(products);
  for (int i = 1; i < kRuns; ++i) {
    best_s = std::min(best_s, run(products));
  }
  const double flops = 2.0 * static_cast<double>(c.rows * c.cols * c.depth);
  return flops * static_cast<double>(products * pool.threads()) / best_s / 1e9;
}

}  // namespace

GemmRate MeasureCpuGemmRate(ElementType type, int threads) {
  ThreadPool pool(threads);
  GemmRate best;
  for (const Candidate& candidate : kCandidates) {
    for (const bool onednn : {false, true}) {
      if (onednn && type != ElementType::kFloat32) {
        continue;  // Gemm runs it, or emulates it
      }
      const double gflops = MeasureCandidate(candidate, type, onednn, pool);
      if (gflops > best.gflops) {
        best.gflops = gflops;
        best.how = std::to_string(candidate.rows) + "x" + std::to_string(candidate.cols) + "x" +
                   std::to_string(candidate.depth) + " tiles, " + std::string(NameOf(type)) +
                   (onednn ? ", oneDNN" : "");
      }
    }
  }
  return best;
}

}  // namespace dmuon::kernels::testing
