#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cpu/block_kernel.h"
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

// fp32 products that run straight on blocks, as the kernels' own do: so many at a time.
constexpr std::array<int64_t, 4> kBlockDepths = {2, 4, 6, 8};

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

// The best of some runs of products(count) on each of the pool's threads, in GFLOP/s; `flops` of
// one.
template <typename Products>
double BestRate(ThreadPool& pool, double flops, Products products) {
  const auto run = [&](int64_t count) {
    const auto begin = Clock::now();
    pool.ParallelFor(pool.threads(), [&](int64_t index, int) { products(index, count); });
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  run(1);
  const auto count = std::max<int64_t>(1, static_cast<int64_t>(kRun_s / run(1)));
  double best_s = run(count);
  for (int i = 1; i < kRuns; ++i) {
    best_s = std::min(best_s, run(count));
  }
  return flops * static_cast<double>(count * pool.threads()) / best_s / 1e9;
}

double MeasureBlocks(int64_t depth, ThreadPool& pool) {
  const int64_t bytes = (2 * depth + 1) * kBlockElements * static_cast<int64_t>(sizeof(float));
  std::vector<AlignedBytes> operands;
  for (int i = 0; i < pool.threads(); ++i) {
    operands.push_back(AllocateAligned(bytes));
    std::memset(operands.back().get(), kFill, bytes);
  }
  const BlockKernel kernel(kBlockElements);
  const double flops = 2.0 * static_cast<double>(depth * kBlockElements * kBlockSide);
  return BestRate(pool, flops, [&](int64_t thread, int64_t count) {
    auto* c = reinterpret_cast<float*>(operands[thread].get());
    const float* left = c + kBlockElements;
    for (int64_t i = 0; i < count; ++i) {
      kernel.Run(left, left + depth * kBlockElements, depth, false, c);
    }
  });
}

double MeasureCandidate(const Candidate& c, ElementType type, bool onednn, ThreadPool& pool) {
  const bool native = NativeBFloat16Works();
  std::vector<std::unique_ptr<Operands>> operands;
  for (int i = 0; i < pool.threads(); ++i) {
    operands.push_back(std::make_unique<Operands>(c, type, native));
  }
  const double flops = 2.0 * static_cast<double>(c.rows * c.cols * c.depth);
  return BestRate(pool, flops, [&](int64_t thread, int64_t count) {
    Operands& own = *operands[thread];
    const GemmOperand left = {own.left.get(), type, c.depth, false};
    const GemmOperand right = {own.right.get(), type, c.cols, false};
    auto* result = reinterpret_cast<float*>(own.result.get());
    for (int64_t i = 0; i < count; ++i) {
      if (onednn) {
        own.onednn.Run(c.rows, c.cols, c.depth, left, right, result, c.cols);
      } else {
        own.gemm.Run(c.rows, c.cols, c.depth, left, right, result, c.cols);
      }
    }
  });
}

}  // namespace

GemmRate MeasureCpuGemmRate(ElementType type, int threads) {
  ThreadPool pool(threads);
  GemmRate best;
  const auto consider = [&best](double gflops, const std::string& how) {
    if (gflops > best.gflops) {
      best = {gflops, how};
    }
  };
  for (const Candidate& candidate : kCandidates) {
    for (const bool onednn : {false, true}) {
      if (onednn && type != ElementType::kFloat32) {
        continue;  // Gemm runs it, or emulates it
      }
      consider(MeasureCandidate(candidate, type, onednn, pool),
               std::to_string(candidate.rows) + "x" + std::to_string(candidate.cols) + "x" +
                   std::to_string(candidate.depth) + " tiles, " + std::string(NameOf(type)) +
                   (onednn ? ", oneDNN" : ""));
    }
  }
  for (const int64_t depth : kBlockDepths) {
    if (type == ElementType::kFloat32) {
      consider(MeasureBlocks(depth, pool), "blocks of " + std::to_string(kBlockSide) + ", " +
                                               std::to_string(depth) + " deep, fp32");
    }
  }
  return best;
}

}  // namespace dmuon::kernels::testing
