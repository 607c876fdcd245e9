// What the CUDA backend keeps on the host between steps, which needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/execution.h"
#include "kernels/cuda/execution_choices.h"
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
  for (const int64_t per_call : {0, 1, 3}) {
    for (const int lanes : {1, 4, 8}) {
      for (const int64_t count : {1, 2, 5, 16, 64}) {
        for (const int64_t fit : {0, 1, 3, 16, 1000}) {
          const Split split = SplitOf({0, per_call, lanes}, count, 10, 10 * fit + 5);
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
          EXPECT_TRUE(per_call == 0 || split.unit <= per_call);
        }
      }
    }
  }
}

TEST(Split, DeterministicUnitsAreSingleMatrices) {
  EXPECT_EQ(SplitOf({256, 1, 4}, 16, 1, 1000).unit, 1);
  EXPECT_EQ(SplitOf({256, 0, 1}, 16, 1, 1000).unit, 16);
  EXPECT_EQ(SplitOf({256, 0, 1}, 16, 1, 6).unit, 6);
}

TEST(ShippedExecution, SidesAreTiles) {
  static_assert(ShippedTileSide(1024) == 0);
  static_assert(ShippedTileSide(4096) % kTileUnit == 0 && ShippedTileSide(4096) < 4096);
  static_assert(ShippedLanes(128) == kMaxLanes && ShippedLanes(4096) <= kMaxLanes);
}

// What the tuner may choose without a change of bits: how many streams, never how it is added.
TEST(CudaChoices, DeterministicOnesDifferInLanesOnly) {
  const std::vector<MuonExecution> choices = CudaCandidates(true, {2048, 5464}, 5);
  EXPECT_EQ(choices.front(), MuonExecution());
  std::vector<int> lanes;
  const Execution shipped = ExecutionOf({}, {2048, 5464}, choices.front());
  EXPECT_EQ(shipped.per_call, 1);
  for (const MuonExecution& choice : choices) {
    ValidateCudaExecution(true, choice);
    Execution execution = ExecutionOf({}, {2048, 5464}, choice);
    lanes.push_back(execution.lanes);
    execution.lanes = shipped.lanes;
    EXPECT_EQ(execution, shipped);
  }
  EXPECT_EQ(lanes, (std::vector<int>{4, 1, 2}));  // 8 would leave lanes without work
}

TEST(CudaChoices, OthersChooseTilesAndCalls) {
  const CudaDeviceOptions options{.deterministic = false};
  const std::vector<MuonExecution> choices = CudaCandidates(false, {1024, 1024}, 16);
  EXPECT_EQ(choices.front(), MuonExecution());
  std::vector<Execution> executions;
  for (const MuonExecution& choice : choices) {
    ValidateCudaExecution(false, choice);
    const Execution execution = ExecutionOf(options, {1024, 1024}, choice);
    EXPECT_EQ(std::count(executions.begin(), executions.end(), execution), 0) << TextOf(choice);
    executions.push_back(execution);
  }
  EXPECT_EQ(executions.front(), (Execution{256, 0, 1}));
  EXPECT_EQ(std::count(executions.begin(), executions.end(), Execution{0, 0, 1}), 1);
  EXPECT_EQ(std::count(executions.begin(), executions.end(), Execution{512, 0, 1}), 1);
  EXPECT_EQ(std::count(executions.begin(), executions.end(), Execution{256, 1, 4}), 1);
}

TEST(CudaChoices, AStatedTileSideIsKept) {
  EXPECT_EQ(ExecutionOf({.tile_side = 0}, {4096, 4096}, {}).tile_side, 0);
  EXPECT_EQ(ExecutionOf({.tile_side = 16}, {64, 64}, {}).tile_side, 16);
}

TEST(CudaChoices, WhatItDoesNotHaveIsRefusedByName) {
  const auto refused = [](bool deterministic, const MuonExecution& choice) {
    try {
      ValidateCudaExecution(deterministic, choice);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what()).find(TextOf(choice)) != std::string::npos;
    }
    return false;
  };
  EXPECT_TRUE(refused(true, {.symmetric_tile = 256}));
  EXPECT_TRUE(refused(true, {.part = 4}));
  EXPECT_TRUE(refused(true, {.lanes = kMaxLanes + 1}));
  EXPECT_TRUE(refused(true, {.product_tile = 128}));
  EXPECT_TRUE(refused(true, {.sharing = 1}));
  EXPECT_TRUE(refused(false, {.symmetric_tile = 24}));
  EXPECT_TRUE(refused(false, {.part = -1}));
  EXPECT_FALSE(refused(true, {.lanes = 2}));
  EXPECT_FALSE(refused(false, {.symmetric_tile = 256, .part = 4}));
}

}  // namespace
}  // namespace dmuon::kernels::cuda
