// What happens to a block of a product after it was summed. All blocks are of kBlockSide,
// row-major.
#pragma once

#include "kernels/cpu/panel_matrix.h"

namespace dmuon::kernels {

// to[i] = factor * sums[i] + addend_factor * addend[i]. `to` may be `addend`.
void CombineBlock(float factor, const float* sums, float addend_factor, const float* addend,
                  float* to);

// to[i] = factor * sums[i]
void ScaleBlock(float factor, const float* sums, float* to);

// `to` must not be `from`.
void TransposeBlock(const float* from, float* to);

// Copies what is below the diagonal to above it: the result is exactly symmetric.
void MirrorBlock(float* block);

}  // namespace dmuon::kernels
