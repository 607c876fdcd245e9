// One Newton-Schulz iteration of equal-shape matrices as a list of calls on a workspace. Free of
// CUDA: what cuBLAS will be given can be computed, checked and even executed on any machine.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "kernels/cuda/execution.h"
#include "kernels/cuda/layout.h"
#include "kernels/newton_schulz.h"
#include "kernels/options.h"

namespace dmuon::kernels::cuda {

// A row-major array for each matrix of the unit, `stride` elements apart.
struct Array {
  int64_t offset = 0;  // bytes into the workspace, a multiple of kPieceAlignment
  int64_t stride = 0;  // elements; a multiple of ld
  int64_t ld = 0;      // elements, a multiple of kSideUnit
  ElementType type = ElementType::kFloat32;
};

inline constexpr int64_t kPieceAlignment = 256;

// out = factor * left * right + out_factor * out, as one column-major GEMM per matrix: first is the
// right operand.
struct WholeProduct {
  ColumnMajorGemm gemm;
  Array first;
  Array second;
  Array out;
  float factor = 1.0F;
  float out_factor = 0.0F;
};

// Equal GEMMs, as cublasGemmGroupedBatchedEx takes them: column-major; the first operand is
// transposed, the second is not.
struct TileGroup {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t tiles = 0;  // of all matrices together
};

// The same product of symmetric left and right by tiles of the lower triangle. Operands and result
// of tile t are at first[t], second[t] and out[t]: bytes into the workspace, group after group.
struct TriangleProduct {
  Array left;
  Array right;
  Array result;
  float factor = 1.0F;
  float out_factor = 0.0F;
  std::vector<TileGroup> groups;
  std::vector<int64_t> first;
  std::vector<int64_t> second;
  std::vector<int64_t> out;
};

// The part of each side x side array above the diagonal becomes what is below.
struct Mirror {
  Array array;
  int64_t side = 0;
};

// On and below the diagonal of side x side arrays of one type: to = from.
struct CopyTriangle {
  Array from;
  Array to;
  int64_t side = 0;
};

// to[i] = from[i] for `count` elements from the arrays' beginnings on: all matrices at once.
struct Convert {
  Array from;
  Array to;
  int64_t count = 0;
};

// out = z + a I
struct AddIdentity {
  Array z;
  Array out;
  int64_t side = 0;
  float a = 0.0F;
};

using Operation =
    std::variant<WholeProduct, TriangleProduct, Mirror, CopyTriangle, Convert, AddIdentity>;

struct NewtonSchulzPlan {
  int64_t matrices = 0;
  int64_t bytes = 0;        // of the workspace
  Array x;                  // where the normalised input goes, padding zeroed
  Array spare;              // fp32 room of shape.count() per matrix that is free until then
  int64_t block_sums = 0;   // offset of NormBlocks doubles per matrix
  int64_t normalizers = 0;  // offset of one NormalizeFactors per matrix
  Array result;             // where the last operation leaves X, fp32
  std::vector<Operation> operations;
};

// `tile_side` as in Execution.
NewtonSchulzPlan MakePlan(const NewtonSchulzOptions& options, const Shape& shape, int64_t matrices,
                          int64_t tile_side);

// Per group: what cuBLAS takes in arrays of the host. Throws std::invalid_argument where a size
// does not fit into its 32 bits.
struct GroupArrays {
  std::vector<int> m;
  std::vector<int> n;
  std::vector<int> k;
  std::vector<int> first_ld;
  std::vector<int> second_ld;
  std::vector<int> out_ld;
  std::vector<int> sizes;
  std::vector<float> factors;
  std::vector<float> out_factors;
};
GroupArrays GroupArraysOf(const TriangleProduct& product);

// A size as cuBLAS takes it. Throws std::invalid_argument beyond 32 bits.
int ToInt(int64_t size);

}  // namespace dmuon::kernels::cuda
