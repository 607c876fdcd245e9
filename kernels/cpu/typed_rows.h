// Runs of elements of a storage type, read and written as fp32, and rounding to it in place.
#pragma once

#include <cstdint>

#include "kernels/half_types.h"
#include "kernels/options.h"

namespace dmuon::kernels {

// to[i] = from[first + i]
void LoadRow(ElementType type, const void* from, int64_t first, int64_t count, float* to);

// to[first + i] = from[i], rounded to nearest even.
void StoreRow(ElementType type, const float* from, int64_t count, void* to, int64_t first);

// values[i], rounded to nearest even in `type`.
void RoundRow(ElementType type, int64_t count, float* values);

}  // namespace dmuon::kernels
