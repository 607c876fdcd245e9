#include "kernels/cpu/batch_newton_schulz.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/block_operations.h"
#include "kernels/cpu/typed_rows.h"

namespace dmuon::kernels {

BatchNewtonSchulz::BatchNewtonSchulz(TileRunner& runner, Workspace& workspace, Form form,
                                     const NewtonSchulzStorage& storage, int64_t m, int64_t n,
                                     int64_t count)
    : runner_(runner), m_(m), n_(n), count_(count) {
  const auto take = [&](ElementType type, int64_t rows, int64_t cols) {
    const int64_t ld = LeadingDimension(cols);
    return BatchedMatrix{workspace.TakeBytes(count * rows * ld * SizeOf(type)), type, ld,
                         rows * ld};
  };
  result_ = take(ElementType::kFloat32, m, n);
  x_ = take(storage.x, m, n);
  if (storage.x == ElementType::kFloat32) {
    next_x_ = result_;
    transposed_x_ = take(storage.x, n, m);
  } else {
    next_x_ = take(storage.x, m, n);
  }
  for (int i = 0; i < SquaresOf(form); ++i) {
    squares_[i] = take(storage.square, m, m);
  }
}

int64_t BatchNewtonSchulz::BytesPerMatrix(Form form, const NewtonSchulzStorage& storage, int64_t m,
                                          int64_t n) {
  const auto bytes = [](ElementType type, int64_t rows, int64_t cols) {
    return Workspace::RoundUp(rows * LeadingDimension(cols) * SizeOf(type));
  };
  const bool transposes = storage.x == ElementType::kFloat32;
  return bytes(ElementType::kFloat32, m, n) + bytes(storage.x, m, n) +
         (transposes ? bytes(storage.x, n, m) : bytes(storage.x, m, n)) +
         SquaresOf(form) * bytes(storage.square, m, m);
}

void BatchNewtonSchulz::StoreX(int64_t matrix, int64_t row, int64_t col, int64_t rows, int64_t cols,
                               float* block) const {
  const auto store = [&](const BatchedMatrix& to, int64_t first, int64_t height, int64_t width,
                         const float* from) {
    for (int64_t i = 0; i < height; ++i) {
      StoreRow(to.type, from + i * kBlockSide, width, to.data,
               matrix * to.stride + first + i * to.ld);
    }
  };
  store(x_, row * x_.ld + col, rows, cols, block);
  if (transposed_x_.data != nullptr) {
    alignas(64) float turned[kBlockElements];
    TransposeBlock(block, turned);
    store(transposed_x_, col * transposed_x_.ld + row, cols, rows, turned);
  }
}

void BatchNewtonSchulz::Run(const NewtonSchulzOptions& options) { RunNewtonSchulz(options, *this); }

void BatchNewtonSchulz::GramOfX(int out) {
  TiledProduct tiled;
  tiled.rows = tiled.cols = m_;
  tiled.depth = n_;
  tiled.left = tiled.right = x_;
  if (transposed_x_.data != nullptr) {
    tiled.right = transposed_x_;
  } else {
    tiled.right_transposed = true;
  }
  tiled.symmetric = true;
  tiled.out = squares_[out];
  runner_.Run(tiled, count_);
}

void BatchNewtonSchulz::Multiply(const SymmetricProduct& product) {
  TiledProduct tiled;
  tiled.rows = tiled.cols = tiled.depth = m_;
  tiled.left = squares_[product.left];
  tiled.right = squares_[product.right];
  tiled.symmetric = true;
  tiled.product_factor = static_cast<float>(product.factor);
  tiled.addend = squares_[product.addend];
  tiled.addend_factor = static_cast<float>(product.addend_factor);
  tiled.out = squares_[product.out];
  runner_.Run(tiled, count_);
}

void BatchNewtonSchulz::AddIdentity(int z, double a, int out) {
  const BatchedMatrix& from = squares_[z];
  const BatchedMatrix& to = squares_[out];
  const auto diagonal = static_cast<float>(a);
  runner_.pool().ParallelFor(count_, [&](int64_t matrix, int) {
    const int64_t bytes = from.stride * SizeOf(from.type);
    const char* source = static_cast<const char*>(from.data) + matrix * bytes;
    char* target = static_cast<char*>(to.data) + matrix * bytes;
    std::copy_n(source, bytes, target);
    for (int64_t i = 0; i < m_; ++i) {
      float value = 0.0F;
      LoadRow(from.type, source, i * from.ld + i, 1, &value);
      value += diagonal;
      StoreRow(to.type, &value, 1, target, i * to.ld + i);
    }
  });
}

void BatchNewtonSchulz::ApplyToX(int left, double factor, bool last) {
  TiledProduct tiled;
  tiled.rows = tiled.depth = m_;
  tiled.cols = n_;
  tiled.left = squares_[left];
  tiled.right = x_;
  if (factor != 0.0) {
    tiled.addend = x_;
    tiled.addend_factor = static_cast<float>(factor);
  }
  if (last && x_.type != ElementType::kFloat32) {
    tiled.out = result_;
    runner_.Run(tiled, count_);
    x_ = result_;
    return;
  }
  tiled.out = next_x_;
  if (!last) {
    tiled.transposed_out = transposed_x_;  // GramOfX comes next
  }
  runner_.Run(tiled, count_);
  std::swap(x_, next_x_);
}

}  // namespace dmuon::kernels
