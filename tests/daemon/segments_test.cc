#include "daemon/session/segments.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/daemon/bucket_support.h"

namespace dmuon {
namespace {

// What segments must say, element by element: for each element of the piece its contributors and
// their packed offsets.
std::vector<std::vector<SegmentSource>> BruteForce(const std::vector<int64_t>& shape,
                                                   const StridedMatrix& piece,
                                                   const std::vector<Region>& regions) {
  std::vector<std::vector<SegmentSource>> sources(piece.elements());
  for (uint32_t trainer = 0; trainer < regions.size(); ++trainer) {
    int64_t packed = 0;
    for (int64_t i = 0; i < piece.elements(); ++i) {
      int64_t element = piece.base + i / piece.cols * piece.row_stride + i % piece.cols;
      if (test::Contains(shape, regions[trainer], element))
        sources[i].push_back({trainer, packed++});
    }
  }
  return sources;
}

void ExpectMatches(const std::vector<int64_t>& shape, const StridedMatrix& piece,
                   const std::vector<Region>& regions) {
  auto expected = BruteForce(shape, piece, regions);
  std::vector<std::vector<SegmentSource>> actual(expected.size());
  int64_t end = 0;
  for (const Segment& segment : MakeSegments(shape, piece, regions)) {
    ASSERT_GE(segment.begin, end) << "segments overlap or are out of order";
    ASSERT_GT(segment.length, 0);
    ASSERT_FALSE(segment.sources.empty());
    end = segment.begin + segment.length;
    ASSERT_LE(end, piece.elements());
    for (int64_t i = 0; i < segment.length; ++i) {
      for (const SegmentSource& source : segment.sources) {
        actual[segment.begin + i].push_back({source.trainer, source.packed + i});
      }
    }
  }
  ASSERT_EQ(actual, expected);
}

Region RandomBox(const std::vector<int64_t>& shape, std::mt19937& random) {
  Region region;
  for (int64_t extent : shape) {
    int64_t start = std::uniform_int_distribution<int64_t>(0, extent)(random);
    region.start.push_back(start);
    region.extent.push_back(std::uniform_int_distribution<int64_t>(0, extent - start)(random));
    if (random() % 3 == 0) {  // whole dimensions are common
      region.start.back() = 0;
      region.extent.back() = extent;
    }
  }
  return region;
}

TEST(Segments, MatchBruteForceOverBoxesAndViews) {
  const char* parameters[] = {
      R"({"name": "p", "shape": [6, 5]})",
      R"({"name": "p", "shape": [9, 4], "view": {"split_rows": [4, 2, 3]}})",
      R"({"name": "p", "shape": [4, 9], "view": {"split_cols": [2, 7]}})",
      R"({"name": "p", "shape": [8, 3], "view": {"interleave_rows": 2}})",
      R"({"name": "p", "shape": [3, 4, 5], "view": "stack"})",
      R"({"name": "p", "shape": [4, 2, 3, 2], "view": "flatten"})",
      R"({"name": "p", "shape": [2, 6, 4], "view": {"stack": true, "split_rows": [1, 5]}})",
      R"({"name": "p", "shape": [2, 4, 2, 3], "view": {"stack": true, "flatten": true}})",
  };
  std::mt19937 random(20240607);
  for (const char* text : parameters) {
    SessionSpec spec = ParseSessionSpec(std::string(R"({"parameters": [)") + text + "]}");
    const ParameterSpec& parameter = spec.parameters.front();
    for (int round = 0; round < 60; ++round) {
      std::vector<Region> regions(1 + random() % 4);
      for (Region& region : regions) region = RandomBox(parameter.shape, random);
      for (const StridedMatrix& piece : MatricesOf(parameter)) {
        ExpectMatches(parameter.shape, piece, regions);
        ASSERT_FALSE(HasFatalFailure()) << text << ", round " << round;
      }
    }
  }
}

TEST(Segments, MatchBruteForceOverElementwiseBlocks) {
  std::mt19937 random(7);
  const std::vector<int64_t> shape{7, 3, 5};
  for (int round = 0; round < 60; ++round) {
    std::vector<Region> regions(1 + random() % 5);
    for (Region& region : regions) region = RandomBox(shape, random);
    for (int64_t begin = 0; begin < 105; begin += 32) {
      int64_t count = std::min<int64_t>(32, 105 - begin);
      ExpectMatches(shape, {begin, 1, count, count}, regions);
      ASSERT_FALSE(HasFatalFailure()) << "round " << round;
    }
  }
}

// What is one run for everybody is one copy.
TEST(Segments, ReplicasAreOneSegment) {
  std::vector<int64_t> shape{40, 30};
  std::vector<Region> regions(3, Region::Whole(shape));
  auto segments = MakeSegments(shape, {0, 40, 30, 30}, regions);
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_EQ(segments[0], (Segment{0, 1200, {{0, 0}, {1, 0}, {2, 0}}}));
}

TEST(Segments, RowShardsAreOneSegmentEach) {
  auto segments = MakeSegments({5, 10}, {0, 5, 10, 10},
                               {{{0, 0}, {2, 10}}, {{2, 0}, {0, 10}}, {{2, 0}, {3, 10}}});
  ASSERT_EQ(segments.size(), 2U);
  EXPECT_EQ(segments[0], (Segment{0, 20, {{0, 0}}}));
  EXPECT_EQ(segments[1], (Segment{20, 30, {{2, 0}}}));
}

TEST(Segments, ColumnShardsAreOneSegmentARow) {
  auto segments = MakeSegments({2, 4}, {0, 2, 4, 4}, {{{0, 0}, {2, 2}}, {{0, 2}, {2, 2}}});
  ASSERT_EQ(segments.size(), 4U);
  EXPECT_EQ(segments[1], (Segment{2, 2, {{1, 0}}}));
  EXPECT_EQ(segments[2], (Segment{4, 2, {{0, 2}}}));
}

TEST(ReductionGroups, PutsTrainersOfOneHostTogether) {
  using Groups = std::vector<std::vector<uint32_t>>;
  EXPECT_EQ(ReductionGroups({"a"}), (Groups{{0}}));
  EXPECT_EQ(ReductionGroups({"a", "a", "a"}), (Groups{{0, 1, 2}}));
  EXPECT_EQ(ReductionGroups({"a", "a", "b", "b"}), (Groups{{0, 1}, {2, 3}}));
}

// Nodes in the order of their first trainer, whatever their names; ranks may be spread round-robin.
TEST(ReductionGroups, OrdersHostsByTheirFirstTrainer) {
  using Groups = std::vector<std::vector<uint32_t>>;
  EXPECT_EQ(ReductionGroups({"z", "a", "z", "m", "a"}), (Groups{{0, 2}, {1, 4}, {3}}));
}

}  // namespace
}  // namespace dmuon
