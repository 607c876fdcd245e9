#include "scheduler/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <stdexcept>

namespace dmuon::scheduler {
namespace {

// Every distribution, one owner after the other. Knows nothing of the solver.
class BruteForce {
 public:
  explicit BruteForce(const BalanceProblem& problem) : problem_(problem) {
    for (const MatrixKind& kind : problem.kinds) {
      left_.push_back(kind.count);
    }
  }

  // The shortest makespan; infinity where the memory limit cannot be kept.
  double Best() {
    Owner(0, 0.0, 0.0);
    return best_;
  }

 private:
  void Owner(uint32_t owner, double busiest, double total) {
    if (busiest >= best_) {
      return;
    }
    if (owner == problem_.owners) {
      if (std::all_of(left_.begin(), left_.end(), [](uint32_t left) { return left == 0; })) {
        best_ =
            std::min(best_, std::max(busiest, (total + problem_.filler_seconds) / problem_.owners));
      }
      return;
    }
    Kind(owner, 0, busiest, total, 0.0, 0);
  }

  void Kind(uint32_t owner, size_t kind, double busiest, double total, double seconds,
            int64_t bytes) {
    if (problem_.memory_limit > 0 && bytes > problem_.memory_limit) {
      return;
    }
    if (kind == left_.size()) {
      Owner(owner + 1, std::max(busiest, seconds), total + seconds);
      return;
    }
    const uint32_t most = left_[kind];
    // The last owner takes all that is left.
    for (uint32_t count = owner + 1 == problem_.owners ? most : 0; count <= most; ++count) {
      left_[kind] = most - count;
      Kind(owner, kind + 1, busiest, total, seconds + problem_.kinds[kind].seconds[count],
           bytes + problem_.kinds[kind].bytes * count);
    }
    left_[kind] = most;
  }

  const BalanceProblem& problem_;
  std::vector<uint32_t> left_;
  double best_ = std::numeric_limits<double>::infinity();
};

class Instances {
 public:
  explicit Instances(unsigned seed) : random_(seed) {}

  // At most 4 owners and `most` matrices; a batch costs a start and something for each matrix,
  // which may fall or even jump back.
  BalanceProblem Next(int most) {
    BalanceProblem problem;
    problem.owners = static_cast<uint32_t>(Integer(1, 4));
    int matrices = Integer(1, most);
    while (matrices > 0) {
      const int count = Integer(1, std::min(matrices, 5));
      matrices -= count;
      problem.kinds.push_back(Kind(static_cast<uint32_t>(count)));
    }
    return problem;
  }

  int Integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  double Real(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }

 private:
  MatrixKind Kind(uint32_t count) {
    MatrixKind kind;
    kind.count = count;
    kind.bytes = Integer(1, 100);
    kind.seconds = {0.0};
    const double start = Real(0.0, 5.0);
    double seconds = start;
    const double each = Real(0.1, 10.0);
    for (uint32_t k = 1; k <= count; ++k) {
      seconds += each * Real(0.0, 2.0);
      kind.seconds.push_back(Integer(0, 9) == 0 ? 0.8 * seconds : seconds);
    }
    return kind;
  }

  std::mt19937 random_;
};

uint64_t CountOf(const std::vector<Pattern>& owners, size_t kind) {
  uint64_t count = 0;
  for (const Pattern& pattern : owners) {
    count += pattern[kind];
  }
  return count;
}

void ExpectValid(const BalanceProblem& problem, const Balance& balance) {
  ASSERT_EQ(balance.owners.size(), problem.owners);
  for (size_t kind = 0; kind < problem.kinds.size(); ++kind) {
    EXPECT_EQ(CountOf(balance.owners, kind), problem.kinds[kind].count);
  }
  for (const Pattern& pattern : balance.owners) {
    EXPECT_TRUE(FitsMemory(problem, pattern));
  }
  if (!balance.greedy.empty()) {
    EXPECT_LE(MakespanOf(problem, balance.owners), MakespanOf(problem, balance.greedy));
  }
  EXPECT_FALSE(balance.stopped_by_clock);
}

TEST(Balance, EqualsBruteForce) {
  Instances instances(1);
  int better_than_greedy = 0;
  for (int i = 0; i < 1000; ++i) {
    SCOPED_TRACE(i);
    const BalanceProblem problem = instances.Next(12);
    const Balance balance = SolveBalance(problem, {});
    ExpectValid(problem, balance);
    const double best = BruteForce(problem).Best();
    const double makespan = MakespanOf(problem, balance.owners);
    ASSERT_NEAR(makespan, best, 1e-9 * best);
    ASSERT_NEAR(balance.lower_bound, best, 1e-9 * best);
    better_than_greedy += MakespanOf(problem, balance.greedy) > makespan * (1.0 + 1e-9) ? 1 : 0;
  }
  EXPECT_GT(better_than_greedy, 100);  // else LPT alone would pass this test
}

TEST(Balance, EqualsBruteForceWithFiller) {
  Instances instances(2);
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    BalanceProblem problem = instances.Next(8);
    problem.filler_seconds = instances.Real(0.0, 40.0);
    const Balance balance = SolveBalance(problem, {});
    ExpectValid(problem, balance);
    const double best = BruteForce(problem).Best();
    ASSERT_NEAR(MakespanOf(problem, balance.owners), best, 1e-6 * best);
    ASSERT_NEAR(balance.lower_bound, best, 2e-6 * best);
    ASSERT_LE(balance.lower_bound, best * (1.0 + 1e-9));
  }
}

// Limits between what the largest owner of LPT needs and what no distribution can keep.
TEST(Balance, EqualsBruteForceUnderAMemoryLimit) {
  Instances instances(3);
  int kept = 0;
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE(i);
    BalanceProblem problem = instances.Next(9);
    int64_t total = 0;
    for (const MatrixKind& kind : problem.kinds) {
      total += kind.bytes * kind.count;
    }
    problem.memory_limit = total / problem.owners + instances.Integer(0, 60);
    const double best = BruteForce(problem).Best();
    if (best == std::numeric_limits<double>::infinity()) {
      EXPECT_THROW(SolveBalance(problem, {}), std::invalid_argument);
      ++refused;
      continue;
    }
    ++kept;
    const Balance balance = SolveBalance(problem, {});
    ExpectValid(problem, balance);
    ASSERT_NEAR(MakespanOf(problem, balance.owners), best, 1e-9 * best);
  }
  EXPECT_GT(kept, 50);
  EXPECT_GT(refused, 20);
}

TEST(Balance, IsReproducible) {
  Instances instances(4);
  for (int i = 0; i < 20; ++i) {
    const BalanceProblem problem = instances.Next(12);
    EXPECT_EQ(SolveBalance(problem, {}).owners, SolveBalance(problem, {}).owners);
  }
}

// A start of 10 and 1 each: kinds are best kept together, which no rule by single costs sees.
TEST(Balance, KeepsBatchesTogether) {
  BalanceProblem problem;
  problem.owners = 2;
  for (int kind = 0; kind < 2; ++kind) {
    MatrixKind entry;
    entry.count = 6;
    for (uint32_t k = 0; k <= entry.count; ++k) {
      entry.seconds.push_back(k == 0 ? 0.0 : 10.0 + k);
    }
    problem.kinds.push_back(entry);
  }
  const Balance balance = SolveBalance(problem, {});
  EXPECT_DOUBLE_EQ(MakespanOf(problem, balance.owners), 16.0);
  EXPECT_DOUBLE_EQ(balance.lower_bound, 16.0);
  EXPECT_DOUBLE_EQ(MakespanOf(problem, balance.greedy), 26.0);
}

TEST(Balance, SaysWhyMemoryDoesNotSuffice) {
  BalanceProblem problem;
  problem.owners = 2;
  problem.kinds = {{3, {0.0, 1.0, 2.0, 3.0}, 100}};
  problem.memory_limit = 99;
  const auto message = [&problem] {
    try {
      SolveBalance(problem, {});
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  EXPECT_NE(message().find("one matrix needs 100 bytes"), std::string::npos);
  problem.memory_limit = 149;
  EXPECT_NE(message().find("no room for the 300 bytes"), std::string::npos);
  problem.memory_limit = 199;  // room for 1.99 each, but a matrix is whole
  EXPECT_NE(message().find("no distribution"), std::string::npos);
  problem.memory_limit = 200;
  EXPECT_EQ(SolveBalance(problem, {}).owners.size(), 2U);
}

}  // namespace
}  // namespace dmuon::scheduler
