#include "kernels/cuda/plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/step_factors.h"

namespace dmuon::kernels::cuda {
namespace {

constexpr int kMaxSquares = 5;

bool NeedsFloatX(const NewtonSchulzStorage& storage) { return storage.x != storage.square; }

int64_t ByteOffset(const Array& array, int64_t matrix, int64_t row, int64_t col) {
  return array.offset + (matrix * array.stride + row * array.ld + col) * SizeOf(array.type);
}

// The groups of a triangle of `side` in tiles of `tile`: the full tiles, the last row's, its
// corner. Calls visit(group, places): places of the tiles' first elements.
template <typename Visit>
void ForEachGroup(int64_t side, int64_t tile, Visit&& visit) {
  const int64_t full = side / tile;
  const int64_t rest = side % tile;
  std::vector<Place> places;
  for (int64_t i = 0; i < TriangleTiles(full); ++i) {
    const Place at = TriangleTileAt(i);
    places.push_back({at.row * tile, at.col * tile});
  }
  visit(TileGroup{tile, tile, 0, 0}, places);
  if (rest == 0) {
    return;
  }
  places.clear();
  for (int64_t i = 0; i < full; ++i) {
    places.push_back({full * tile, i * tile});
  }
  visit(TileGroup{tile, rest, 0, 0}, places);
  visit(TileGroup{rest, rest, 0, 0}, {{full * tile, full * tile}});
}

class Planner final : private NewtonSchulzOperations {
 public:
  Planner(const NewtonSchulzOptions& options, const Shape& shape, int64_t matrices,
          int64_t tile_side);

  NewtonSchulzPlan Make(const NewtonSchulzOptions& options);

 private:
  Array Take(ElementType type, int64_t rows, int64_t cols);
  int64_t TakeBytes(int64_t bytes);
  bool by_tiles() const { return tile_side_ > 0 && tile_side_ < m_; }

  void GramOfX(int out) override;
  void Multiply(const SymmetricProduct& product) override;
  void AddIdentity(int z, double a, int out) override;
  void ApplyToX(int left, double factor, bool last) override;
  void AddWhole(const Array& left, const Array& right, bool right_transposed, int64_t cols,
                int64_t depth, float factor, float out_factor, const Array& out);
  void AddTriangle(TriangleProduct product, int64_t depth);
  void AddConvert(const Array& from, const Array& to) {
    plan_.operations.push_back(Convert{from, to, plan_.matrices * from.stride});
  }

  int64_t m_;
  int64_t n_;
  int64_t tile_side_;
  NewtonSchulzPlan plan_;
  Array result_;  // fp32
  Array x_;       // result_ after the last product
  Array next_x_;  // result_ if X is fp32
  bool has_float_x_ = false;
  Array float_x_;  // fp32 copy of X for products with fp32 squares
  std::array<Array, kMaxSquares> squares_;
};

Planner::Planner(const NewtonSchulzOptions& options, const Shape& shape, int64_t matrices,
                 int64_t tile_side)
    : m_(shape.padded_m()), n_(shape.padded_n()), tile_side_(tile_side) {
  if (tile_side % kTileUnit != 0 || tile_side < 0) {
    throw std::invalid_argument("CUDA device: tile side " + std::to_string(tile_side) +
                                ": choose 0 (whole products) or a multiple of " +
                                std::to_string(kTileUnit));
  }
  const NewtonSchulzStorage storage = StorageOf(options);
  plan_.matrices = matrices;
  result_ = Take(ElementType::kFloat32, m_, n_);
  x_ = Take(storage.x, m_, n_);
  next_x_ = storage.x == ElementType::kFloat32 ? result_ : Take(storage.x, m_, n_);
  has_float_x_ = NeedsFloatX(storage);
  if (has_float_x_) {
    float_x_ = Take(ElementType::kFloat32, m_, n_);
  }
  for (int i = 0; i < SquaresOf(options.form); ++i) {
    squares_[i] = Take(storage.square, m_, m_);
  }
  plan_.x = x_;
  plan_.spare = result_;
  plan_.block_sums = TakeBytes(matrices * NormBlocks(shape.count()) * int64_t{sizeof(double)});
  plan_.normalizers = TakeBytes(matrices * int64_t{sizeof(NormalizeFactors)});
}

NewtonSchulzPlan Planner::Make(const NewtonSchulzOptions& options) {
  RunNewtonSchulz(options, *this);
  plan_.result = x_;
  return std::move(plan_);
}

int64_t Planner::TakeBytes(int64_t bytes) {
  const int64_t offset = plan_.bytes;
  plan_.bytes += RoundUp(bytes, kPieceAlignment);
  return offset;
}

Array Planner::Take(ElementType type, int64_t rows, int64_t cols) {
  return {TakeBytes(plan_.matrices * rows * cols * SizeOf(type)), rows * cols, cols, type};
}

void Planner::AddWhole(const Array& left, const Array& right, bool right_transposed, int64_t cols,
                       int64_t depth, float factor, float out_factor, const Array& out) {
  const ColumnMajorGemm gemm = MapRowMajor(m_, cols, depth, right_transposed);
  for (const int64_t size : {gemm.m, gemm.n, gemm.k, plan_.matrices}) {
    ToInt(size);
  }
  plan_.operations.push_back(WholeProduct{gemm, right, left, out, factor, out_factor});
}

// Column-major, tile (r, c) of the result is the transpose of that of the memory: its first operand
// holds the columns c of the right operand, which are its rows, as it is symmetric (or X).
void Planner::AddTriangle(TriangleProduct product, int64_t depth) {
  ForEachGroup(m_, tile_side_, [&](TileGroup group, const std::vector<Place>& places) {
    group.k = depth;
    group.tiles = plan_.matrices * std::ssize(places);
    product.groups.push_back(group);
    for (int64_t matrix = 0; matrix < plan_.matrices; ++matrix) {
      for (const Place& place : places) {
        product.first.push_back(ByteOffset(product.right, matrix, place.col, 0));
        product.second.push_back(ByteOffset(product.left, matrix, place.row, 0));
        product.out.push_back(ByteOffset(product.result, matrix, place.row, place.col));
      }
    }
  });
  const Array result = product.result;
  plan_.operations.push_back(std::move(product));
  plan_.operations.push_back(Mirror{result, m_});
}

void Planner::GramOfX(int out) {
  if (by_tiles()) {
    AddTriangle({x_, x_, squares_[out], 1.0F, 0.0F, {}, {}, {}, {}}, n_);
  } else {
    AddWhole(x_, x_, true, m_, n_, 1.0F, 0.0F, squares_[out]);
  }
}

void Planner::Multiply(const SymmetricProduct& product) {
  const Array& left = squares_[product.left];
  const Array& right = squares_[product.right];
  const Array& out = squares_[product.out];
  const auto factor = static_cast<float>(product.factor);
  const auto out_factor = static_cast<float>(product.addend_factor);
  const bool copy = product.addend != product.out && product.addend_factor != 0.0;
  if (by_tiles()) {
    if (copy) {
      plan_.operations.push_back(CopyTriangle{squares_[product.addend], out, m_});
    }
    AddTriangle({left, right, out, factor, out_factor, {}, {}, {}, {}}, m_);
    return;
  }
  if (copy) {
    AddConvert(squares_[product.addend], out);
  }
  AddWhole(left, right, false, m_, m_, factor, out_factor, out);
}

void Planner::AddIdentity(int z, double a, int out) {
  plan_.operations.push_back(
      cuda::AddIdentity{squares_[z], squares_[out], m_, static_cast<float>(a)});
}

// The product lands in fp32 where squares are fp32 or where it is the last one.
void Planner::ApplyToX(int left, double factor, bool last) {
  Array right = x_;
  if (has_float_x_) {
    AddConvert(x_, float_x_);
    right = float_x_;
  }
  const bool into_result = last && x_.type != ElementType::kFloat32;
  const Array out = into_result || has_float_x_ ? result_ : next_x_;
  if (factor != 0.0) {
    AddConvert(x_, out);
  }
  AddWhole(squares_[left], right, false, n_, m_, 1.0F, static_cast<float>(factor), out);
  if (into_result) {
    x_ = result_;
    return;
  }
  if (has_float_x_) {
    AddConvert(result_, next_x_);
  }
  std::swap(x_, next_x_);
}

}  // namespace

NewtonSchulzPlan MakePlan(const NewtonSchulzOptions& options, const Shape& shape, int64_t matrices,
                          int64_t tile_side) {
  return Planner(options, shape, matrices, tile_side).Make(options);
}

GroupArrays GroupArraysOf(const TriangleProduct& product) {
  GroupArrays arrays;
  for (const TileGroup& group : product.groups) {
    arrays.m.push_back(ToInt(group.m));
    arrays.n.push_back(ToInt(group.n));
    arrays.k.push_back(ToInt(group.k));
    arrays.first_ld.push_back(ToInt(product.right.ld));
    arrays.second_ld.push_back(ToInt(product.left.ld));
    arrays.out_ld.push_back(ToInt(product.result.ld));
    arrays.sizes.push_back(ToInt(group.tiles));
    arrays.factors.push_back(product.factor);
    arrays.out_factors.push_back(product.out_factor);
  }
  return arrays;
}

int ToInt(int64_t size) {
  if (size > std::numeric_limits<int>::max()) {
    throw std::invalid_argument("CUDA device: a matrix side of " + std::to_string(size) +
                                " is beyond cuBLAS's 32-bit sizes: split the matrix");
  }
  return static_cast<int>(size);
}

}  // namespace dmuon::kernels::cuda
