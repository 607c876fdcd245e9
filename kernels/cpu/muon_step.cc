#include "kernels/cpu/muon_step.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cpu/batch_newton_schulz.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/panel_newton_schulz.h"
#include "kernels/cpu/transpose.h"
#include "kernels/cpu/workspace.h"
#include "kernels/half_types.h"
#include "kernels/step_factors.h"

namespace dmuon::kernels {
namespace {

constexpr int64_t kPartBytes = 64LL << 20;  // workspace of matrices that threads share
constexpr int64_t kLaneBytes = 16LL << 20;  // workspace up to which a thread takes a matrix alone
constexpr int64_t kTile = 64;               // X is written in tiles of this side
constexpr int64_t kStrip = 32;              // p' is written in strips of so many rows ...
constexpr int64_t kStripCols = 128;         // ... and columns at a time

float LoadMomentum(const float* momentum, int64_t i) { return momentum[i]; }
float LoadMomentum(const uint16_t* momentum, int64_t i) { return FloatFromBFloat16(momentum[i]); }

// Stores and returns the value as stored: what the next step will read.
float StoreMomentum(float* momentum, int64_t i, float value) { return momentum[i] = value; }
float StoreMomentum(uint16_t* momentum, int64_t i, float value) {
  momentum[i] = BFloat16FromFloat(value);
  return FloatFromBFloat16(momentum[i]);
}

// A part of a batch on its way through one step; Iteration is BatchNewtonSchulz or
// PanelNewtonSchulz.
template <typename Iteration>
class MuonPart {
 public:
  using Runner = typename Iteration::Runner;

  MuonPart(Runner& runner, Workspace& workspace, const MuonOptions& options,
           const MuonFactors& factors, int64_t rows, int64_t cols)
      : runner_(runner),
        pool_(runner.pool()),
        workspace_(workspace),
        options_(options),
        factors_(factors),
        storage_(StorageOf(options.newton_schulz)),
        rows_(rows),
        cols_(cols),
        m_(std::min(rows, cols)),
        n_(std::max(rows, cols)) {}

  int64_t BytesPerMatrix() const;
  void Run(std::span<const MuonMatrix> part, std::span<bool> finite);

 private:
  bool transposed() const { return rows_ > cols_; }
  int64_t blocks() const { return NormBlocks(rows_ * cols_); }
  // Tiles of X.
  int64_t tiles() const { return TilesAlong(m_, kTile) * TilesAlong(n_, kTile); }
  int64_t strips() const { return TilesAlong(rows_, kStrip); }

  // u and momentum' of all matrices, and the squared sums of u's blocks.
  void ApplyMomentum(std::span<const MuonMatrix> part, float* u, double* sums, uint8_t* bad);
  // X of all matrices: u over its norm, transposed if it is higher than wide, rounded.
  void NormalizeAll(const float* u, const double* sums, int64_t count, const Iteration& iteration,
                    uint8_t* bad);
  void NormalizeTile(const NormalizeFactors& factors, const float* u, int64_t row, int64_t col,
                     const Iteration& iteration, int64_t matrix) const;
  void UpdateAll(std::span<const MuonMatrix> part, const Iteration& iteration, uint8_t* bad);
  // p' of kStrip rows from `row` on. Returns whether it is finite.
  bool UpdateStrip(const MuonMatrix& matrix, const Iteration& iteration, int64_t index,
                   int64_t row) const;

  Runner& runner_;
  ThreadPool& pool_;
  Workspace& workspace_;
  const MuonOptions& options_;
  const MuonFactors& factors_;
  NewtonSchulzStorage storage_;
  int64_t rows_;
  int64_t cols_;
  int64_t m_;
  int64_t n_;
};

// u = gradient * g' + momentum * m' (nesterov) or m', from m' as it is stored. Returns whether m'
// is finite.
template <typename Momentum>
bool MomentumBlock(const MuonFactors& f, bool nesterov, const MuonMatrix& matrix, int64_t begin,
                   int64_t end, float* u) {
  const auto* momentum = static_cast<const Momentum*>(matrix.momentum);
  auto* new_momentum = static_cast<Momentum*>(matrix.new_momentum);
  uint32_t not_finite = 0;
  for (int64_t i = begin; i < end; ++i) {
    const float g = f.gradient * (f.gradient_factor * matrix.gradient[i]);
    const float sum = f.momentum * LoadMomentum(momentum, i) + g;
    const float m = StoreMomentum(new_momentum, i, sum);
    u[i] = nesterov ? g + f.momentum * m : m;
    not_finite |= NotFinite(m);
  }
  return not_finite == 0;
}

template <typename Iteration>
void MuonPart<Iteration>::ApplyMomentum(std::span<const MuonMatrix> part, float* u, double* sums,
                                        uint8_t* bad) {
  const int64_t elements = rows_ * cols_;
  pool_.ParallelFor(std::ssize(part) * blocks(), [&](int64_t index, int) {
    const int64_t matrix = index / blocks();
    const int64_t begin = index % blocks() * kNormBlock;
    const int64_t end = std::min(begin + kNormBlock, elements);
    float* matrix_u = u + matrix * elements;
    const auto run = options_.momentum_type == ElementType::kBFloat16 ? MomentumBlock<uint16_t>
                                                                      : MomentumBlock<float>;
    bad[index] = !run(factors_, options_.nesterov, part[matrix], begin, end, matrix_u);
    sums[index] = SquaredSum(matrix_u + begin, end - begin);
  });
}

// The tile of X at (row, col), and of its transpose where that is wanted.
template <typename Iteration>
void MuonPart<Iteration>::NormalizeTile(const NormalizeFactors& factors, const float* u,
                                        int64_t row, int64_t col, const Iteration& iteration,
                                        int64_t matrix) const {
  const int64_t height = std::min(kTile, m_ - row);
  const int64_t width = std::min(kTile, n_ - col);
  float as_stored[kTile * kTile];  // as in u
  float turned[kTile * kTile];
  const float* from = transposed() ? u + col * m_ + row : u + row * n_ + col;
  const int64_t rows = transposed() ? width : height;
  const int64_t cols = transposed() ? height : width;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      as_stored[i * kTile + j] = from[i * cols_ + j] * factors.prescale / factors.divisor;
    }
  }
  if (transposed() || iteration.wants_transpose()) {
    Transpose(as_stored, kTile, rows, cols, turned, kTile);
  }
  iteration.StoreX(matrix, row, col, height, width, transposed() ? turned : as_stored,
                   transposed() ? as_stored : turned, kTile);
}

template <typename Iteration>
void MuonPart<Iteration>::NormalizeAll(const float* u, const double* sums, int64_t count,
                                       const Iteration& iteration, uint8_t* bad) {
  const int64_t across = TilesAlong(n_, kTile);
  pool_.ParallelFor(count * tiles(), [&](int64_t index, int) {
    const int64_t matrix = index / tiles();
    const int64_t tile = index % tiles();
    double squared_sum = 0.0;
    for (int64_t block = 0; block < blocks(); ++block) {
      squared_sum += sums[matrix * blocks() + block];
    }
    bad[index] = !std::isfinite(squared_sum);
    const NormalizeFactors factors = NormalizeFactorsOf(
        options_.newton_schulz.normalize, options_.newton_schulz.eps, std::sqrt(squared_sum));
    NormalizeTile(factors, u + matrix * m_ * n_, tile / across * kTile, tile % across * kTile,
                  iteration, matrix);
  });
}

// p' of a run of elements. Returns whether all of it is finite.
bool UpdateRun(const MuonFactors& f, const float* from, const float* direction, int64_t count,
               float* to) {
  uint32_t not_finite = 0;
  for (int64_t j = 0; j < count; ++j) {
    to[j] = f.decay * from[j] - f.step * direction[j];
    not_finite |= NotFinite(to[j]);
  }
  return not_finite == 0;
}

template <typename Iteration>
bool MuonPart<Iteration>::UpdateStrip(const MuonMatrix& matrix, const Iteration& iteration,
                                      int64_t index, int64_t row) const {
  const int64_t height = std::min(kStrip, rows_ - row);
  const int64_t ld = iteration.result_ld();
  float direction[kStrip * kStripCols];
  bool finite = true;
  for (int64_t begin = 0; begin < cols_; begin += kStripCols) {
    const int64_t end = std::min(begin + kStripCols, cols_);
    for (int64_t col = begin; col < end; col += kStrip) {
      const int64_t width = std::min(kStrip, end - col);
      float* to = direction + (col - begin);
      if (transposed()) {
        Transpose(iteration.Result(index, col, row), ld, width, height, to, kStripCols);
        continue;
      }
      const float* from = iteration.Result(index, row, col);
      for (int64_t i = 0; i < height; ++i) {
        std::copy_n(from + i * ld, width, to + i * kStripCols);
      }
    }
    for (int64_t i = 0; i < height; ++i) {
      const int64_t first = (row + i) * cols_ + begin;
      finite &= UpdateRun(factors_, matrix.master + first, direction + i * kStripCols, end - begin,
                          matrix.new_master + first);
    }
  }
  return finite;
}

template <typename Iteration>
void MuonPart<Iteration>::UpdateAll(std::span<const MuonMatrix> part, const Iteration& iteration,
                                    uint8_t* bad) {
  pool_.ParallelFor(std::ssize(part) * strips(), [&](int64_t index, int) {
    const int64_t matrix = index / strips();
    bad[index] = !UpdateStrip(part[matrix], iteration, matrix, index % strips() * kStrip);
  });
}

template <typename Iteration>
int64_t MuonPart<Iteration>::BytesPerMatrix() const {
  return Iteration::BytesPerMatrix(options_.newton_schulz.form, storage_, m_, n_) +
         Workspace::RoundUp(blocks() * static_cast<int64_t>(sizeof(double))) +
         Workspace::RoundUp(blocks() + tiles() + strips());
}

template <typename Iteration>
void MuonPart<Iteration>::Run(std::span<const MuonMatrix> part, std::span<bool> finite) {
  const int64_t count = std::ssize(part);
  auto* sums = workspace_.Take<double>(count * blocks());
  auto* bad = workspace_.Take<uint8_t>(count * (blocks() + tiles() + strips()));
  Iteration iteration(runner_, workspace_, options_.newton_schulz.form, storage_, m_, n_, count);

  uint8_t* bad_momentum = bad;
  uint8_t* bad_norm = bad_momentum + count * blocks();
  uint8_t* bad_master = bad_norm + count * tiles();
  float* u = iteration.spare();
  ApplyMomentum(part, u, sums, bad_momentum);
  NormalizeAll(u, sums, count, iteration, bad_norm);
  iteration.Run(options_.newton_schulz);
  UpdateAll(part, iteration, bad_master);

  const auto any_bad = [](const uint8_t* flags, int64_t size, int64_t i) {
    return std::any_of(flags + i * size, flags + (i + 1) * size, [](uint8_t f) { return f != 0; });
  };
  for (int64_t i = 0; i < count; ++i) {
    finite[i] = !any_bad(bad_momentum, blocks(), i) && !any_bad(bad_norm, tiles(), i) &&
                !any_bad(bad_master, strips(), i);
  }
}

// Steps in one layout of the matrices.
template <typename Iteration>
class LayoutStep {
 public:
  explicit LayoutStep(ThreadPool& pool) : pool_(pool), runner_(Iteration::MakeRunner(pool)) {
    for (int i = 0; i < pool.threads(); ++i) {
      lanes_.push_back(std::make_unique<Lane>());
    }
  }

  void Run(const MuonOptions& options, const MuonValues& values, int64_t rows, int64_t cols,
           std::span<const MuonMatrix> batch, std::span<bool> finite) {
    const MuonFactors factors = MuonFactorsOf(options, values, rows, cols);
    const auto step = [&](typename Iteration::Runner& runner, Workspace& workspace) {
      return MuonPart<Iteration>(runner, workspace, options, factors, rows, cols);
    };
    const int64_t bytes = step(runner_, workspace_).BytesPerMatrix();
    const int64_t count = std::ssize(batch);
    const int64_t lanes = std::ssize(lanes_);
    const int64_t in_lanes = bytes > kLaneBytes ? 0 : count - count % lanes;
    // Equal shares, so that the first step touches all memory that later ones do.
    pool_.ParallelFor(in_lanes == 0 ? 0 : lanes, [&](int64_t index, int) {
      Lane& lane = *lanes_[index];
      for (int64_t i = index; i < in_lanes; i += lanes) {
        lane.workspace.Reset(bytes);
        step(lane.runner, lane.workspace).Run(batch.subspan(i, 1), finite.subspan(i, 1));
      }
    });
    const int64_t part = std::max<int64_t>(kPartBytes / bytes, 1);
    for (int64_t begin = in_lanes; begin < count; begin += part) {
      const int64_t size = std::min(part, count - begin);
      workspace_.Reset(size * bytes);
      step(runner_, workspace_).Run(batch.subspan(begin, size), finite.subspan(begin, size));
    }
  }

 private:
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

}  // namespace

struct CpuMuonStep::Layouts {
  explicit Layouts(ThreadPool& pool) : panels(pool) {}

  LayoutStep<PanelNewtonSchulz> panels;
  std::optional<LayoutStep<BatchNewtonSchulz>> rows;
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
  if (layouts_->rows && options.newton_schulz.precision == ElementType::kBFloat16) {
    layouts_->rows->Run(options, values, rows, cols, batch, finite);
  } else {
    layouts_->panels.Run(options, values, rows, cols, batch, finite);
  }
}

}  // namespace dmuon::kernels
