#include "scheduler/simple_bounds.h"

#include <algorithm>
#include <limits>

namespace dmuon::scheduler {
namespace {

// The least that all matrices of a kind can cost together.
double LeastTotal(const MatrixKind& kind) {
  double best_rate = std::numeric_limits<double>::infinity();
  for (uint32_t k = 1; k <= kind.count; ++k) {
    best_rate = std::min(best_rate, kind.seconds[k] / k);
  }
  return kind.count * best_rate;
}

// The least that a pattern costs which has at least one matrix of the kind.
double LeastOfOne(const MatrixKind& kind) {
  return *std::min_element(kind.seconds.begin() + 1, kind.seconds.end());
}

// The least cost of two matrices of kinds a and b on one owner.
double LeastOfTwo(const BalanceProblem& problem, size_t a, size_t b) {
  if (a != b) {
    return LeastOfOne(problem.kinds[a]) + LeastOfOne(problem.kinds[b]);
  }
  const std::vector<double>& seconds = problem.kinds[a].seconds;
  return *std::min_element(seconds.begin() + 2, seconds.end());
}

// Among the owners + 1 matrices of the kinds that are dearest, two share an owner.
double PairBound(const BalanceProblem& problem) {
  std::vector<size_t> order(problem.kinds.size());
  for (size_t kind = 0; kind < order.size(); ++kind) {
    order[kind] = kind;
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return LeastOfOne(problem.kinds[a]) > LeastOfOne(problem.kinds[b]);
  });
  uint64_t left = uint64_t{problem.owners} + 1;
  std::vector<std::pair<size_t, uint64_t>> dearest;  // kind and how many of it
  for (size_t i = 0; i < order.size() && left > 0; ++i) {
    const uint64_t taken = std::min<uint64_t>(left, problem.kinds[order[i]].count);
    dearest.emplace_back(order[i], taken);
    left -= taken;
  }
  if (left > 0) {
    return 0.0;
  }
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < dearest.size(); ++i) {
    for (size_t j = i; j < dearest.size(); ++j) {
      if (i != j || dearest[i].second > 1) {
        least = std::min(least, LeastOfTwo(problem, dearest[i].first, dearest[j].first));
      }
    }
  }
  return least;
}

}  // namespace

double SimpleBound(const BalanceProblem& problem) {
  double total = problem.filler_seconds;
  double dearest = 0.0;
  for (const MatrixKind& kind : problem.kinds) {
    total += LeastTotal(kind);
    dearest = std::max(dearest, LeastOfOne(kind));
  }
  return std::max({total / problem.owners, dearest, PairBound(problem)});
}

}  // namespace dmuon::scheduler
