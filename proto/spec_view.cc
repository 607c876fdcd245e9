#include <algorithm>
#include <functional>
#include <numeric>

#include "proto/spec_sections.h"

namespace dmuon::spec {
namespace {

constexpr size_t kMaxParts = 65536;

std::string ShapeText(const std::vector<int64_t>& shape) { return Json(shape).dump(); }

int64_t Sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

View ReadNamedView(const Json& value, const KeyPath& path) {
  View view;
  const auto& name = value.get_ref<const std::string&>();
  if (name == "flatten") {
    view.flatten = true;
  } else if (name == "stack") {
    view.stack = true;
  } else if (name != "matrix") {
    Refuse(path, Excerpt(value) +
                     " is not one of matrix, flatten, stack, nor an object with flatten, stack, "
                     "split_rows, split_cols, interleave_rows");
  }
  return view;
}

View ReadViewObject(const Json& value, const KeyPath& path) {
  CheckKeys(value, path, {"flatten", "stack", "split_rows", "split_cols", "interleave_rows"});
  View view;
  int cuts = 0;
  if (const Json* flatten = Find(value, "flatten")) {
    view.flatten = ReadBool(*flatten, KeyPath(path, "flatten"));
  }
  if (const Json* stack = Find(value, "stack")) {
    view.stack = ReadBool(*stack, KeyPath(path, "stack"));
  }
  if (const Json* sizes = Find(value, "split_rows")) {
    const KeyPath key(path, "split_rows");
    view.split_rows = ReadIntegers(*sizes, key, 1, kMaxParameterElements, kMaxParts);
    ++cuts;
  }
  if (const Json* sizes = Find(value, "split_cols")) {
    const KeyPath key(path, "split_cols");
    view.split_cols = ReadIntegers(*sizes, key, 1, kMaxParameterElements, kMaxParts);
    ++cuts;
  }
  if (const Json* parts = Find(value, "interleave_rows")) {
    const KeyPath key(path, "interleave_rows");
    view.interleave_rows = ReadInteger(*parts, key, 2, static_cast<int64_t>(kMaxParts));
    ++cuts;
  }
  if (cuts > 1) {
    Refuse(path,
           Excerpt(value) + " cuts twice; give one of split_rows, split_cols and interleave_rows");
  }
  return view;
}

void CheckSplit(const std::vector<int64_t>& sizes, int64_t whole, const std::string& what,
                const KeyPath& path) {
  if (!sizes.empty() && Sum(sizes) != whole) {
    Refuse(path, Excerpt(Json(sizes)) + " adds up to " + std::to_string(Sum(sizes)) +
                     ", but the matrix has " + std::to_string(whole) + " " + what);
  }
}

// Checks that `view` fits and drops what has no effect.
void FitView(const std::vector<int64_t>& shape, const KeyPath& path, View* view) {
  const size_t first = view->stack ? 1 : 0;
  const size_t left = shape.size() - first;
  if (left < 2 || (left > 2 && !view->flatten)) {
    const std::string after_stack = view->stack ? " after stack has taken the first" : "";
    Refuse(path, "shape " + ShapeText(shape) + " leaves " + std::to_string(left) +
                     " dimensions for a matrix" + after_stack +
                     (left < 2 ? "; a matrix needs two" : "; a matrix has two, or use flatten"));
  }
  const int64_t rows = shape[first];
  const int64_t cols = std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                                       shape.end(), int64_t{1}, std::multiplies<>());
  CheckSplit(view->split_rows, rows, "rows", KeyPath(path, "split_rows"));
  CheckSplit(view->split_cols, cols, "columns", KeyPath(path, "split_cols"));
  if (view->interleave_rows > 0 && rows % view->interleave_rows != 0) {
    Refuse(KeyPath(path, "interleave_rows"), std::to_string(view->interleave_rows) +
                                                 " does not divide the matrix's " +
                                                 std::to_string(rows) + " rows");
  }
  view->flatten = left > 2;
  if (view->split_rows.size() == 1) {
    view->split_rows.clear();
  }
  if (view->split_cols.size() == 1) {
    view->split_cols.clear();
  }
}

}  // namespace

View ReadView(const Json* view, const KeyPath& path, const std::vector<int64_t>& shape, Rule rule) {
  View read;
  if (view == nullptr) {
    if (rule == Rule::kMuon && shape.size() > 2) {
      Refuse(path, "missing: a muon parameter of shape " + ShapeText(shape) +
                       " must say how it becomes matrices: flatten, stack, or {\"stack\": true, "
                       "...}; or give it \"rule\": \"adamw\"");
    }
    if (rule == Rule::kMuon && shape.size() < 2) {
      Refuse(path, "shape " + ShapeText(shape) +
                       " has one dimension, but the rule muon needs a matrix; give the parameter "
                       "\"rule\": \"adamw\"");
    }
    return read;
  }
  if (view->is_string()) {
    read = ReadNamedView(*view, path);
  } else {
    read = ReadViewObject(*view, path);
  }
  FitView(shape, path, &read);
  return rule == Rule::kMuon ? read : View{};  // elementwise rules have no matrices
}

}  // namespace dmuon::spec
