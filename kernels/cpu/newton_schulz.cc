#include "kernels/cpu/newton_schulz.h"

#include <algorithm>
#include <utility>

namespace dmuon::kernels {
namespace {

constexpr int kDirectSquares = 2;  // A, B
constexpr int kGramSquares = 5;    // R, Z, Q, T and the next Q

int SquaresOf(Form form) { return form == Form::kGram ? kGramSquares : kDirectSquares; }

}  // namespace

NewtonSchulz::NewtonSchulz(ThreadPool& pool, Workspace& workspace,
                           const NewtonSchulzOptions& options, const StorageRounding& storage,
                           int64_t m, int64_t n, int64_t count)
    : pool_(pool),
      options_(options),
      storage_(storage),
      m_(m),
      n_(n),
      count_(count),
      tiles_(workspace.Take<float>(pool.threads() * kTile * kTile)),
      next_x_(Wide(workspace.Take<float>(count * m * n))) {
  for (int i = 0; i < SquaresOf(options.form); ++i) {
    squares_[i] = workspace.Take<float>(count * m * m);
  }
}

float* NewtonSchulz::Run(float* x) {
  x_ = Wide(x);
  if (options_.form == Form::kGram) {
    RunGram();
  } else {
    RunDirect();
  }
  return x_.data;
}

bool NewtonSchulz::RestartsBefore(int iteration) const {
  return std::find(options_.restart.begin(), options_.restart.end(), iteration) !=
         options_.restart.end();
}

void NewtonSchulz::SymmetricProduct(const BatchedMatrix& left, const BatchedMatrix& right,
                                    double factor, const BatchedMatrix& addend,
                                    double addend_factor, const BatchedMatrix& out) {
  TiledProduct product;
  product.rows = product.cols = product.depth = m_;
  product.left = left;
  product.right = right;
  product.symmetric = true;
  product.product_factor = static_cast<float>(factor);
  product.addend = addend;
  product.addend_factor = static_cast<float>(addend_factor);
  product.out = out;
  product.rounding = storage_.gram;
  RunTiledProduct(pool_, product, count_, tiles_);
}

void NewtonSchulz::GramOfX(const BatchedMatrix& out) {
  TiledProduct product;
  product.rows = product.cols = m_;
  product.depth = n_;
  product.left = product.right = x_;
  product.right_transposed = true;
  product.symmetric = true;
  product.out = out;
  product.rounding = storage_.gram;
  RunTiledProduct(pool_, product, count_, tiles_);
}

void NewtonSchulz::ApplyToX(const BatchedMatrix& left, double factor, bool last) {
  TiledProduct product;
  product.rows = product.depth = m_;
  product.cols = n_;
  product.left = left;
  product.right = x_;
  if (factor != 0.0) {
    product.addend = x_;
    product.addend_factor = static_cast<float>(factor);
  }
  product.out = next_x_;
  product.rounding = last ? Rounding::kNone : storage_.x;
  RunTiledProduct(pool_, product, count_, tiles_);
  std::swap(x_, next_x_);
}

void NewtonSchulz::AddIdentity(const BatchedMatrix& z, double a, const BatchedMatrix& out) {
  const float diagonal = static_cast<float>(a);
  pool_.ParallelFor(count_, [&](int64_t matrix, int) {
    const float* from = z.data + matrix * z.stride;
    float* to = out.data + matrix * out.stride;
    std::copy_n(from, m_ * m_, to);
    for (int64_t i = 0; i < m_; ++i) {
      to[i * m_ + i] = Round(storage_.gram, from[i * m_ + i] + diagonal);
    }
  });
}

void NewtonSchulz::RunDirect() {
  const BatchedMatrix a_matrix = Square(0);
  const BatchedMatrix b_matrix = Square(1);
  const int iterations = static_cast<int>(options_.coefficients.size());
  for (int i = 0; i < iterations; ++i) {
    const auto& [a, b, c] = options_.coefficients[i];
    GramOfX(a_matrix);
    SymmetricProduct(a_matrix, a_matrix, c, a_matrix, b, b_matrix);
    ApplyToX(b_matrix, a, i + 1 == iterations);
  }
}

void NewtonSchulz::RunGram() {
  const BatchedMatrix r = Square(0);
  const BatchedMatrix z = Square(1);
  const BatchedMatrix t = Square(2);
  BatchedMatrix q = Square(3);
  BatchedMatrix next_q = Square(4);
  const int iterations = static_cast<int>(options_.coefficients.size());
  for (int i = 0; i < iterations; ++i) {
    const auto& [a, b, c] = options_.coefficients[i];
    const bool first = i == 0 || RestartsBefore(i);
    const bool last = i + 1 == iterations || RestartsBefore(i + 1);
    if (first) {
      GramOfX(r);
    }
    SymmetricProduct(r, r, c, r, b, z);
    if (first) {
      AddIdentity(z, a, q);
    } else {
      SymmetricProduct(q, z, 1.0, q, a, next_q);
      std::swap(q, next_q);
    }
    if (last) {
      ApplyToX(q, 0.0, i + 1 == iterations);
    } else {
      SymmetricProduct(r, z, 1.0, r, a, t);
      SymmetricProduct(z, t, 1.0, t, a, r);
    }
  }
}

StorageRounding StorageRoundingOf(const NewtonSchulzOptions& options) {
  if (options.precision == ElementType::kFloat32) {
    return {};
  }
  if (options.form == Form::kGram) {
    return {Rounding::kBFloat16, Rounding::kNone};
  }
  return {Rounding::kBFloat16, Rounding::kBFloat16};
}

int64_t NewtonSchulzBytesPerMatrix(const NewtonSchulzOptions& options, int64_t m, int64_t n) {
  const int64_t squares = SquaresOf(options.form);
  const int64_t size = sizeof(float);
  return Workspace::RoundUp(m * n * size) + squares * Workspace::RoundUp(m * m * size);
}

int64_t NewtonSchulzBytesPerThread() { return Workspace::RoundUp(kTile * kTile * sizeof(float)); }

}  // namespace dmuon::kernels
