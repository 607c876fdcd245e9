#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/plan.h"
#include "tests/bench/plain_newton_schulz.h"

namespace dmuon::kernels::testing {
namespace {

constexpr int kIterations = 5;
constexpr float kA = 3.4445F;  // Keller Jordan's
constexpr float kB = -4.7750F;
constexpr float kC = 2.0315F;

int64_t Bytes(int64_t elements) { return elements * SizeOf(ElementType::kBFloat16); }

}  // namespace

class PlainNewtonSchulz::Iteration {
 public:
  Iteration(int64_t m, int64_t n, int64_t batch)
      : m_(m),
        n_(n),
        batch_(batch),
        cublas_(stream_, cuda::HalfSums::kLibrary),
        x_(Bytes(batch * m * n)),
        next_x_(Bytes(batch * m * n)),
        gram_(Bytes(batch * m * m)),
        polynomial_(Bytes(batch * m * m)) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0F, 1.0F / std::sqrt(static_cast<float>(m * n)));
    std::vector<float> x(m * n);
    std::generate(x.begin(), x.end(), [&] { return normal(random); });
    const auto bytes = static_cast<int64_t>(x.size() * sizeof(float));
    const cuda::DeviceMemory source(bytes);
    DMUON_CUDA_CHECK(
        cudaMemcpyAsync(source.data(), x.data(), bytes, cudaMemcpyHostToDevice, stream_.get()));
    for (int64_t i = 0; i < batch; ++i) {
      cuda::LaunchConvert(
          stream_.get(), {source.data(), ElementType::kFloat32},
          {static_cast<char*>(x_.data()) + Bytes(i * m * n), ElementType::kBFloat16}, m * n);
    }
    stream_.Synchronize();
  }

  void Run() {
    for (int i = 0; i < kIterations; ++i) {
      Multiply({x_, x_, true, m_, n_}, 1.0F, 0.0F, gram_);
      Copy(gram_, polynomial_);
      Multiply({gram_, gram_, false, m_, m_}, kC, kB, polynomial_);
      Copy(x_, next_x_);
      Multiply({polynomial_, x_, false, n_, m_}, 1.0F, kA, next_x_);
      std::swap(x_, next_x_);
    }
    stream_.Synchronize();
  }

 private:
  // left (m x depth) times right, row-major; see cuda::MapRowMajor.
  struct Product {
    const cuda::DeviceMemory& left;
    const cuda::DeviceMemory& right;
    bool right_transposed = false;
    int64_t cols = 0;
    int64_t depth = 0;
  };

  void Copy(const cuda::DeviceMemory& from, const cuda::DeviceMemory& to) {
    DMUON_CUDA_CHECK(cudaMemcpyAsync(to.data(), from.data(), from.bytes(), cudaMemcpyDeviceToDevice,
                                     stream_.get()));
  }

  void Multiply(const Product& product, float factor, float out_factor,
                const cuda::DeviceMemory& out) {
    const cuda::ColumnMajorGemm g =
        cuda::MapRowMajor(m_, product.cols, product.depth, product.right_transposed);
    const auto size = [](int64_t value) { return cuda::ToInt(value); };
    DMUON_CUDA_CHECK(cublasGemmStridedBatchedEx(
        cublas_.get(), g.first_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, size(g.m),
        size(g.n), size(g.k), &factor, product.right.data(), CUDA_R_16BF, size(g.first_ld),
        product.cols * product.depth, product.left.data(), CUDA_R_16BF, size(g.second_ld),
        m_ * product.depth, &out_factor, out.data(), CUDA_R_16BF, size(g.out_ld), m_ * product.cols,
        size(batch_), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }

  int64_t m_;
  int64_t n_;
  int64_t batch_;
  cuda::Stream stream_;
  cuda::CublasHandle cublas_;
  cuda::DeviceMemory x_;
  cuda::DeviceMemory next_x_;
  cuda::DeviceMemory gram_;
  cuda::DeviceMemory polynomial_;
};

PlainNewtonSchulz::PlainNewtonSchulz(int64_t rows, int64_t cols, int64_t batch)
    : iteration_(std::make_unique<Iteration>(std::min(rows, cols), std::max(rows, cols), batch)) {}

PlainNewtonSchulz::~PlainNewtonSchulz() = default;

void PlainNewtonSchulz::Run() { iteration_->Run(); }

}  // namespace dmuon::kernels::testing
