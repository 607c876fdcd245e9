#include "kernels/cpu/panel_newton_schulz.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/streaming_store.h"
#include "kernels/cpu/typed_rows.h"

namespace dmuon::kernels {
namespace {

int64_t BytesOf(const PanelMatrix& matrix) {
  return Workspace::RoundUp(matrix.stride() * static_cast<int64_t>(sizeof(float)));
}

// Copies rows x cols elements from rows of `ld` into a block; the rest of it becomes zero.
void StoreBlock(ElementType rounding, const float* from, int64_t ld, int64_t rows, int64_t cols,
                bool streamed, float* block) {
  alignas(64) float values[kBlockElements];
  for (int64_t i = 0; i < kBlockSide; ++i) {
    float* to = values + i * kBlockSide;
    const int64_t count = i < rows ? cols : 0;
    std::copy_n(from + i * ld, count, to);
    std::fill(to + count, to + kBlockSide, 0.0F);
  }
  RoundRow(rounding, kBlockElements, values);
  StoreRun(streamed, values, sizeof(values), block);
}

// Copies a piece in rows of `ld` into the blocks from (row, col) on.
void StorePiece(const PanelMatrix& to, ElementType rounding, int64_t matrix, int64_t row,
                int64_t col, int64_t rows, int64_t cols, const float* from, int64_t ld) {
  const bool streamed = to.stride() * static_cast<int64_t>(sizeof(float)) >= kStreamedBytes;
  for (int64_t j = 0; j < cols; j += kBlockSide) {
    for (int64_t i = 0; i < rows; i += kBlockSide) {
      StoreBlock(rounding, from + i * ld + j, ld, std::min(kBlockSide, rows - i),
                 std::min(kBlockSide, cols - j), streamed,
                 to.Block(matrix, (row + i) / kBlockSide, (col + j) / kBlockSide));
    }
  }
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

void PanelNewtonSchulz::StoreX(int64_t matrix, int64_t row, int64_t col, int64_t rows, int64_t cols,
                               const float* values, const float* transposed, int64_t ld) const {
  StorePiece(x_, storage_.x, matrix, row, col, rows, cols, values, ld);
  StorePiece(transposed_x_, storage_.x, matrix, col, row, cols, rows, transposed, ld);
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
