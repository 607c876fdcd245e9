#include <algorithm>

#include "scheduler/balance.h"

namespace dmuon::scheduler {

double SecondsOf(const BalanceProblem& problem, const Pattern& pattern) {
  double seconds = 0.0;
  for (size_t kind = 0; kind < pattern.size(); ++kind) {
    seconds += problem.kinds[kind].seconds[pattern[kind]];
  }
  return seconds;
}

int64_t BytesOf(const BalanceProblem& problem, const Pattern& pattern) {
  int64_t bytes = 0;
  for (size_t kind = 0; kind < pattern.size(); ++kind) {
    bytes += problem.kinds[kind].bytes * static_cast<int64_t>(pattern[kind]);
  }
  return bytes;
}

bool FitsMemory(const BalanceProblem& problem, const Pattern& pattern) {
  return problem.memory_limit == 0 || BytesOf(problem, pattern) <= problem.memory_limit;
}

// Where the filler reaches above the busiest owner, all owners stand at the mean.
double MakespanOf(const BalanceProblem& problem, const std::vector<Pattern>& owners) {
  double busiest = 0.0;
  double total = problem.filler_seconds;
  for (const Pattern& pattern : owners) {
    const double seconds = SecondsOf(problem, pattern);
    busiest = std::max(busiest, seconds);
    total += seconds;
  }
  return std::max(busiest, total / problem.owners);
}

}  // namespace dmuon::scheduler
