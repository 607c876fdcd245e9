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
constexpr int64_t kMostPasses = 300000;  // over the cells, about 3 microseconds each
constexpr double kGain = 1e-9;           // relative; less is rounding

// Of all ways to share two owners' matrices: for each cell of the first owner's seconds, the one
// with which the second has least.
class PairSplit {
 public:
  PairSplit(const BalanceProblem& problem, const Pattern& a, const Pattern& b, double cap)
      : problem_(problem), a_(a), b_(b), cap_(cap) {
    cells_.assign(1, std::vector<Cell>(kCells));
    cells_[0][0].second = 0.0;
  }

  // Passes over the cells that were made: the work.
  int64_t passes() const { return passes_; }

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
      ++passes_;
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
  int64_t passes_ = 0;
  std::vector<size_t> kinds_;             // one a stage
  std::vector<std::vector<Cell>> cells_;  // before the first stage and after each
};

class PairSearch {
 public:
  PairSearch(const BalanceProblem& problem, const std::function<bool()>& stop,
             std::vector<Pattern>* owners)
      : problem_(problem), stop_(stop), owners_(*owners) {
    for (const Pattern& pattern : owners_) {
      loads_.push_back(SecondsOf(problem, pattern));
    }
  }

  void Run() {
    for (int round = 0; round < kRounds && !Stop(); ++round) {
      while (RelieveBusiest()) {
      }
      bool lightened = false;
      for (int sweep = 0; sweep < kSweeps && FillerReachesAbove() && LightenPairs(); ++sweep) {
        lightened = true;
      }
      if (!lightened) {
        return;
      }
    }
  }

 private:
  bool Stop() const { return passes_ > kMostPasses || stop_(); }

  double Mean() const {
    return std::accumulate(loads_.begin(), loads_.end(), problem_.filler_seconds) / problem_.owners;
  }

  // Then the mean is the makespan, and only less work in all would help.
  bool FillerReachesAbove() const {
    return *std::max_element(loads_.begin(), loads_.end()) <= Mean();
  }

  void Set(size_t owner, Pattern pattern) {
    owners_[owner] = std::move(pattern);
    loads_[owner] = SecondsOf(problem_, owners_[owner]);
  }

  // Gives the busiest owner and one other better patterns. False where no other helps.
  bool RelieveBusiest() {
    if (FillerReachesAbove()) {
      return false;
    }
    std::vector<size_t> order(owners_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [this](size_t a, size_t b) { return loads_[a] < loads_[b]; });
    const size_t busiest = order.back();
    const Pattern* tried = nullptr;
    for (const size_t other : order) {
      if (other == busiest || (tried != nullptr && *tried == owners_[other])) {
        continue;
      }
      if (Stop()) {
        return false;
      }
      tried = &owners_[other];
      Pattern first;
      Pattern second;
      PairSplit split(problem_, owners_[busiest], owners_[other], loads_[busiest]);
      const bool found = split.Shorten(&first, &second);
      passes_ += split.passes();
      // More work in all must not lift the mean to where the busiest was.
      if (found && Mean() + (SecondsOf(problem_, first) + SecondsOf(problem_, second) -
                             loads_[busiest] - loads_[other]) /
                                problem_.owners <
                       loads_[busiest]) {
        Set(busiest, std::move(first));
        Set(other, std::move(second));
        return true;
      }
    }
    return false;
  }

  // Gives pairs of owners better patterns with less work in all, all of them below the makespan.
  // Where owners are many, each meets only some of the others.
  bool LightenPairs() {
    const double cap = Mean();
    const size_t reach = std::max<size_t>(1, 2 * kPairs / owners_.size());
    bool lightened = false;
    for (size_t a = 0; a < owners_.size(); ++a) {
      for (size_t b = a + 1; b < std::min(owners_.size(), a + 1 + reach) && !Stop(); ++b) {
        Pattern first;
        Pattern second;
        PairSplit split(problem_, owners_[a], owners_[b], cap);
        const bool found = split.Lighten(loads_[a] + loads_[b], &first, &second);
        passes_ += split.passes();
        if (found) {
          Set(a, std::move(first));
          Set(b, std::move(second));
          lightened = true;
        }
      }
    }
    return lightened;
  }

  const BalanceProblem& problem_;
  const std::function<bool()>& stop_;
  std::vector<Pattern>& owners_;
  std::vector<double> loads_;
  int64_t passes_ = 0;
};

}  // namespace

void ImproveByPairs(const BalanceProblem& problem, const std::function<bool()>& stop,
                    std::vector<Pattern>* owners) {
  PairSearch(problem, stop, owners).Run();
}

}  // namespace dmuon::scheduler
