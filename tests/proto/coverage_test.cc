#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>

#include "proto/region.h"

namespace dmuon {
namespace {

std::vector<Region> RowShards(int64_t rows, int64_t cols, int64_t trainers) {
  std::vector<Region> regions;
  const int64_t each = (rows + trainers - 1) / trainers;
  for (int64_t trainer = 0; trainer < trainers; ++trainer) {
    const int64_t start = std::min(rows, trainer * each);
    regions.push_back({{start, 0}, {std::min(each, rows - start), cols}});
  }
  return regions;
}

// cases.md row 21.
TEST(ValidateCoverage, AcceptsUnevenShards) {
  EXPECT_TRUE(ValidateCoverage("w", {72, 5}, RowShards(72, 5, 16)).ok());
  EXPECT_TRUE(ValidateCoverage("w", {3, 5}, RowShards(3, 5, 4)).ok());
}

TEST(ValidateCoverage, AcceptsReplicasAndGrids) {
  const std::vector<int64_t> shape = {4, 6};
  EXPECT_TRUE(ValidateCoverage("w", shape, std::vector(3, Region::Whole(shape))).ok());
  EXPECT_TRUE(
      ValidateCoverage("w", shape,
                       {{{0, 0}, {2, 3}}, {{2, 0}, {2, 3}}, {{0, 3}, {2, 3}}, {{2, 3}, {2, 3}}})
          .ok());
  // Twice everywhere, but cut differently: rows by two, columns by two.
  EXPECT_TRUE(
      ValidateCoverage("w", shape,
                       {{{0, 0}, {1, 6}}, {{1, 0}, {3, 6}}, {{0, 0}, {4, 2}}, {{0, 2}, {4, 4}}})
          .ok());
}

std::string Refusal(const std::vector<int64_t>& shape, const std::vector<Region>& regions) {
  const Status status = ValidateCoverage("h.0.w", shape, regions);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("h.0.w"), std::string::npos);
  return status.message();
}

TEST(ValidateCoverage, NamesTheRows) {
  EXPECT_NE(Refusal({10, 2}, {{{0, 0}, {4, 2}}, {{6, 0}, {4, 2}}}).find("rows 4 to 5"),
            std::string::npos);
  EXPECT_NE(Refusal({10, 2}, {{{0, 0}, {6, 2}}, {{5, 0}, {5, 2}}}).find("row 5: 2"),
            std::string::npos);
  EXPECT_NE(Refusal({10, 2}, {{{0, 0}, {10, 1}}}).find("rows 0 to 9"), std::string::npos);
  EXPECT_NE(Refusal({10, 2}, {}).find("no trainer"), std::string::npos);
  EXPECT_NE(Refusal({10, 2}, {{{0, 0}, {11, 2}}}).find("dimension 0"), std::string::npos);
}

TEST(ValidateCoverage, MatchesCountingEveryElement) {
  std::mt19937 random(1);
  const std::vector<int64_t> shape = {2, 3, 2};
  int even = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<Region> regions(1 + random() % 4);
    std::vector<int> contributors(12, 0);
    for (Region& region : regions) {
      region = Region::Whole(shape);
      for (size_t d = 0; d < 3; ++d) {
        const auto extent = static_cast<uint64_t>(shape[d]);
        if (random() % 3 == 0) {
          region.start[d] = static_cast<int64_t>(random() % extent);
          region.extent[d] = static_cast<int64_t>(
              random() % (extent - static_cast<uint64_t>(region.start[d]) + 1));
        }
      }
      for (int64_t e = 0; e < 12; ++e) {
        const int64_t index[3] = {e / 6, e / 2 % 3, e % 2};
        bool inside = true;
        for (size_t d = 0; d < 3; ++d) {
          inside = inside && index[d] >= region.start[d] &&
                   index[d] < region.start[d] + region.extent[d];
        }
        contributors[static_cast<size_t>(e)] += inside ? 1 : 0;
      }
    }
    const bool expected =
        contributors[0] > 0 &&
        std::count(contributors.begin(), contributors.end(), contributors[0]) == 12;
    ASSERT_EQ(ValidateCoverage("w", shape, regions).ok(), expected) << round;
    even += expected ? 1 : 0;
  }
  EXPECT_GT(even, 100);
}

TEST(ValidateCoverage, IsQuickForManyTrainers) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Region> regions = RowShards(1 << 20, 512, 4096);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(ValidateCoverage("w", {1 << 20, 512}, regions).ok());
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 5.0);
}

}  // namespace
}  // namespace dmuon
