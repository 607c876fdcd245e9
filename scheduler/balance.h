// Which owner gets how many matrices of each kind: the optimisation problem behind a plan, without
// names. Model and bounds: scheduler/README.md.
//
// Owners are alike and so are the matrices of a kind. What one owner gets is a pattern: a count of
// each kind. Everything here is deterministic, but for a stop by the clock, which is reported.
#pragma once

#include <cstdint>
#include <vector>

namespace dmuon::scheduler {

// Counts, by kind.
using Pattern = std::vector<uint32_t>;

// Matrices that are one batch where they are on one owner.
struct MatrixKind {
  uint32_t count = 0;
  std::vector<double> seconds;  // of k matrices on one owner, k = 0..count; seconds[0] is 0
  int64_t bytes = 0;            // that one takes of an owner's memory
};

struct BalanceProblem {
  uint32_t owners = 1;
  std::vector<MatrixKind> kinds;
  double filler_seconds = 0.0;  // elementwise work, divisible over owners at will
  int64_t filler_bytes = 0;
  int64_t memory_limit = 0;  // bytes of one owner; 0: none
};

struct BalanceLimits {
  int nodes = 2000;       // of branch and bound, for each integer program
  double seconds = 10.0;  // of wall clock, in all
};

struct Balance {
  std::vector<Pattern> owners;  // one each
  std::vector<Pattern> greedy;  // LPT's answer; empty where that finds no room
  double lower_bound = 0.0;     // proven: no distribution is shorter
  bool stopped_by_clock = false;
};

// Never longer than greedy's answer. Throws std::invalid_argument where the memory limit cannot be
// kept, or where nothing that keeps it was found; the message says which.
Balance SolveBalance(const BalanceProblem& problem, const BalanceLimits& limits);

double SecondsOf(const BalanceProblem& problem, const Pattern& pattern);
int64_t BytesOf(const BalanceProblem& problem, const Pattern& pattern);
bool FitsMemory(const BalanceProblem& problem, const Pattern& pattern);

// The busiest owner's seconds after the filler has been poured over the least loaded owners.
double MakespanOf(const BalanceProblem& problem, const std::vector<Pattern>& owners);

}  // namespace dmuon::scheduler
