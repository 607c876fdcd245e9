#include "proto/region.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

namespace dmuon {
namespace {

using Runs = std::vector<Run>;

// Element by element: each element of the piece, in the piece's order, looked up in the region.
std::vector<Run> BruteForce(const std::vector<int64_t>& shape, const Region& region,
                            const StridedMatrix& piece) {
  std::vector<Run> runs;
  int64_t packed = 0;
  for (int64_t k = 0; k < piece.elements(); ++k) {
    int64_t rest = piece.base + k / piece.cols * piece.row_stride + k % piece.cols;
    std::vector<int64_t> index(shape.size());
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) {
      index[d] = rest % shape[d];
    }
    int64_t offset = 0;
    bool inside = true;
    for (size_t d = 0; d < shape.size(); ++d) {
      const int64_t within = index[d] - region.start[d];
      inside = inside && within >= 0 && within < region.extent[d];
      offset = offset * region.extent[d] + within;
    }
    if (!inside) {
      continue;
    }
    if (!runs.empty() && runs.back().piece + runs.back().length == k &&
        runs.back().region + runs.back().length == offset) {
      ++runs.back().length;
    } else {
      runs.push_back({k, offset, packed, 1});
    }
    ++packed;
  }
  return runs;
}

Region RandomRegion(const std::vector<int64_t>& shape, std::mt19937* random) {
  Region region;
  for (const int64_t extent : shape) {
    const auto start = static_cast<int64_t>((*random)() % static_cast<uint64_t>(extent + 1));
    const bool whole = (*random)() % 3 == 0;
    region.start.push_back(whole ? 0 : start);
    region.extent.push_back(
        whole ? extent
              : static_cast<int64_t>((*random)() % static_cast<uint64_t>(extent - start + 1)));
  }
  return region;
}

StridedMatrix RandomPiece(int64_t elements, std::mt19937* random) {
  const auto below = [random](int64_t n) {
    return static_cast<int64_t>((*random)() % static_cast<uint64_t>(n));
  };
  StridedMatrix piece;
  piece.base = below(elements);
  piece.cols = 1 + below(elements - piece.base);
  piece.row_stride = piece.cols + (below(2) == 0 ? 0 : below(8));
  piece.rows = 1 + below((elements - piece.base - piece.cols) / piece.row_stride + 1);
  return piece;
}

TEST(IntersectRuns, MatchesBruteForce) {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::vector<int64_t> shape(1 + random() % 4);
    int64_t elements = 1;
    for (int64_t& extent : shape) {
      extent = 1 + static_cast<int64_t>(random() % 6);
      elements *= extent;
    }
    const Region region = RandomRegion(shape, &random);
    const StridedMatrix piece = RandomPiece(elements, &random);
    ASSERT_EQ(IntersectRuns(shape, region, piece), BruteForce(shape, region, piece))
        << "round " << round;
  }
}

TEST(IntersectRuns, TakesARowRangeInOneRun) {
  // Rows 3..5 of a 10 x 4 parameter and a piece of rows 4..9.
  const Region region{{3, 0}, {3, 4}};
  EXPECT_EQ(IntersectRuns({10, 4}, region, {16, 6, 4, 4}), (Runs{{0, 4, 0, 8}}));
}

TEST(IntersectRuns, NumbersPackedElementsThrough) {
  // Columns 1..2 of a 3 x 4 parameter: two elements a row.
  const Region region{{0, 1}, {3, 2}};
  EXPECT_EQ(IntersectRuns({3, 4}, region, {0, 3, 4, 4}),
            (Runs{{1, 0, 0, 2}, {5, 2, 2, 2}, {9, 4, 4, 2}}));
}

TEST(IntersectRuns, EmptyRegionHasNoRuns) {
  EXPECT_TRUE(IntersectRuns({10, 4}, {{10, 0}, {0, 4}}, {0, 10, 4, 4}).empty());
}

// A whole parameter, a row range and an expert far inside are found at once, whatever their size.
TEST(IntersectRuns, CostsAsMuchAsItsRuns) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<int64_t> shape = {100000, 1000};
  EXPECT_EQ(IntersectRuns(shape, Region::Whole(shape), {0, 100000, 1000, 1000}).size(), 1U);
  EXPECT_EQ(IntersectRuns(shape, {{50000, 0}, {40000, 1000}}, {0, 100000, 1000, 1000}).size(), 1U);
  // A block of 65,536 elements against a column shard: 65 of 100,000 rows.
  EXPECT_EQ(IntersectRuns(shape, {{0, 10}, {100000, 5}}, {65536 * 700, 1, 65536, 65536}).size(),
            65U);
  const std::vector<int64_t> experts = {1000, 1000, 100};
  EXPECT_EQ(IntersectRuns(experts, {{0, 0, 50}, {1000, 1000, 50}}, {900 * 100000, 1, 100, 100}),
            (Runs{{50, 900 * 50000, 0, 50}}));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 0.5);
}

TEST(ValidateRegion, NamesTheDimension) {
  EXPECT_TRUE(ValidateRegion("w", {4, 6}, {{0, 2}, {4, 4}}).ok());
  EXPECT_TRUE(ValidateRegion("w", {4, 6}, {{4, 0}, {0, 6}}).ok());
  for (const Region& region :
       {Region{{0, 3}, {4, 4}}, Region{{0, -1}, {4, 4}}, Region{{0, 0}, {4, -1}},
        Region{{0, 7}, {4, 0}}, Region{{0, 1}, {4, INT64_MAX}}}) {
    const Status status = ValidateRegion("h.0.w", {4, 6}, region);
    ASSERT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("h.0.w"), std::string::npos);
    EXPECT_NE(status.message().find("dimension 1"), std::string::npos) << status.message();
  }
  EXPECT_FALSE(ValidateRegion("w", {4, 6}, {{0}, {4}}).ok());
  EXPECT_FALSE(ValidateRegion("w", {4, 6}, {{0, 0}, {4}}).ok());
}

}  // namespace
}  // namespace dmuon
