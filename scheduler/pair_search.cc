#include "scheduler/pair_search.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace dmuon::scheduler {
namespace {

constexpr int kCells = 1024;     // of the time axis
constexpr uint32_t kReach = 24;  // how far one kind's count moves at once
constexpr double kGain = 1e-9;   // relative; less is rounding

// Of all ways to share two owners' matrices: for each cell of the first owner's seconds, the one
// with which the second has least.
class PairSplit {
 public:
  PairSplit(const BalanceProblem& problem, const Pattern& a, const Pattern& b, double cap)
      : problem_(problem), a_(a), b_(b), cap_(cap) {
    cells_.assign(1, std::vector<Cell>(kCells));
    cells_[0][0].second = 0.0;
  }

  // Whether both owners end below the cap; then *first and *second are what they get.
  bool Run(Pattern* first, Pattern* second) {
    for (size_t kind = 0; kind < a_.size(); ++kind) {
      if (a_[kind] + b_[kind] > 0) {
        AddKind(kind);
      }
    }
    const std::vector<Cell>& last = cells_.back();
    const auto worse = [](const Cell& x, const Cell& y) {
      return std::max(x.first, x.second) < std::max(y.first, y.second);
    };
    const auto best = std::min_element(last.begin(), last.end(), worse);
    if (!(std::max(best->first, best->second) < cap_ * (1.0 - kGain))) {
      return false;
    }
    Trace(static_cast<size_t>(best - last.begin()), first, second);
    return FitsMemory(problem_, *first) && FitsMemory(problem_, *second);
  }

 private:
  struct Cell {
    double first = 0.0;
    double second = std::numeric_limits<double>::infinity();
    uint32_t count = 0;  // of this stage's kind, with the first owner
    int from = 0;        // cell of the stage before
  };

  void AddKind(size_t kind) {
    const std::vector<double>& seconds = problem_.kinds[kind].seconds;
    const uint32_t total = a_[kind] + b_[kind];
    std::vector<Cell> next(kCells);
    const auto extend = [&](uint32_t count) {
      for (int cell = 0; cell < kCells; ++cell) {
        const Cell& before = cells_.back()[static_cast<size_t>(cell)];
        const double first = before.first + seconds[count];
        const double second = before.second + seconds[total - count];
        if (first >= cap_ || second >= cap_) {
          continue;
        }
        const auto index = static_cast<size_t>(first / cap_ * kCells);
        Cell& target = next[std::min<size_t>(index, kCells - 1)];
        if (second < target.second) {
          target = {first, second, count, cell};
        }
      }
    };
    const uint32_t low = a_[kind] > kReach ? a_[kind] - kReach : 0;
    const uint32_t high = std::min(total, a_[kind] + kReach);
    for (uint32_t count = low; count <= high; ++count) {
      extend(count);
    }
    if (low > 0) {
      extend(0);
    }
    if (high < total) {
      extend(total);
    }
    kinds_.push_back(kind);
    cells_.push_back(std::move(next));
  }

  void Trace(size_t cell, Pattern* first, Pattern* second) const {
    first->assign(a_.size(), 0);
    second->assign(a_.size(), 0);
    for (size_t stage = kinds_.size(); stage > 0; --stage) {
      const size_t kind = kinds_[stage - 1];
      const Cell& entry = cells_[stage][cell];
      (*first)[kind] = entry.count;
      (*second)[kind] = a_[kind] + b_[kind] - entry.count;
      cell = static_cast<size_t>(entry.from);
    }
  }

  const BalanceProblem& problem_;
  const Pattern& a_;
  const Pattern& b_;
  double cap_;
  std::vector<size_t> kinds_;             // one a stage
  std::vector<std::vector<Cell>> cells_;  // before the first stage and after each
};

// Gives the busiest owner and one other better patterns. False where no other helps.
bool RelieveBusiest(const BalanceProblem& problem, const std::function<bool()>& stop,
                    std::vector<double>* loads, std::vector<Pattern>* owners) {
  std::vector<size_t> order(owners->size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return (*loads)[a] < (*loads)[b]; });
  const size_t busiest = order.back();
  const Pattern* tried = nullptr;
  for (const size_t other : order) {
    if (stop()) {
      return false;
    }
    if (other == busiest || (tried != nullptr && *tried == (*owners)[other])) {
      continue;
    }
    tried = &(*owners)[other];
    Pattern first;
    Pattern second;
    PairSplit split(problem, (*owners)[busiest], (*owners)[other], (*loads)[busiest]);
    if (split.Run(&first, &second)) {
      (*owners)[busiest] = std::move(first);
      (*owners)[other] = std::move(second);
      (*loads)[busiest] = SecondsOf(problem, (*owners)[busiest]);
      (*loads)[other] = SecondsOf(problem, (*owners)[other]);
      return true;
    }
  }
  return false;
}

}  // namespace

void ImproveByPairs(const BalanceProblem& problem, const std::function<bool()>& stop,
                    std::vector<Pattern>* owners) {
  std::vector<double> loads;
  for (const Pattern& pattern : *owners) {
    loads.push_back(SecondsOf(problem, pattern));
  }
  for (size_t round = 0; round < 20 * owners->size() + 100; ++round) {
    if (!RelieveBusiest(problem, stop, &loads, owners)) {
      return;
    }
  }
}

}  // namespace dmuon::scheduler
