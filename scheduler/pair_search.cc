#include "scheduler/pair_search.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace dmuon::scheduler {
namespace {

constexpr int kCells = 1024;     // of the time axis
constexpr uint32_t kReach = 8;   // a kind's count moves by up to this in steps of one,
constexpr uint32_t kSteps = 64;  // and over its whole range in so many steps
constexpr size_t kPairs = 1200;  // of owners in one sweep
constexpr int kSweeps = 6;
constexpr int kRounds = 4;
constexpr double kGain = 1e-9;  // relative; less is rounding

// Of all ways to share two owners' matrices: for each cell of the first owner's seconds, the one
// with which the second has least.
class PairSplit {
 public:
  PairSplit(const BalanceProblem& problem, const Pattern& a, const Pattern& b, double cap)
      : problem_(problem), a_(a), b_(b), cap_(cap) {
    cells_.assign(1, std::vector<Cell>(kCells));
    cells_[0][0].second = 0.0;
  }

  // The split with the shortest of the longer owner. False where both do not end below the cap.
  bool Shorten(Pattern* first, Pattern* second) {
    return Run([](const Cell& cell) { return std::max(cell.first, cell.second); },
               cap_ * (1.0 - kGain), first, second);
  }

  // The split with least work. False where that is not less than `work`, or not below the cap.
  bool Lighten(double work, Pattern* first, Pattern* second) {
    return Run([](const Cell& cell) { return cell.first + cell.second; }, work - cap_ * kGain,
               first, second);
  }

 private:
  struct Cell {
    double first = 0.0;
    double second = std::numeric_limits<double>::infinity();
    uint32_t count = 0;  // of this stage's kind, with the first owner
    int from = 0;        // cell of the stage before
  };

  bool Run(const auto& value_of, double less_than, Pattern* first, Pattern* second) {
    for (size_t kind = 0; kind < a_.size(); ++kind) {
      if (a_[kind] + b_[kind] > 0) {
        AddKind(kind);
      }
    }
    const std::vector<Cell>& last = cells_.back();
    const auto best = std::min_element(last.begin(), last.end(), [&](const Cell& x, const Cell& y) {
      return value_of(x) < value_of(y);
    });
    if (!(value_of(*best) < less_than)) {
      return false;
    }
    Trace(static_cast<size_t>(best - last.begin()), first, second);
    return FitsMemory(problem_, *first) && FitsMemory(problem_, *second);
  }

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
    const uint32_t step = total / kSteps + 1;
    for (uint32_t count = 0; count <= total; ++count) {
      const uint32_t moved = count > a_[kind] ? count - a_[kind] : a_[kind] - count;
      if (moved <= kReach || count % step == 0 || count == total) {
        extend(count);
      }
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
  const double total = std::accumulate(loads->begin(), loads->end(), problem.filler_seconds);
  if ((*loads)[busiest] <= total / problem.owners) {
    return false;  // the filler reaches above all owners: only less work in all would help
  }
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
    if (split.Shorten(&first, &second)) {
      (*owners)[busiest] = std::move(first);
      (*owners)[other] = std::move(second);
      (*loads)[busiest] = SecondsOf(problem, (*owners)[busiest]);
      (*loads)[other] = SecondsOf(problem, (*owners)[other]);
      return true;
    }
  }
  return false;
}

// Gives pairs of owners better patterns with less work in all, all of them below the makespan.
// Where owners are many, each meets only some of the others.
bool LightenPairs(const BalanceProblem& problem, const std::function<bool()>& stop,
                  std::vector<double>* loads, std::vector<Pattern>* owners) {
  const double cap = MakespanOf(problem, *owners);
  const size_t reach = std::max<size_t>(1, 2 * kPairs / owners->size());
  bool lightened = false;
  for (size_t a = 0; a < owners->size(); ++a) {
    for (size_t b = a + 1; b < std::min(owners->size(), a + 1 + reach) && !stop(); ++b) {
      Pattern first;
      Pattern second;
      PairSplit split(problem, (*owners)[a], (*owners)[b], cap);
      if (split.Lighten((*loads)[a] + (*loads)[b], &first, &second)) {
        (*owners)[a] = std::move(first);
        (*owners)[b] = std::move(second);
        (*loads)[a] = SecondsOf(problem, (*owners)[a]);
        (*loads)[b] = SecondsOf(problem, (*owners)[b]);
        lightened = true;
      }
    }
  }
  return lightened;
}

}  // namespace

void ImproveByPairs(const BalanceProblem& problem, const std::function<bool()>& stop,
                    std::vector<Pattern>* owners) {
  std::vector<double> loads;
  for (const Pattern& pattern : *owners) {
    loads.push_back(SecondsOf(problem, pattern));
  }
  for (int round = 0; round < kRounds && !stop(); ++round) {
    size_t left = 20 * owners->size() + 100;
    while (left > 0 && RelieveBusiest(problem, stop, &loads, owners)) {
      --left;
    }
    const double busiest = *std::max_element(loads.begin(), loads.end());
    bool lightened = false;
    for (int sweep = 0; sweep < kSweeps && busiest < MakespanOf(problem, *owners); ++sweep) {
      if (!LightenPairs(problem, stop, &loads, owners)) {
        break;
      }
      lightened = true;
    }
    if (!lightened) {
      return;
    }
  }
}

}  // namespace dmuon::scheduler
