#include "kernels/cpu/gemm.h"

#include <algorithm>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/micro_kernel.h"
#include "kernels/cpu/onednn_check.h"
#include "kernels/cpu/typed_rows.h"

namespace dmuon::kernels {
namespace {

const float* Floats(const GemmOperand& operand) { return static_cast<const float*>(operand.data); }

void Sgemm(int64_t m, int64_t n, int64_t k, const GemmOperand& left, const GemmOperand& right,
           float beta, float* c, int64_t ldc) {
  if (beta == 0.0F && !left.transposed && !right.transposed &&
      RunMicroKernel(m, n, k, Floats(left), left.ld, Floats(right), right.ld, c, ldc)) {
    return;
  }
  const OneOpenMpThread one_thread;
  CheckOneDnn(dnnl_sgemm(left.transposed ? 'T' : 'N', right.transposed ? 'T' : 'N', m, n, k, 1.0F,
                         Floats(left), left.ld, Floats(right), right.ld, beta, c, ldc),
              "dnnl_sgemm");
}

// The piece [begin, begin + depth) of an operand's inner dimension as fp32: the operand itself if
// it is fp32, else a copy. `outer` is its other size; `inner_is_row` says that the inner dimension
// runs along its stored rows.
GemmOperand FloatPiece(const GemmOperand& operand, bool inner_is_row, int64_t outer, int64_t begin,
                       int64_t depth, const AlignedBytes& copy) {
  const int64_t first = inner_is_row ? begin : begin * operand.ld;
  if (operand.type == ElementType::kFloat32) {
    return {Floats(operand) + first, operand.type, operand.ld, operand.transposed};
  }
  auto* floats = reinterpret_cast<float*>(copy.get());
  const int64_t rows = inner_is_row ? outer : depth;
  const int64_t cols = inner_is_row ? depth : outer;
  for (int64_t row = 0; row < rows; ++row) {
    LoadRow(operand.type, operand.data, first + row * operand.ld, cols, floats + row * cols);
  }
  return {floats, ElementType::kFloat32, cols, operand.transposed};
}

}  // namespace

bool NativeBFloat16Works() {
  if (!HasNativeBFloat16()) {
    return false;
  }
  constexpr uint16_t kThree = BFloat16FromFloat(3.0F);
  constexpr uint16_t kFive = BFloat16FromFloat(5.0F);
  float product = 0.0F;
  try {
    MatmulPrimitives().Run(1, 1, 1, {&kThree, ElementType::kBFloat16, 1, false},
                           {&kFive, ElementType::kBFloat16, 1, false}, &product, 1);
  } catch (const std::runtime_error&) {
    return false;  // an older oneDNN, or one that was told to use less: Describe says "emulated"
  }
  return product == 15.0F;
}

std::string OneDnnVersion() {
  const dnnl_version_t* version = dnnl_version();
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch);
}

Gemm::Gemm(bool native_bf16)
    : native_bf16_(native_bf16),
      left_piece_(AllocateAligned(kMaxSide * kDepthPiece * sizeof(float))),
      right_piece_(AllocateAligned(kMaxSide * kDepthPiece * sizeof(float))) {}

void Gemm::Run(int64_t m, int64_t n, int64_t k, const GemmOperand& left, const GemmOperand& right,
               float* c, int64_t ldc) {
  const bool both_bf16 =
      left.type == ElementType::kBFloat16 && right.type == ElementType::kBFloat16;
  if (left.type == ElementType::kFloat32 && right.type == ElementType::kFloat32) {
    Sgemm(m, n, k, left, right, 0.0F, c, ldc);
  } else if (both_bf16 && native_bf16_) {
    native_.Run(m, n, k, left, right, c, ldc);
  } else {
    RunConverted(m, n, k, left, right, c, ldc);
  }
}

void Gemm::RunConverted(int64_t m, int64_t n, int64_t k, const GemmOperand& left,
                        const GemmOperand& right, float* c, int64_t ldc) {
  if (m > kMaxSide || n > kMaxSide) {
    throw std::logic_error("kernels gemm: a tile is larger than its conversion buffer");
  }
  for (int64_t begin = 0; begin < k; begin += kDepthPiece) {
    const int64_t depth = std::min(kDepthPiece, k - begin);
    const GemmOperand left_piece = FloatPiece(left, !left.transposed, m, begin, depth, left_piece_);
    const GemmOperand right_piece =
        FloatPiece(right, right.transposed, n, begin, depth, right_piece_);
    Sgemm(m, n, depth, left_piece, right_piece, begin == 0 ? 0.0F : 1.0F, c, ldc);
  }
}

}  // namespace dmuon::kernels
