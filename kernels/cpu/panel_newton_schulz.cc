#include "kernels/cpu/panel_newton_schulz.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/block_operations.h"
#include "kernels/cpu/streaming_store.h"
#include "kernels/cpu/typed_rows.h"

namespace dmuon::kernels {
namespace {

int64_t BytesOf(const PanelMatrix& matrix) {
  return Workspace::RoundUp(matrix.stride() * static_cast<int64_t>(sizeof(float)));
}

void StoreBlock(const PanelMatrix& to, int64_t matrix, int64_t row, int64_t col,
                const float* block) {
  constexpr int64_t kBytes = kBlockElements * static_cast<int64_t>(sizeof(float));
  const bool streamed = to.stride() * static_cast<int64_t>(sizeof(float)) >= kStreamedBytes;
  StoreRun(streamed, block, kBytes, to.Block(matrix, row / kBlockSide, col / kBlockSide));
}

}  // namespace

PanelNewtonSchulz::PanelNewtonSchulz(PanelRunner& runner, Workspace& workspace, Form form,
                                     const NewtonSchulzStorage& storage, int64_t m, int64_t n,
                                     int64_t count)
    : runner_(runner), storage_(storage), m_(m), count_(count) {
  const auto take = [&](int64_t rows, int64_t cols) {
    PanelMatrix matrix = PanelShape(rows, cols);
    matrix.data = workspace.Take<float>(count * matrix.stride());
    return matrix;
  };
  x_ = take(m, n);
  next_x_ = take(m, n);
  transposed_x_ = take(n, m);
  for (int i = 0; i < SquaresOf(form); ++i) {
    squares_[i] = take(m, m);
  }
}

int64_t PanelNewtonSchulz::BytesPerMatrix(Form form, const NewtonSchulzStorage&, int64_t m,
                                          int64_t n) {
  return 2 * BytesOf(PanelShape(m, n)) + BytesOf(PanelShape(n, m)) +
         SquaresOf(form) * BytesOf(PanelShape(m, m));
}

void PanelNewtonSchulz::StoreX(int64_t matrix, int64_t row, int64_t col, int64_t, int64_t,
                               float* block) const {
  alignas(64) float turned[kBlockElements];
  RoundRow(storage_.x, kBlockElements, block);
  TransposeBlock(block, turned);
  StoreBlock(x_, matrix, row, col, block);
  StoreBlock(transposed_x_, matrix, col, row, turned);
}

void PanelNewtonSchulz::Run(const NewtonSchulzOptions& options) { RunNewtonSchulz(options, *this); }

void PanelNewtonSchulz::GramOfX(int out) {
  PanelProduct product;
  product.left = x_;
  product.right = transposed_x_;
  product.symmetric = true;
  product.rounding = storage_.square;
  product.out = squares_[out];
  runner_.Run(product, count_);
}

void PanelNewtonSchulz::Multiply(const SymmetricProduct& given) {
  PanelProduct product;
  product.left = squares_[given.left];
  product.right = squares_[given.right];
  product.symmetric = true;
  product.product_factor = static_cast<float>(given.factor);
  product.addend = squares_[given.addend];
  product.addend_factor = static_cast<float>(given.addend_factor);
  product.rounding = storage_.square;
  product.out = squares_[given.out];
  runner_.Run(product, count_);
}

void PanelNewtonSchulz::AddIdentity(int z, double a, int out) {
  const PanelMatrix& from = squares_[z];
  const PanelMatrix& to = squares_[out];
  const auto diagonal = static_cast<float>(a);
  // Panel by panel.
  runner_.pool().ParallelFor(count_ * from.block_cols, [&](int64_t index, int) {
    const int64_t matrix = index / from.block_cols;
    const int64_t panel = index % from.block_cols;
    std::copy_n(from.Block(matrix, 0, panel), from.block_rows * kBlockElements,
                to.Block(matrix, 0, panel));
    float* block = to.Block(matrix, panel, panel);
    for (int64_t i = 0; i < std::min(kBlockSide, m_ - panel * kBlockSide); ++i) {
      float* element = block + i * (kBlockSide + 1);
      *element += diagonal;
      RoundRow(storage_.square, 1, element);
    }
  });
}

void PanelNewtonSchulz::ApplyToX(int left, double factor, bool last) {
  PanelProduct product;
  product.left = squares_[left];
  product.right = x_;
  if (factor != 0.0) {
    product.addend = x_;
    product.addend_factor = static_cast<float>(factor);
  }
  product.out = next_x_;
  if (!last) {
    product.rounding = storage_.x;
    product.transposed_out = transposed_x_;  // GramOfX comes next
  }
  runner_.Run(product, count_);
  std::swap(x_, next_x_);
}

}  // namespace dmuon::kernels
