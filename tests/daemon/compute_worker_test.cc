// The inbox, and the worker that is a thread behind one.
#include "daemon/compute_worker.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "daemon/inbox.h"

namespace dmuon {
namespace {

TEST(Inbox, RunsTasksInTheOrderOfPosting) {
  Inbox inbox;
  EXPECT_FALSE(inbox.RunAll());
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) inbox.Post([&order, i] { order.push_back(i); });
  EXPECT_TRUE(inbox.RunAll());
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_FALSE(inbox.RunAll());
}

// A task that posts does not keep the owner from its other work.
TEST(Inbox, WhatTasksPostRunsTheNextTime) {
  Inbox inbox;
  int ran = 0;
  inbox.Post([&] {
    ++ran;
    inbox.Post([&] { ++ran; });
  });
  EXPECT_TRUE(inbox.RunAll());
  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(inbox.RunAll());
  EXPECT_EQ(ran, 2);
}

TEST(Inbox, KeepsTheOrderOfEachThread) {
  constexpr int kThreads = 4;
  constexpr int kTasks = 500;
  Inbox inbox;
  std::vector<std::vector<int>> seen(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTasks; ++i) inbox.Post([&seen, t, i] { seen[t].push_back(i); });
    });
  }
  auto total = [&] {
    size_t sum = 0;
    for (const auto& own : seen) sum += own.size();
    return sum;
  };
  while (total() < static_cast<size_t>(kThreads * kTasks)) {
    if (!inbox.RunAll()) inbox.WaitFor(std::chrono::seconds(10));
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<int> expected(kTasks);
  std::iota(expected.begin(), expected.end(), 0);
  for (const auto& own : seen) EXPECT_EQ(own, expected);
}

TEST(Inbox, WaitEndsWithAPost) {
  Inbox inbox;
  auto begin = std::chrono::steady_clock::now();
  std::thread poster([&] { inbox.Post([] {}); });
  inbox.WaitFor(std::chrono::minutes(10));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(5));
  poster.join();
  EXPECT_TRUE(inbox.RunAll());
}

TEST(Inbox, WaitDoesNotSleepOverWhatIsThere) {
  Inbox inbox;
  inbox.Post([] {});
  auto begin = std::chrono::steady_clock::now();
  inbox.WaitFor(std::chrono::minutes(10));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(5));
}

TEST(ComputeWorker, RunsJobsInOrderOnOneOtherThread) {
  std::vector<int> order;
  std::set<std::thread::id> threads;
  {
    ComputeWorker worker;
    for (int i = 0; i < 100; ++i) {
      worker.Post([&, i] {
        order.push_back(i);
        threads.insert(std::this_thread::get_id());
      });
    }
  }  // finishes what was posted
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
  ASSERT_EQ(threads.size(), 1U);
  EXPECT_NE(*threads.begin(), std::this_thread::get_id());
}

TEST(ComputeWorker, ComesBackThroughTheInbox) {
  Inbox inbox;
  ComputeWorker worker;
  std::thread::id computed_on;
  std::thread::id done_on;
  worker.Post([&] {
    computed_on = std::this_thread::get_id();
    inbox.Post([&] { done_on = std::this_thread::get_id(); });
  });
  while (!inbox.RunAll()) inbox.WaitFor(std::chrono::seconds(10));
  EXPECT_EQ(done_on, std::this_thread::get_id());
  EXPECT_NE(computed_on, done_on);
}

}  // namespace
}  // namespace dmuon
