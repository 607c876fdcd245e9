// What the CUDA backend keeps on the host between steps, which needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/execution.h"
#include "kernels/cuda/lru_cache.h"
#include "kernels/cuda/pipeline.h"
#include "kernels/cuda/step_block.h"

namespace dmuon::kernels::cuda {
namespace {

TEST(LruCache, ForgetsWhatWasUsedLongestAgo) {
  LruCache<int, std::string> cache(2);
  EXPECT_EQ(cache.Find(1), nullptr);
  cache.Insert(1, "one");
  cache.Insert(2, "two");
  ASSERT_NE(cache.Find(1), nullptr);  // now 2 is the oldest
  cache.Insert(3, "three");
  EXPECT_EQ(cache.size(), 2U);
  EXPECT_EQ(cache.Find(2), nullptr);
  EXPECT_EQ(*cache.Find(1), "one");
  EXPECT_EQ(*cache.Find(3), "three");
  cache.Clear();
  EXPECT_EQ(cache.Find(1), nullptr);
}

// Values own graphs and device memory: no copies, and those that go are destroyed at once.
TEST(LruCache, DestroysWhatItEvicts) {
  const auto watched = std::make_shared<int>(0);
  LruCache<int, std::unique_ptr<std::shared_ptr<int>>> cache(0);  // at least one entry
  cache.Insert(1, std::make_unique<std::shared_ptr<int>>(watched));
  EXPECT_EQ(watched.use_count(), 2);
  cache.Insert(2, nullptr);
  EXPECT_EQ(watched.use_count(), 1);
  EXPECT_EQ(cache.size(), 1U);
}

TEST(LruCache, ValuesStayInPlaceWhileOthersComeAndGo) {
  LruCache<int, int> cache(3);
  const int* place = &cache.Insert(1, 10);
  cache.Insert(2, 20);
  EXPECT_EQ(cache.Find(1), place);
  cache.Insert(3, 30);
  cache.Insert(4, 40);  // evicts 2
  EXPECT_EQ(cache.Find(1), place);
  EXPECT_EQ(*place, 10);
}

TEST(Pipeline, KeepsSlotsBusyAndInOrder) {
  for (const int64_t pieces : {0, 1, 2, 5}) {
    for (const int64_t slots : {1, 2, 3}) {
      std::vector<int64_t> queued;
      std::vector<int64_t> finished;
      std::size_t most = 0;
      RunPipelined(
          pieces, slots,
          [&](int64_t i) {
            queued.push_back(i);
            most = std::max(most, queued.size() - finished.size());
          },
          [&](int64_t i) {
            EXPECT_LT(i, static_cast<int64_t>(queued.size()));
            finished.push_back(i);
          });
      EXPECT_EQ(queued, finished);
      EXPECT_TRUE(std::is_sorted(queued.begin(), queued.end()));
      EXPECT_EQ(static_cast<int64_t>(queued.size()), pieces);
      EXPECT_EQ(static_cast<int64_t>(most), std::min(pieces, slots));
    }
  }
}

TEST(StepBlock, PartsAreAlignedAndApart) {
  for (const int64_t count : {1, 3, 64}) {
    const StepBlock block = StepBlockOf(count);
    EXPECT_GE(block.matrices, static_cast<int64_t>(sizeof(MuonFactors)));
    EXPECT_EQ(block.matrices % static_cast<int64_t>(alignof(MuonMatrix)), 0);
    EXPECT_EQ(block.flags - block.matrices, count * static_cast<int64_t>(sizeof(MuonMatrix)));
    EXPECT_EQ(block.flags % static_cast<int64_t>(alignof(int)), 0);
    EXPECT_EQ(block.bytes - block.flags, count * static_cast<int64_t>(sizeof(int)));
  }
}

// Every matrix is in one unit, units fit into the workspace, and no lane is without work.
TEST(Split, SharesOutABatch) {
  for (const bool batched : {false, true}) {
    for (const int lanes : {1, 4, 8}) {
      for (const int64_t count : {1, 2, 5, 16, 64}) {
        for (const int64_t fit : {0, 1, 3, 16, 1000}) {
          const Split split = SplitOf({0, batched, lanes}, count, 10, 10 * fit + 5);
          int64_t next = 0;
          for (int64_t unit = 0; unit < split.Units(count); ++unit) {
            const Range range = split.UnitRange(unit, count);
            EXPECT_EQ(range.begin, next);
            EXPECT_LE(range.size(), split.unit);
            next = range.end;
          }
          EXPECT_EQ(next, count);
          EXPECT_GE(split.lanes, 1);
          EXPECT_LE(split.lanes, lanes);
          EXPECT_LE(split.lanes, split.Units(count));
          EXPECT_LE(split.unit * split.lanes, std::max<int64_t>(fit, 1));
          EXPECT_EQ(split.unit == 1 || batched, true);
        }
      }
    }
  }
}

TEST(Split, DeterministicUnitsAreSingleMatrices) {
  EXPECT_EQ(SplitOf({256, false, 4}, 16, 1, 1000).unit, 1);
  EXPECT_EQ(SplitOf({256, true, 1}, 16, 1, 1000).unit, 16);
  EXPECT_EQ(SplitOf({256, true, 1}, 16, 1, 6).unit, 6);
}

TEST(ShippedExecution, SidesAreTiles) {
  static_assert(ShippedTileSide(1024) == 0);
  static_assert(ShippedTileSide(4096) % kTileUnit == 0 && ShippedTileSide(4096) < 4096);
  static_assert(ShippedLanes(128) == kMaxLanes && ShippedLanes(4096) <= kMaxLanes);
  for (const int64_t side : kTileSides) {
    EXPECT_EQ(side % kTileUnit, 0);
  }
}

}  // namespace
}  // namespace dmuon::kernels::cuda
