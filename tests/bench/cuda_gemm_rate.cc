// cuBLAS products on cuda:0, timed by events on the stream that runs them.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cuda/check.h"
#include "kernels/cuda/data_type.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/memory.h"
#include "tests/bench/gemm_rate.h"

namespace dmuon::kernels::testing {
namespace {

using cuda::CublasHandle;
using cuda::DeviceMemory;
using cuda::Stream;

constexpr double kRun_ms = 50.0;           // one timing, about
constexpr int kTimings = 5;                // the best one counts
constexpr int64_t kPattern = 1 << 20;      // distinct elements; operands repeat them
constexpr int64_t kLargest = 8192 * 8192;  // elements of the largest operand below

// out[rows x cols] = left[rows x depth] * right[depth x cols], column-major.
struct Product {
  int rows = 0;
  int cols = 0;
  int depth = 0;
  bool right_transposed = false;
};

constexpr std::array<Product, 7> kProducts = {{{1024, 4096, 1024, false},
                                               {2048, 2048, 2048, false},
                                               {2048, 2048, 5464, true},
                                               {2048, 5464, 2048, false},
                                               {4096, 4096, 4096, false},
                                               {4096, 4096, 4096, true},
                                               {8192, 8192, 8192, false}}};

class Event {
 public:
  Event() { DMUON_CUDA_CHECK(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void Record(const Stream& stream) { DMUON_CUDA_CHECK(cudaEventRecord(event_, stream.get())); }
  // Waits for both.
  double MillisecondsSince(const Event& earlier) const {
    DMUON_CUDA_CHECK(cudaEventSynchronize(event_));
    float ms = 0.0F;
    DMUON_CUDA_CHECK(cudaEventElapsedTime(&ms, earlier.event_, event_));
    return ms;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class RateMeter {
 public:
  explicit RateMeter(ElementType type)
      : type_(type),
        cublas_(stream_),
        left_(kLargest * SizeOf(type)),
        right_(kLargest * SizeOf(type)),
        out_(kLargest * SizeOf(type)) {
    // Not constants: a processor that switches fewer bits draws less power and clocks higher.
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> pattern(kPattern);
    std::generate(pattern.begin(), pattern.end(), [&] { return normal(random); });
    const DeviceMemory source(kPattern * static_cast<int64_t>(sizeof(float)));
    DMUON_CUDA_CHECK(cudaMemcpyAsync(source.data(), pattern.data(), source.bytes(),
                                     cudaMemcpyHostToDevice, stream_.get()));
    Fill(source, left_);
    Fill(source, right_);
    stream_.Synchronize();
  }

  double Gflops(const Product& product) {
    RunMilliseconds(product, 1);  // cuBLAS loads its kernels
    const auto products =
        std::max(1, static_cast<int>(kRun_ms / std::max(1e-3, RunMilliseconds(product, 1))));
    double best_ms = RunMilliseconds(product, products);
    for (int i = 1; i < kTimings; ++i) {
      best_ms = std::min(best_ms, RunMilliseconds(product, products));
    }
    const double flops = 2.0 * product.rows * product.cols * product.depth;
    return flops * products / best_ms / 1e6;
  }

 private:
  void Fill(const DeviceMemory& source, const DeviceMemory& operand) {
    for (int64_t begin = 0; begin < kLargest; begin += kPattern) {
      cuda::LaunchConvert(stream_.get(), {source.data(), ElementType::kFloat32},
                          {static_cast<char*>(operand.data()) + begin * SizeOf(type_), type_},
                          kPattern);
    }
  }

  double RunMilliseconds(const Product& product, int products) {
    const cudaDataType_t type = cuda::CudaType(type_);
    const float one = 1.0F;
    const float zero = 0.0F;
    begin_.Record(stream_);
    for (int i = 0; i < products; ++i) {
      DMUON_CUDA_CHECK(cublasGemmEx(
          cublas_.get(), CUBLAS_OP_N, product.right_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
          product.rows, product.cols, product.depth, &one, left_.data(), type, product.rows,
          right_.data(), type, product.right_transposed ? product.cols : product.depth, &zero,
          out_.data(), type, product.rows, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    }
    end_.Record(stream_);
    return end_.MillisecondsSince(begin_);
  }

  ElementType type_;
  Stream stream_;
  CublasHandle cublas_;
  DeviceMemory left_;
  DeviceMemory right_;
  DeviceMemory out_;
  Event begin_;
  Event end_;
};

}  // namespace

GemmRate MeasureCudaGemmRate(ElementType type) {
  DMUON_CUDA_CHECK(cudaSetDevice(0));
  RateMeter meter(type);
  GemmRate best;
  for (const Product& product : kProducts) {
    const double gflops = meter.Gflops(product);
    if (gflops <= best.gflops) {
      continue;
    }
    best.gflops = gflops;
    best.how = "cuBLAS " + std::to_string(product.rows) + "x" + std::to_string(product.cols) + "x" +
               std::to_string(product.depth) + (product.right_transposed ? " NT, " : " NN, ") +
               std::string(NameOf(type));
  }
  return best;
}

}  // namespace dmuon::kernels::testing
