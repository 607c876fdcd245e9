#include "kernels/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>
#include <vector>

namespace dmuon::kernels::testing {
namespace {

TEST(ThreadPool, RunsEachIterationOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<int> runs(count);
      pool.ParallelFor(count, [&](int64_t index, int) { ++runs[index]; });
      EXPECT_EQ(runs, std::vector<int>(count, 1));
    }
  }
}

TEST(ThreadPool, WorkersAreInRangeAndExclusive) {
  ThreadPool pool(4);
  std::vector<int64_t> per_worker(4);  // a race here is one that the thread sanitizer sees
  for (int round = 0; round < 200; ++round) {
    pool.ParallelFor(64, [&](int64_t, int worker) { ++per_worker.at(worker); });
  }
  EXPECT_EQ(std::accumulate(per_worker.begin(), per_worker.end(), int64_t{0}), 200 * 64);
}

TEST(ThreadPool, LoopsFollowEachOther) {
  ThreadPool pool(3);
  std::vector<int64_t> values(100, 0);
  for (int round = 0; round < 2000; ++round) {
    pool.ParallelFor(100, [&](int64_t index, int) { values[index] += index; });
  }
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(values[i], 2000 * i);
  }
}

TEST(ThreadPool, PassesOnAnException) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const auto fail = [](int64_t index, int) {
      if (index == 5) {
        throw std::runtime_error("iteration 5");
      }
    };
    EXPECT_THROW(pool.ParallelFor(50, fail), std::runtime_error);
    int64_t sum = 0;
    pool.ParallelFor(1, [&](int64_t, int) { ++sum; });
    EXPECT_EQ(sum, 1);
    std::vector<int> runs(10);
    pool.ParallelFor(10, [&](int64_t index, int) { ++runs[index]; });
    EXPECT_EQ(runs, std::vector<int>(10, 1));
  }
}

TEST(ThreadPool, NeedsAThread) { EXPECT_THROW(ThreadPool(0), std::invalid_argument); }

}  // namespace
}  // namespace dmuon::kernels::testing
