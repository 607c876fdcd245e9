#include <functional>
#include <numeric>

#include "proto/session_spec.h"

namespace dmuon {
namespace {

int64_t Product(const std::vector<int64_t>& shape, size_t first) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(first), shape.end(),
                         int64_t{1}, std::multiplies<>());
}

// Appends the parts that `view` cuts the matrix `whole` into.
void AppendParts(const View& view, const StridedMatrix& whole, std::vector<StridedMatrix>* parts) {
  StridedMatrix part = whole;
  if (!view.split_rows.empty()) {
    for (const int64_t rows : view.split_rows) {
      part.rows = rows;
      parts->push_back(part);
      part.base += rows * whole.row_stride;
    }
  } else if (!view.split_cols.empty()) {
    for (const int64_t cols : view.split_cols) {
      part.cols = cols;
      parts->push_back(part);
      part.base += cols;
    }
  } else if (view.interleave_rows > 1) {
    part.rows = whole.rows / view.interleave_rows;
    part.row_stride = whole.row_stride * view.interleave_rows;
    for (int64_t j = 0; j < view.interleave_rows; ++j) {
      part.base = whole.base + j * whole.row_stride;
      parts->push_back(part);
    }
  } else {
    parts->push_back(whole);
  }
}

}  // namespace

int64_t ParameterSpec::elements() const { return Product(shape, 0); }

std::vector<StridedMatrix> MatricesOf(const ParameterSpec& parameter) {
  const size_t first = parameter.view.stack ? 1 : 0;  // the dimension that rows run over
  const int64_t experts = parameter.view.stack ? parameter.shape.front() : 1;
  const int64_t rows = parameter.shape[first];
  const int64_t cols = Product(parameter.shape, first + 1);
  std::vector<StridedMatrix> matrices;
  for (int64_t expert = 0; expert < experts; ++expert) {
    AppendParts(parameter.view, {expert * rows * cols, rows, cols, cols}, &matrices);
  }
  return matrices;
}

}  // namespace dmuon
