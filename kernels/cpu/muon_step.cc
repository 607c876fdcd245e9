#include "kernels/cpu/muon_step.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cpu/batch_newton_schulz.h"
#include "kernels/cpu/execution_choices.h"
#include "kernels/cpu/muon_passes.h"
#include "kernels/cpu/panel_newton_schulz.h"
#include "kernels/cpu/workspace.h"
#include "kernels/step_factors.h"

namespace dmuon::kernels {
namespace {

constexpr int64_t kPartBytes = 64LL << 20;  // workspace of matrices that threads share
constexpr int64_t kLaneBytes = 16LL << 20;  // workspace up to which a thread takes a matrix alone

int64_t DefaultPart(int64_t bytes) { return std::max<int64_t>(kPartBytes / bytes, 1); }

}  // namespace

// A part of a batch on its way through one step; Iteration is BatchNewtonSchulz or
// PanelNewtonSchulz.
template <typename Iteration>
class MuonPart {
 public:
  using Runner = typename Iteration::Runner;

  MuonPart(Runner& runner, Workspace& workspace, const MuonOptions& options,
           const MuonFactors& factors, int64_t rows, int64_t cols)
      : runner_(runner),
        workspace_(workspace),
        options_(options.newton_schulz),
        passes_(runner.pool(), options, factors, rows, cols),
        storage_(StorageOf(options.newton_schulz)) {}

  int64_t BytesPerMatrix() const {
    return Iteration::BytesPerMatrix(options_.form, storage_, passes_.m(), passes_.n()) +
           Workspace::RoundUp(passes_.blocks() * static_cast<int64_t>(sizeof(double))) +
           Workspace::RoundUp(items());
  }

  void Run(std::span<const MuonMatrix> part, std::span<bool> finite) {
    const int64_t count = std::ssize(part);
    auto* sums = workspace_.Take<double>(count * passes_.blocks());
    auto* bad_momentum = workspace_.Take<uint8_t>(count * items());
    uint8_t* bad_norm = bad_momentum + count * passes_.blocks();
    uint8_t* bad_master = bad_norm + count * passes_.strips();
    Iteration iteration(runner_, workspace_, options_.form, storage_, passes_.m(), passes_.n(),
                        count);
    float* u = iteration.spare();
    passes_.ApplyMomentum(part, u, sums, bad_momentum);
    passes_.Normalize(u, sums, count, iteration, bad_norm);
    iteration.Run(options_);
    passes_.Update(part, iteration, bad_master);

    const auto any = [](const uint8_t* flags, int64_t size, int64_t i) {
      return std::any_of(flags + i * size, flags + (i + 1) * size,
                         [](uint8_t f) { return f != 0; });
    };
    for (int64_t i = 0; i < count; ++i) {
      finite[i] = !any(bad_momentum, passes_.blocks(), i) && !any(bad_norm, passes_.strips(), i) &&
                  !any(bad_master, passes_.strips(), i);
    }
  }

 private:
  int64_t items() const { return passes_.blocks() + 2 * passes_.strips(); }

  Runner& runner_;
  Workspace& workspace_;
  const NewtonSchulzOptions& options_;
  MuonPasses<Iteration> passes_;
  NewtonSchulzStorage storage_;
};

// Steps in one layout of the matrices.
template <typename Iteration>
class LayoutStep {
 public:
  explicit LayoutStep(ThreadPool& pool) : pool_(pool), runner_(Iteration::MakeRunner(pool)) {
    for (int i = 0; i < pool.threads(); ++i) {
      lanes_.push_back(std::make_unique<Lane>());
    }
  }

  void Run(const MuonExecution& execution, const MuonOptions& options, const MuonValues& values,
           int64_t rows, int64_t cols, std::span<const MuonMatrix> batch, std::span<bool> finite) {
    const MuonFactors factors = MuonFactorsOf(options, values, rows, cols);
    const auto step = [&](typename Iteration::Runner& runner, Workspace& workspace) {
      return MuonPart<Iteration>(runner, workspace, options, factors, rows, cols);
    };
    const int64_t bytes = step(runner_, workspace_).BytesPerMatrix();
    const int64_t count = std::ssize(batch);
    const int64_t lanes = std::ssize(lanes_);
    const int64_t in_lanes = WholeMatrices(execution, bytes, count);
    // Equal shares, so that the first step touches all memory that later ones do.
    pool_.ParallelFor(in_lanes == 0 ? 0 : lanes, [&](int64_t index, int) {
      Lane& lane = *lanes_[index];
      Iteration::UseTiles(execution, lane.runner);
      for (int64_t i = index; i < in_lanes; i += lanes) {
        lane.workspace.Reset(bytes);
        step(lane.runner, lane.workspace).Run(batch.subspan(i, 1), finite.subspan(i, 1));
      }
    });
    Iteration::UseTiles(execution, runner_);
    const int64_t part = execution.part != 0 ? execution.part : DefaultPart(bytes);
    for (int64_t begin = in_lanes; begin < count; begin += part) {
      const int64_t size = std::min(part, count - begin);
      workspace_.Reset(size * bytes);
      step(runner_, workspace_).Run(batch.subspan(begin, size), finite.subspan(begin, size));
    }
  }

 private:
  // How many matrices of the batch threads take whole.
  int64_t WholeMatrices(const MuonExecution& execution, int64_t bytes, int64_t count) const {
    const bool whole = execution.sharing == 0 ? bytes <= kLaneBytes
                                              : execution.sharing == MuonExecution::kWholeMatrices;
    return whole ? count - count % std::ssize(lanes_) : 0;
  }

  // What one thread needs to run a matrix alone.
  struct Lane {
    ThreadPool alone{1};
    typename Iteration::Runner runner = Iteration::MakeRunner(alone);
    Workspace workspace;
  };

  ThreadPool& pool_;
  typename Iteration::Runner runner_;
  Workspace workspace_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // one per thread of the pool
};

struct CpuMuonStep::Layouts {
  explicit Layouts(ThreadPool& given) : pool(given), panels(given) {}

  // Whether matrices stay in the storage type, in rows.
  bool InRows(const NewtonSchulzOptions& options) const {
    return rows.has_value() && options.precision == ElementType::kBFloat16;
  }

  ThreadPool& pool;
  LayoutStep<PanelNewtonSchulz> panels;
  std::optional<LayoutStep<BatchNewtonSchulz>> rows;  // with bf16 in hardware
};

CpuMuonStep::CpuMuonStep(ThreadPool& pool, bool native_bf16)
    : layouts_(std::make_unique<Layouts>(pool)) {
  if (native_bf16) {
    layouts_->rows.emplace(pool);
  }
}

CpuMuonStep::~CpuMuonStep() = default;

void CpuMuonStep::Run(const MuonOptions& options, const MuonValues& values, int64_t rows,
                      int64_t cols, std::span<const MuonMatrix> batch, std::span<bool> finite) {
  const MuonExecution execution =
      tuning_.Find(rows, cols, std::ssize(batch), options.newton_schulz);
  if (layouts_->InRows(options.newton_schulz)) {
    layouts_->rows->Run(execution, options, values, rows, cols, batch, finite);
  } else {
    layouts_->panels.Run(execution, options, values, rows, cols, batch, finite);
  }
}

std::vector<MuonExecution> CpuMuonStep::Candidates(int64_t rows, int64_t cols, int64_t batch,
                                                   const NewtonSchulzOptions& options) const {
  const bool in_rows = layouts_->InRows(options);
  CpuExecutionCase given;
  given.batch = batch;
  given.m = std::min(rows, cols);
  given.n = std::max(rows, cols);
  const auto bytes_per_matrix =
      in_rows ? BatchNewtonSchulz::BytesPerMatrix : PanelNewtonSchulz::BytesPerMatrix;
  given.bytes = bytes_per_matrix(options.form, StorageOf(options), given.m, given.n);
  given.threads = layouts_->pool.threads();
  given.whole_by_default = given.bytes <= kLaneBytes;
  given.part_by_default = DefaultPart(given.bytes);
  given.tiles = !in_rows;
  return CpuCandidates(given);
}

void CpuMuonStep::UseTuning(const ExecutionTable& table) {
  for (const auto& [key, choice] : table.entries()) {
    ValidateCpuExecution(choice);
  }
  tuning_ = table;
}

}  // namespace dmuon::kernels
