#include "kernels/cpu/muon_step.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/batch_newton_schulz.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/execution_choices.h"
#include "kernels/cpu/micro_kernel.h"
#include "kernels/cpu/transpose.h"
#include "kernels/cpu/typed_rows.h"
#include "kernels/half_types.h"
#include "kernels/step_factors.h"

namespace dmuon::kernels {
namespace {

constexpr int64_t kPartBytes = 64LL << 20;  // workspace of matrices that threads share
constexpr int64_t kLaneBytes = 16LL << 20;  // workspace up to which a thread takes a matrix alone
constexpr int64_t kTransposeTile = 32;

int64_t DefaultPart(int64_t bytes) { return std::max<int64_t>(kPartBytes / bytes, 1); }

constexpr int64_t kXTile = 64;  // X is written in tiles of this side

float LoadMomentum(const float* momentum, int64_t i) { return momentum[i]; }
float LoadMomentum(const uint16_t* momentum, int64_t i) { return FloatFromBFloat16(momentum[i]); }

// Stores and returns the value as stored: what the next step will read.
float StoreMomentum(float* momentum, int64_t i, float value) { return momentum[i] = value; }
float StoreMomentum(uint16_t* momentum, int64_t i, float value) {
  momentum[i] = BFloat16FromFloat(value);
  return FloatFromBFloat16(momentum[i]);
}

// Elements per item of the row-wise passes, about.
constexpr int64_t kItemElements = 16384;

int64_t RowsPerItem(int64_t cols) {
  return std::max<int64_t>(1, kItemElements / cols / kTransposeTile) * kTransposeTile;
}

int64_t ItemsOf(int64_t rows, int64_t cols) {
  const int64_t per_item = RowsPerItem(cols);
  return (rows + per_item - 1) / per_item;
}

// Calls body(row, first_col, values, count) over rows [begin, end) of the matrix of `cols` columns
// whose transpose is `data`, in rows of `ld` elements: in square tiles, so that both sides are read
// along their rows.
template <typename Body>
void ForTransposedTiles(const float* data, int64_t ld, int64_t cols, int64_t begin, int64_t end,
                        Body body) {
  float tile[kTransposeTile][kTransposeTile];
  for (int64_t row = begin; row < end; row += kTransposeTile) {
    const int64_t height = std::min(kTransposeTile, end - row);
    for (int64_t col = 0; col < cols; col += kTransposeTile) {
      const int64_t width = std::min(kTransposeTile, cols - col);
      Transpose(data + col * ld + row, ld, width, height, tile[0], kTransposeTile);
      for (int64_t i = 0; i < height; ++i) {
        body(row + i, col, tile[i], width);
      }
    }
  }
}

// `values` has rows of kXTile elements.
void StoreTile(const BatchedMatrix& to, int64_t matrix, int64_t row, int64_t col, int64_t rows,
               int64_t cols, const float* values) {
  for (int64_t i = 0; i < rows; ++i) {
    StoreRow(to.type, values + i * kXTile, cols, to.data,
             matrix * to.stride + (row + i) * to.ld + col);
  }
}

// A part of a batch on its way through one step.
class MuonPart {
 public:
  MuonPart(TileRunner& runner, Workspace& workspace, const MuonOptions& options,
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
  int64_t tiles() const { return TilesAlong(m_, kXTile) * TilesAlong(n_, kXTile); }
  int64_t items() const { return tiles() + ItemsOf(rows_, cols_); }

  // u and momentum' of all matrices, and the squared sums of u's blocks.
  void ApplyMomentum(std::span<const MuonMatrix> part, float* u, double* sums, uint8_t* bad);
  // X of all matrices: u over its norm, transposed if it is higher than wide, rounded.
  void NormalizeAll(const float* u, const double* sums, int64_t count,
                    const BatchNewtonSchulz& iteration, uint8_t* bad);
  void NormalizeTile(const NormalizeFactors& factors, const float* u, int64_t row, int64_t col,
                     const BatchNewtonSchulz& iteration, int64_t matrix) const;
  void UpdateAll(std::span<const MuonMatrix> part, const float* o,
                 const BatchNewtonSchulz& iteration, uint8_t* bad);
  // p' of rows [begin, end), from o in rows of `ld` elements. Returns whether it is finite.
  bool UpdateRows(const MuonMatrix& matrix, const float* o, int64_t ld, int64_t begin,
                  int64_t end) const;

  TileRunner& runner_;
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

void MuonPart::ApplyMomentum(std::span<const MuonMatrix> part, float* u, double* sums,
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
void MuonPart::NormalizeTile(const NormalizeFactors& factors, const float* u, int64_t row,
                             int64_t col, const BatchNewtonSchulz& iteration,
                             int64_t matrix) const {
  const int64_t height = std::min(kXTile, m_ - row);
  const int64_t width = std::min(kXTile, n_ - col);
  float as_stored[kXTile * kXTile];  // as in u
  float turned[kXTile * kXTile];
  const float* from = transposed() ? u + col * m_ + row : u + row * n_ + col;
  const int64_t rows = transposed() ? width : height;
  const int64_t cols = transposed() ? height : width;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      as_stored[i * kXTile + j] = from[i * cols_ + j] * factors.prescale / factors.divisor;
    }
  }
  const BatchedMatrix& transposed_x = iteration.transposed_x();
  if (transposed() || transposed_x.data != nullptr) {
    Transpose(as_stored, kXTile, rows, cols, turned, kXTile);
  }
  const float* tile = transposed() ? turned : as_stored;
  const float* transposed_tile = transposed() ? as_stored : turned;
  StoreTile(iteration.x(), matrix, row, col, height, width, tile);
  if (transposed_x.data != nullptr) {
    StoreTile(transposed_x, matrix, col, row, width, height, transposed_tile);
  }
}

void MuonPart::NormalizeAll(const float* u, const double* sums, int64_t count,
                            const BatchNewtonSchulz& iteration, uint8_t* bad) {
  const int64_t across = TilesAlong(n_, kXTile);
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
    NormalizeTile(factors, u + matrix * m_ * n_, tile / across * kXTile, tile % across * kXTile,
                  iteration, matrix);
  });
}

bool MuonPart::UpdateRows(const MuonMatrix& matrix, const float* o, int64_t ld, int64_t begin,
                          int64_t end) const {
  uint32_t not_finite = 0;
  const auto update = [&](int64_t row, int64_t col, const float* direction, int64_t count) {
    const float* from = matrix.master + row * cols_ + col;
    float* to = matrix.new_master + row * cols_ + col;
    for (int64_t j = 0; j < count; ++j) {
      to[j] = factors_.decay * from[j] - factors_.step * direction[j];
      not_finite |= NotFinite(to[j]);
    }
  };
  if (transposed()) {
    ForTransposedTiles(o, ld, cols_, begin, end, update);
  } else {
    for (int64_t row = begin; row < end; ++row) {
      update(row, 0, o + row * ld, cols_);
    }
  }
  return not_finite == 0;
}

void MuonPart::UpdateAll(std::span<const MuonMatrix> part, const float* o,
                         const BatchNewtonSchulz& iteration, uint8_t* bad) {
  const int64_t items = ItemsOf(rows_, cols_);
  const int64_t per_item = RowsPerItem(cols_);
  pool_.ParallelFor(std::ssize(part) * items, [&](int64_t index, int) {
    const int64_t matrix = index / items;
    const int64_t begin = index % items * per_item;
    bad[index] = !UpdateRows(part[matrix], o + matrix * iteration.x().stride, iteration.x().ld,
                             begin, std::min(begin + per_item, rows_));
  });
}

int64_t MuonPart::BytesPerMatrix() const {
  return BatchNewtonSchulz::BytesPerMatrix(options_.newton_schulz.form, storage_, m_, n_) +
         Workspace::RoundUp(blocks() * static_cast<int64_t>(sizeof(double))) +
         Workspace::RoundUp(blocks() + items());
}

void MuonPart::Run(std::span<const MuonMatrix> part, std::span<bool> finite) {
  const int64_t count = std::ssize(part);
  auto* sums = workspace_.Take<double>(count * blocks());
  auto* bad = workspace_.Take<uint8_t>(count * (blocks() + items()));
  BatchNewtonSchulz iteration(runner_, workspace_, options_.newton_schulz.form, storage_, m_, n_,
                              count);

  uint8_t* bad_momentum = bad;
  uint8_t* bad_norm = bad_momentum + count * blocks();
  uint8_t* bad_master = bad_norm + count * tiles();
  float* u = iteration.spare();
  ApplyMomentum(part, u, sums, bad_momentum);
  NormalizeAll(u, sums, count, iteration, bad_norm);
  const float* o = iteration.Run(options_.newton_schulz);
  UpdateAll(part, o, iteration, bad_master);

  const auto any_bad = [](const uint8_t* flags, int64_t size, int64_t i) {
    return std::any_of(flags + i * size, flags + (i + 1) * size, [](uint8_t f) { return f != 0; });
  };
  for (int64_t i = 0; i < count; ++i) {
    finite[i] = !any_bad(bad_momentum, blocks(), i) && !any_bad(bad_norm, tiles(), i) &&
                !any_bad(bad_master, ItemsOf(rows_, cols_), i);
  }
}

}  // namespace

CpuMuonStep::CpuMuonStep(ThreadPool& pool, bool native_bf16)
    : pool_(pool), micro_kernels_(HasMicroKernels()), runner_(pool, native_bf16) {
  for (int i = 0; i < pool.threads(); ++i) {
    lanes_.push_back(std::make_unique<Lane>(native_bf16));
  }
}

int64_t CpuMuonStep::WholeMatrices(const MuonExecution& execution, int64_t bytes,
                                   int64_t count) const {
  const bool whole = execution.sharing == 0 ? bytes <= kLaneBytes
                                            : execution.sharing == MuonExecution::kWholeMatrices;
  return whole ? count - count % std::ssize(lanes_) : 0;
}

void CpuMuonStep::Run(const MuonOptions& options, const MuonValues& values, int64_t rows,
                      int64_t cols, std::span<const MuonMatrix> batch, std::span<bool> finite) {
  const MuonFactors factors = MuonFactorsOf(options, values, rows, cols);
  const auto step = [&](TileRunner& runner, Workspace& workspace) {
    return MuonPart(runner, workspace, options, factors, rows, cols);
  };
  const int64_t bytes = step(runner_, workspace_).BytesPerMatrix();
  const int64_t count = std::ssize(batch);
  const int64_t lanes = std::ssize(lanes_);
  const MuonExecution execution = tuning_.Find(rows, cols, count, options.newton_schulz);
  const TileSides sides{execution.symmetric_tile, execution.product_tile};
  const int64_t in_lanes = WholeMatrices(execution, bytes, count);
  // Equal shares, so that the first step touches all memory that later ones do.
  pool_.ParallelFor(in_lanes == 0 ? 0 : lanes, [&](int64_t index, int) {
    Lane& lane = *lanes_[index];
    lane.runner.UseTiles(sides);
    for (int64_t i = index; i < in_lanes; i += lanes) {
      lane.workspace.Reset(bytes);
      step(lane.runner, lane.workspace).Run(batch.subspan(i, 1), finite.subspan(i, 1));
    }
  });
  runner_.UseTiles(sides);
  const int64_t part = execution.part != 0 ? execution.part : DefaultPart(bytes);
  for (int64_t begin = in_lanes; begin < count; begin += part) {
    const int64_t size = std::min(part, count - begin);
    workspace_.Reset(size * bytes);
    step(runner_, workspace_).Run(batch.subspan(begin, size), finite.subspan(begin, size));
  }
}

std::vector<MuonExecution> CpuMuonStep::Candidates(int64_t rows, int64_t cols, int64_t batch,
                                                   const NewtonSchulzOptions& options) const {
  const int64_t m = std::min(rows, cols);
  const int64_t n = std::max(rows, cols);
  CpuExecutionCase given;
  given.batch = batch;
  given.m = m;
  given.n = n;
  given.bytes = BatchNewtonSchulz::BytesPerMatrix(options.form, StorageOf(options), m, n);
  given.threads = pool_.threads();
  given.whole_by_default = given.bytes <= kLaneBytes;
  given.part_by_default = DefaultPart(given.bytes);
  given.tiles = micro_kernels_ && options.precision == ElementType::kFloat32;
  return CpuCandidates(given);
}

void CpuMuonStep::UseTuning(const ExecutionTable& table) {
  for (const auto& [key, choice] : table.entries()) {
    ValidateCpuExecution(choice);
  }
  tuning_ = table;
}

}  // namespace dmuon::kernels
