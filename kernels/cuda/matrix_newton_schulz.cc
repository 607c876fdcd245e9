#include "kernels/cuda/matrix_newton_schulz.h"

#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/cuda/check.h"
#include "kernels/cuda/data_type.h"

namespace dmuon::kernels::cuda {
namespace {

bool NeedsFloatX(const NewtonSchulzStorage& storage) { return storage.x != storage.square; }

int ToInt(int64_t size) {
  if (size > std::numeric_limits<int>::max()) {
    throw std::invalid_argument("CUDA device: a matrix side of " + std::to_string(size) +
                                " is beyond cuBLAS's 32-bit sizes: split the matrix");
  }
  return static_cast<int>(size);
}

}  // namespace

MatrixNewtonSchulz::MatrixNewtonSchulz(const Stream& stream, const CublasHandle& cublas,
                                       DeviceWorkspace& workspace, Form form,
                                       const NewtonSchulzStorage& storage, const Shape& shape)
    : stream_(stream), cublas_(cublas), m_(shape.m()), n_(shape.n()) {
  const auto take = [&](ElementType type, int64_t cols) {
    return TypedPointer{workspace.TakeBytes(m_ * cols * SizeOf(type)), type};
  };
  result_ = take(ElementType::kFloat32, n_);
  x_ = take(storage.x, n_);
  next_x_ = storage.x == ElementType::kFloat32 ? result_ : take(storage.x, n_);
  if (NeedsFloatX(storage)) {
    float_x_ = take(ElementType::kFloat32, n_);
  }
  for (int i = 0; i < SquaresOf(form); ++i) {
    squares_[i] = take(storage.square, m_);
  }
}

int64_t MatrixNewtonSchulz::BytesFor(Form form, const NewtonSchulzStorage& storage,
                                     const Shape& shape) {
  const int64_t wide = DeviceWorkspace::RoundUp(shape.count() * SizeOf(ElementType::kFloat32));
  const int64_t x = DeviceWorkspace::RoundUp(shape.count() * SizeOf(storage.x));
  const int64_t square = DeviceWorkspace::RoundUp(shape.m() * shape.m() * SizeOf(storage.square));
  return wide * (NeedsFloatX(storage) ? 2 : 1) + 2 * x + SquaresOf(form) * square;
}

const float* MatrixNewtonSchulz::Run(const NewtonSchulzOptions& options) {
  RunNewtonSchulz(options, *this);
  return static_cast<const float*>(x_.data);
}

void MatrixNewtonSchulz::RunGemm(const Gemm& gemm) {
  const ColumnMajorGemm g = MapRowMajor(m_, gemm.cols, gemm.depth, gemm.right_transposed);
  const cudaDataType_t type = CudaType(gemm.left.type);
  DMUON_CUDA_CHECK(cublasGemmEx(
      cublas_.get(), g.first_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, ToInt(g.m),
      ToInt(g.n), ToInt(g.k), &gemm.factor, gemm.right.data, type, ToInt(g.first_ld),
      gemm.left.data, type, ToInt(g.second_ld), &gemm.out_factor, gemm.out.data,
      CudaType(gemm.out.type), ToInt(g.out_ld), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

void MatrixNewtonSchulz::GramOfX(int out) {
  Gemm gemm;
  gemm.cols = m_;
  gemm.depth = n_;
  gemm.left = gemm.right = x_;
  gemm.right_transposed = true;
  gemm.out = squares_[out];
  RunGemm(gemm);
}

void MatrixNewtonSchulz::Multiply(const SymmetricProduct& product) {
  Gemm gemm;
  gemm.cols = gemm.depth = m_;
  gemm.left = squares_[product.left];
  gemm.right = squares_[product.right];
  gemm.factor = static_cast<float>(product.factor);
  gemm.out_factor = static_cast<float>(product.addend_factor);
  gemm.out = squares_[product.out];
  if (product.addend != product.out) {
    DMUON_CUDA_CHECK(cudaMemcpyAsync(gemm.out.data, squares_[product.addend].data,
                                     m_ * m_ * SizeOf(gemm.out.type), cudaMemcpyDeviceToDevice,
                                     stream_.get()));
  }
  RunGemm(gemm);
}

void MatrixNewtonSchulz::AddIdentity(int z, double a, int out) {
  LaunchAddIdentity(stream_.get(), squares_[z], static_cast<float>(a), m_, squares_[out]);
}

// The product lands in fp32 where squares are fp32 or where it is the last one.
void MatrixNewtonSchulz::ApplyToX(int left, double factor, bool last) {
  Gemm gemm;
  gemm.cols = n_;
  gemm.depth = m_;
  gemm.left = squares_[left];
  gemm.right = x_;
  if (float_x_.data != nullptr) {
    LaunchConvert(stream_.get(), x_, float_x_, m_ * n_);
    gemm.right = float_x_;
  }
  const bool into_result = last && x_.type != ElementType::kFloat32;
  gemm.out = into_result || float_x_.data != nullptr ? result_ : next_x_;
  if (factor != 0.0) {
    gemm.out_factor = static_cast<float>(factor);
    LaunchConvert(stream_.get(), x_, gemm.out, m_ * n_);
  }
  RunGemm(gemm);
  if (into_result) {
    x_ = result_;
    return;
  }
  if (float_x_.data != nullptr) {
    LaunchConvert(stream_.get(), result_, next_x_, m_ * n_);
  }
  std::swap(x_, next_x_);
}

}  // namespace dmuon::kernels::cuda
