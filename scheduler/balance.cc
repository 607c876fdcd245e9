// The search for a balance: LPT and pairs of owners from above, linear programs from below, integer
// programs between.
#include "scheduler/balance.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>

#include "scheduler/dive.h"
#include "scheduler/greedy.h"
#include "scheduler/pair_search.h"
#include "scheduler/relaxation.h"
#include "scheduler/simple_bounds.h"

namespace dmuon::scheduler {
namespace {

constexpr double kEqual = 1e-9;      // relative: makespans that are the same
constexpr double kBoundGap = 1e-4;   // relative: where raising the bound ends
constexpr double kFillerGap = 5e-7;  // relative: where an exact search with filler ends
constexpr double kSearchGap = 5e-4;  // relative: where a search over a pool of patterns ends
constexpr int kProbes = 24;          // integer programs

// Takes off what covers a kind more than its matrices, from the busiest owners first, and gives the
// owners that are left nothing.
std::vector<Pattern> Trimmed(const BalanceProblem& problem, std::vector<Pattern> owners) {
  owners.resize(problem.owners, Pattern(problem.kinds.size(), 0));
  for (size_t kind = 0; kind < problem.kinds.size(); ++kind) {
    uint64_t excess = 0;
    for (const Pattern& pattern : owners) {
      excess += pattern[kind];
    }
    excess -= problem.kinds[kind].count;
    for (; excess > 0; --excess) {
      Pattern* busiest = nullptr;
      for (Pattern& pattern : owners) {
        if (pattern[kind] > 0 &&
            (busiest == nullptr || SecondsOf(problem, pattern) > SecondsOf(problem, *busiest))) {
          busiest = &pattern;
        }
      }
      --(*busiest)[kind];
    }
  }
  return owners;
}

class Search {
 public:
  Search(const BalanceProblem& problem, const BalanceLimits& limits)
      : problem_(problem), limits_(limits), pool_(problem) {}

  Balance Run() {
    result_.lower_bound = SimpleBound(problem_);
    result_.greedy = LongestFirst(problem_);
    best_ = LongestPossible();
    Offer(result_.greedy.empty() ? LargestFirst(problem_) : result_.greedy);
    if (!Done()) {
      if (pool_.AddAll(best_)) {
        SearchAllPatterns();
      } else {
        RaiseBound();
        SearchPool();
      }
    }
    if (result_.owners.empty()) {
      throw std::invalid_argument("memory: no distribution was found that keeps " +
                                  std::to_string(problem_.memory_limit) +
                                  " bytes an owner; raise the limit, or use more than " +
                                  std::to_string(problem_.owners) + " owners");
    }
    result_.lower_bound = std::min(result_.lower_bound, best_);
    return std::move(result_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  double Seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  bool Stop() {
    result_.stopped_by_clock = result_.stopped_by_clock || Seconds() > limits_.seconds;
    return result_.stopped_by_clock;
  }

  bool Done() const {
    return !result_.owners.empty() && best_ <= result_.lower_bound * (1.0 + kEqual);
  }

  // More than any distribution takes, with which the search starts where memory is tight.
  double LongestPossible() const {
    double seconds = problem_.filler_seconds;
    for (const MatrixKind& kind : problem_.kinds) {
      seconds += *std::max_element(kind.seconds.begin(), kind.seconds.end()) * kind.count;
    }
    return 1.001 * seconds;
  }

  // Takes `owners` where they are better than what there is. An empty offer is none.
  bool Offer(std::vector<Pattern> owners) {
    if (owners.empty()) {
      return false;
    }
    ImproveByPairs(
        problem_, [this] { return Stop(); }, &owners);
    const double makespan = MakespanOf(problem_, owners);
    if (!(makespan < best_)) {
      return false;
    }
    best_ = makespan;
    if (!pool_.complete()) {
      for (const Pattern& pattern : owners) {
        pool_.Add(pattern);
      }
    }
    result_.owners = std::move(owners);
    return true;
  }

  // Bisection on what the linear program excludes.
  void RaiseBound() {
    const auto stop = [this] { return Stop(); };
    double open = best_;
    double probe = result_.lower_bound * (1.0 + kEqual);
    while (probe < best_ * (1.0 - kEqual)) {
      const Verdict verdict = JudgeMakespan(problem_, probe, stop, &pool_);
      if (verdict == Verdict::kStopped) {
        return;
      }
      if (verdict == Verdict::kExcluded) {
        result_.lower_bound = probe;
      } else {
        open = probe;
      }
      const double gap = open < best_ ? kBoundGap : kEqual;
      if (open - result_.lower_bound <= gap * open) {
        return;
      }
      probe = 0.5 * (result_.lower_bound + open);
    }
  }

  // Looks for owners whose patterns take at most `cap` seconds.
  PatternProgram::Outcome Probe(double cap, bool exact) {
    std::vector<size_t> indices;
    const auto program = ProgramOf(problem_, pool_, cap, exact, &indices);
    const double budget = problem_.owners - problem_.filler_seconds / cap;
    const PatternProgram::Integral found = program->SolveIntegral(
        budget * (1.0 + kEqual), exact ? limits_.nodes : limits_.nodes / 20 + 1,
        std::max(0.1, limits_.seconds - Seconds()));
    if (found.outcome == PatternProgram::Outcome::kFound) {
      std::vector<Pattern> owners;
      for (size_t i = 0; i < found.uses.size(); ++i) {
        owners.insert(owners.end(), static_cast<size_t>(found.uses[i]),
                      pool_.columns()[indices[i]].counts);
      }
      Offer(Trimmed(problem_, std::move(owners)));
    }
    return found.outcome;
  }

  // The next makespan to try above `low` when all patterns are known, or none: then nothing between
  // `low` and the best is possible. Without filler a makespan is some pattern's seconds.
  double NextExactProbe(double low) const {
    if (problem_.filler_seconds > 0.0) {
      const double middle = 0.5 * (low + best_);
      return best_ - low > kFillerGap * best_ ? middle : 0.0;
    }
    std::vector<double> candidates;
    for (const PatternColumn& column : pool_.columns()) {
      if (column.cost > low * (1.0 + kEqual) && column.cost < best_ * (1.0 - kEqual)) {
        candidates.push_back(column.cost);
      }
    }
    if (candidates.empty()) {
      return 0.0;
    }
    const auto middle = candidates.begin() + static_cast<std::ptrdiff_t>(candidates.size() / 2);
    std::nth_element(candidates.begin(), middle, candidates.end());
    return *middle;
  }

  void SearchAllPatterns() {
    const auto stop = [this] { return Stop(); };
    double low = result_.lower_bound * (1.0 - 2.0 * kEqual);  // the bound itself may be reached
    bool proven = true;                                       // that nothing is at or below `low`
    while (!Done() && !stop()) {
      const double cap = NextExactProbe(low);
      if (cap == 0.0) {
        if (proven && problem_.filler_seconds == 0.0 && !result_.owners.empty()) {
          result_.lower_bound = best_;
        }
        return;
      }
      const double before = best_;
      const bool excluded = JudgeMakespan(problem_, cap, stop, &pool_) == Verdict::kExcluded;
      const auto outcome =
          excluded ? PatternProgram::Outcome::kImpossible : Probe(cap, /*exact=*/true);
      if (best_ < before && best_ <= cap * (1.0 + kEqual)) {
        continue;
      }
      low = cap;
      proven = proven && outcome == PatternProgram::Outcome::kImpossible;
      if (proven) {
        result_.lower_bound = std::max(result_.lower_bound, cap);
      }
      if (outcome == PatternProgram::Outcome::kTimeLimit) {
        result_.stopped_by_clock = true;
      }
    }
  }

  void SearchPool() {
    const auto stop = [this] { return Stop(); };
    double low = result_.lower_bound;
    double cap = low + (best_ - low) / 3.0;
    for (int probe = 0; probe < kProbes && best_ - low > kSearchGap * best_ && !stop(); ++probe) {
      const double before = best_;
      const bool decides = EnrichPool(problem_, cap, stop, &pool_);
      Offer(Dive(problem_, pool_, cap, stop));
      if (best_ <= cap * (1.0 + kEqual)) {
        cap = low + (best_ - low) / 3.0;
        continue;
      }
      const auto outcome = Probe(cap, decides);
      if (!(best_ < before && best_ <= cap * (1.0 + kEqual))) {
        low = cap;
        if (decides && outcome == PatternProgram::Outcome::kImpossible) {
          result_.lower_bound = std::max(result_.lower_bound, cap);
        }
      }
      if (outcome == PatternProgram::Outcome::kTimeLimit) {
        result_.stopped_by_clock = true;
      }
      cap = low + (best_ - low) / 3.0;
    }
  }

  const BalanceProblem& problem_;
  const BalanceLimits& limits_;
  Clock::time_point start_ = Clock::now();
  Balance result_;
  double best_ = 0.0;  // makespan of result_.owners, once there are some
  PatternPool pool_;
};

// What no distribution can mend.
void CheckMemory(const BalanceProblem& problem) {
  if (problem.memory_limit == 0) {
    return;
  }
  const std::string limit = std::to_string(problem.memory_limit);
  int64_t total = problem.filler_bytes;
  for (const MatrixKind& kind : problem.kinds) {
    total += kind.bytes * static_cast<int64_t>(kind.count);
    if (kind.bytes > problem.memory_limit) {
      throw std::invalid_argument("memory: one matrix needs " + std::to_string(kind.bytes) +
                                  " bytes, more than the limit of " + limit +
                                  " bytes an owner; raise the limit");
    }
  }
  if (total / problem.owners > problem.memory_limit) {
    throw std::invalid_argument("memory: " + std::to_string(problem.owners) + " owners of " +
                                limit + " bytes have no room for the " + std::to_string(total) +
                                " bytes of this model; raise the limit or use more owners");
  }
}

}  // namespace

Balance SolveBalance(const BalanceProblem& problem, const BalanceLimits& limits) {
  CheckMemory(problem);
  return Search(problem, limits).Run();
}

}  // namespace dmuon::scheduler
