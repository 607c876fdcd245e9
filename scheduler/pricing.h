// The pattern that is worth most at given prices: a knapsack over an owner's time. Internal to
// scheduler/.
#pragma once

#include <optional>
#include <vector>

#include "scheduler/balance.h"

namespace dmuon::scheduler {

// Value of a pattern: prices of its matrices less its own seconds in units of `cap`. Patterns of at
// most `cap` seconds, seconds on a grid of `cells`.
class PatternPricer {
 public:
  PatternPricer(const BalanceProblem& problem, double cap, int cells);

  // No pattern is worth more. Seconds are rounded down, and memory is left out of account.
  double BestValueAtMost(const std::vector<double>& prices);
  // A pattern that is worth much: seconds are rounded up, so that it keeps the cap. Keeps the
  // memory limit or is empty.
  Pattern GoodPattern(const std::vector<double>& prices);
  // All patterns within the cap and the memory limit that are worth at least `worth`, the empty one
  // included; nothing if they are more than `most`.
  std::optional<std::vector<Pattern>> PatternsWorth(const std::vector<double>& prices, double worth,
                                                    size_t most);

 private:
  void Fill(const std::vector<double>& prices, bool round_up);
  int CellsOf(size_t kind, uint32_t count, bool round_up) const;

  const BalanceProblem& problem_;
  double cap_;
  int cells_;
  std::vector<uint32_t> most_;               // of each kind within the cap
  std::vector<std::vector<double>> values_;  // best within each cell, after each kind
};

// All patterns of at most `cap` seconds that keep the memory limit, the empty one included; nothing
// if they are more than `most`.
std::optional<std::vector<Pattern>> AllPatterns(const BalanceProblem& problem, double cap,
                                                size_t most);

}  // namespace dmuon::scheduler
