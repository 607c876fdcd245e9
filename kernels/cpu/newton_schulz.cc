#include "kernels/cpu/newton_schulz.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/typed_rows.h"

namespace dmuon::kernels {
namespace {

constexpr int kDirectSquares = 2;  // A, B
constexpr int kGramSquares = 5;    // R, Z, Q, T and the next Q

int SquaresOf(Form form) { return form == Form::kGram ? kGramSquares : kDirectSquares; }

}  // namespace

NewtonSchulzStorage StorageOf(const NewtonSchulzOptions& options) {
  const bool mixed = options.form == Form::kGram && options.precision == ElementType::kBFloat16;
  return {options.precision, mixed ? ElementType::kFloat32 : options.precision};
}

NewtonSchulz::NewtonSchulz(TileRunner& runner, Workspace& workspace,
                           const NewtonSchulzOptions& options, const NewtonSchulzStorage& storage,
                           int64_t m, int64_t n, int64_t count)
    : runner_(runner), options_(options), storage_(storage), m_(m), n_(n), count_(count) {
  const auto wide = [&](ElementType type) {
    return BatchedMatrix{workspace.TakeBytes(count * m * n * SizeOf(type)), type, n, m * n};
  };
  result_ = wide(ElementType::kFloat32);
  x_ = wide(storage.x);
  next_x_ = storage.x == ElementType::kFloat32 ? result_ : wide(storage.x);
  for (int i = 0; i < SquaresOf(options.form); ++i) {
    squares_[i] = workspace.TakeBytes(count * m * m * SizeOf(storage.square));
  }
}

int64_t NewtonSchulz::BytesPerMatrix(Form form, const NewtonSchulzStorage& storage, int64_t m,
                                     int64_t n) {
  const int64_t x = Workspace::RoundUp(m * n * SizeOf(storage.x));
  const int64_t result = Workspace::RoundUp(m * n * SizeOf(ElementType::kFloat32));
  return result + (storage.x == ElementType::kFloat32 ? x : 2 * x) +
         SquaresOf(form) * Workspace::RoundUp(m * m * SizeOf(storage.square));
}

const float* NewtonSchulz::Run() {
  if (options_.form == Form::kGram) {
    RunGram();
  } else {
    RunDirect();
  }
  return static_cast<const float*>(x_.data);
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
  runner_.Run(product, count_);
}

void NewtonSchulz::GramOfX(const BatchedMatrix& out) {
  TiledProduct product;
  product.rows = product.cols = m_;
  product.depth = n_;
  product.left = product.right = x_;
  product.right_transposed = true;
  product.symmetric = true;
  product.out = out;
  runner_.Run(product, count_);
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
  if (last && storage_.x != ElementType::kFloat32) {
    product.out = result_;
    runner_.Run(product, count_);
    x_ = result_;
    return;
  }
  product.out = next_x_;
  runner_.Run(product, count_);
  std::swap(x_, next_x_);
}

void NewtonSchulz::AddIdentity(const BatchedMatrix& z, double a, const BatchedMatrix& out) {
  const auto diagonal = static_cast<float>(a);
  const int64_t bytes = z.stride * SizeOf(z.type);
  runner_.pool().ParallelFor(count_, [&](int64_t matrix, int) {
    const char* from = static_cast<const char*>(z.data) + matrix * bytes;
    char* to = static_cast<char*>(out.data) + matrix * bytes;
    std::copy_n(from, bytes, to);
    for (int64_t i = 0; i < m_; ++i) {
      float value = 0.0F;
      LoadRow(z.type, from, i * m_ + i, 1, &value);
      value += diagonal;
      StoreRow(out.type, &value, 1, to, i * m_ + i);
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

}  // namespace dmuon::kernels
