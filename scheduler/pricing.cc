#include "scheduler/pricing.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace dmuon::scheduler {
namespace {

// Slack of comparisons with a cap, relative: sums of costs are rounded.
constexpr double kRounding = 1e-12;

}  // namespace

PatternPricer::PatternPricer(const BalanceProblem& problem, double cap, int cells)
    : problem_(problem), cap_(cap * (1.0 + kRounding)), cells_(cells) {
  for (const MatrixKind& kind : problem.kinds) {
    uint32_t most = 0;
    for (uint32_t count = 1; count <= kind.count; ++count) {
      if (kind.seconds[count] <= cap_) {
        most = count;
      }
    }
    most_.push_back(most);
  }
  values_.assign(problem.kinds.size() + 1, std::vector<double>(static_cast<size_t>(cells) + 1));
}

int PatternPricer::CellsOf(size_t kind, uint32_t count, bool round_up) const {
  const double cells = problem_.kinds[kind].seconds[count] / cap_ * cells_;
  return static_cast<int>(round_up ? std::ceil(cells * (1.0 - kRounding)) : std::floor(cells));
}

void PatternPricer::Fill(const std::vector<double>& prices, bool round_up) {
  std::fill(values_[0].begin(), values_[0].end(), 0.0);
  for (size_t kind = 0; kind < problem_.kinds.size(); ++kind) {
    const double* before = values_[kind].data();
    double* after = values_[kind + 1].data();
    std::copy(before, before + cells_ + 1, after);
    const std::vector<double>& seconds = problem_.kinds[kind].seconds;
    for (uint32_t count = 1; count <= most_[kind]; ++count) {
      const double value = prices[kind] * count - seconds[count] / cap_;
      const int width = CellsOf(kind, count, round_up);
      if (value <= 0.0) {
        continue;
      }
      for (int cell = width; cell <= cells_; ++cell) {
        const double candidate = before[cell - width] + value;
        after[cell] = candidate > after[cell] ? candidate : after[cell];
      }
    }
  }
}

double PatternPricer::BestValueAtMost(const std::vector<double>& prices) {
  Fill(prices, /*round_up=*/false);
  return values_.back().back();
}

Pattern PatternPricer::GoodPattern(const std::vector<double>& prices) {
  Fill(prices, /*round_up=*/true);
  Pattern pattern(problem_.kinds.size(), 0);
  int cell = cells_;
  for (size_t kind = pattern.size(); kind > 0; --kind) {
    const std::vector<double>& seconds = problem_.kinds[kind - 1].seconds;
    double best = values_[kind - 1][static_cast<size_t>(cell)];
    int best_width = 0;
    for (uint32_t count = 1; count <= most_[kind - 1]; ++count) {
      const int width = CellsOf(kind - 1, count, /*round_up=*/true);
      if (width > cell) {
        continue;
      }
      const double value = values_[kind - 1][static_cast<size_t>(cell - width)] +
                           (prices[kind - 1] * count - seconds[count] / cap_);
      if (value > best) {
        best = value;
        best_width = width;
        pattern[kind - 1] = count;
      }
    }
    cell -= best_width;
  }
  return FitsMemory(problem_, pattern) ? pattern : Pattern(pattern.size(), 0);
}

// Depth first from the last kind; what the kinds before can add at most is in the table.
std::optional<std::vector<Pattern>> PatternPricer::PatternsWorth(const std::vector<double>& prices,
                                                                 double worth, size_t most) {
  Fill(prices, /*round_up=*/false);
  std::vector<Pattern> patterns;
  Pattern pattern(problem_.kinds.size(), 0);
  bool complete = true;
  const std::function<void(size_t, int, double)> extend = [&](size_t kinds, int cells,
                                                              double value) {
    if (value + values_[kinds][static_cast<size_t>(cells)] < worth || !complete) {
      return;
    }
    if (kinds == 0) {
      if (SecondsOf(problem_, pattern) <= cap_ && FitsMemory(problem_, pattern)) {
        complete = patterns.size() < most;
        patterns.push_back(pattern);
      }
      return;
    }
    const size_t kind = kinds - 1;
    for (uint32_t count = 0; count <= most_[kind]; ++count) {
      const int left = cells - CellsOf(kind, count, /*round_up=*/false);
      if (left >= 0) {
        pattern[kind] = count;
        extend(kind, left,
               value + prices[kind] * count - problem_.kinds[kind].seconds[count] / cap_);
      }
    }
    pattern[kind] = 0;
  };
  extend(problem_.kinds.size(), cells_, 0.0);
  if (!complete) {
    return std::nullopt;
  }
  return patterns;
}

std::optional<std::vector<Pattern>> AllPatterns(const BalanceProblem& problem, double cap,
                                                size_t most) {
  std::vector<Pattern> patterns;
  Pattern pattern(problem.kinds.size(), 0);
  const double limit = cap * (1.0 + kRounding);
  bool complete = true;
  const std::function<void(size_t, double)> extend = [&](size_t kind, double seconds) {
    if (kind == problem.kinds.size()) {
      complete = patterns.size() < most;
      if (complete) {
        patterns.push_back(pattern);
      }
      return;
    }
    for (uint32_t count = 0; count <= problem.kinds[kind].count && complete; ++count) {
      pattern[kind] = count;
      const double sum = seconds + problem.kinds[kind].seconds[count];
      if (sum <= limit && FitsMemory(problem, pattern)) {
        extend(kind + 1, sum);
      }
    }
    pattern[kind] = 0;
  };
  extend(0, 0.0);
  if (!complete) {
    return std::nullopt;
  }
  return patterns;
}

}  // namespace dmuon::scheduler
