// Whether a makespan can be excluded: the linear program over all patterns, with columns made as
// they are needed. Internal to scheduler/.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "scheduler/pattern_program.h"

namespace dmuon::scheduler {

class PatternPool {
 public:
  explicit PatternPool(const BalanceProblem& problem) : problem_(problem) {}

  // All patterns of at most `cap` seconds, if they are not too many; then no others are made.
  bool AddAll(double cap);
  // False where it is there already.
  bool Add(const Pattern& pattern);

  const std::vector<PatternColumn>& columns() const { return columns_; }  // costs in seconds
  bool complete() const { return complete_; }

 private:
  const BalanceProblem& problem_;
  std::set<Pattern> known_;
  std::vector<PatternColumn> columns_;
  bool complete_ = false;
};

enum class Verdict {
  kExcluded,  // proven: every distribution is longer
  kOpen,      // fractional uses of patterns reach it
  kStopped,
};

// Judges the makespan `cap` and adds to `pool` the patterns that it needed.
Verdict JudgeMakespan(const BalanceProblem& problem, double cap, const std::function<bool()>& stop,
                      PatternPool* pool);

// Adds the patterns to `pool` that are nearly worth their owner at the prices of the linear program
// of `cap`. True where these are all that a distribution within `cap` can have: then the integer
// program of the pool decides about `cap`.
bool EnrichPool(const BalanceProblem& problem, double cap, const std::function<bool()>& stop,
                PatternPool* pool);

// The program of the pool's patterns of at most `cap` seconds; `indices` are theirs in the pool.
// `exact` as in PatternDemand.
std::unique_ptr<PatternProgram> ProgramOf(const BalanceProblem& problem, const PatternPool& pool,
                                          double cap, bool exact, std::vector<size_t>* indices);

}  // namespace dmuon::scheduler
