#include "scheduler/relaxation.h"

#include <algorithm>

#include "scheduler/pricing.h"

namespace dmuon::scheduler {
namespace {

constexpr size_t kAllPatterns = 6000;  // fewer than these are all made at once
constexpr int kGridCells = 8192;       // of the pricing grid
constexpr size_t kNearBest = 1500;     // most patterns that enrich a pool
constexpr int kPricingRounds = 600;    // of pricing, for one makespan
constexpr int kPricingRoundsPerBound = 10;
constexpr double kRounding = 1e-9;    // relative
constexpr double kLeastWorth = 1e-7;  // least worth of a new column

// One makespan under judgement.
class Judgement {
 public:
  Judgement(const BalanceProblem& problem, double cap, PatternPool* pool)
      : problem_(problem),
        cap_(cap),
        budget_(problem.owners - problem.filler_seconds / cap),
        pool_(pool),
        pricer_(problem, cap, pool->complete() ? 1 : kGridCells) {
    std::vector<size_t> indices;
    program_ = ProgramOf(problem, *pool, cap, pool->complete(), &indices);
    for (const size_t index : indices) {
      columns_.push_back(pool->columns()[index]);
    }
  }

  Verdict Run(const std::function<bool()>& stop, bool to_the_end) {
    for (int round = 1; round <= kPricingRounds; ++round) {
      if (stop()) {
        return Verdict::kStopped;
      }
      const PatternProgram::Relaxed relaxed = program_->SolveRelaxed();
      if (!relaxed.solved) {
        return Verdict::kOpen;
      }
      if (!to_the_end && relaxed.uncovered < kRounding &&
          relaxed.cost <= budget_ * (1.0 + kRounding)) {
        return Verdict::kOpen;
      }
      prices_ = relaxed.kind_prices;
      const bool added = !pool_->complete() && AddColumn(relaxed);
      if ((!added || round % kPricingRoundsPerBound == 0) && Excludes(relaxed)) {
        return Verdict::kExcluded;
      }
      if (!added) {
        if (relaxed.uncovered < kRounding || raised_ == 3) {
          return Verdict::kOpen;
        }
        program_->RaiseUncoveredPrice();
        ++raised_;
      }
    }
    return Verdict::kOpen;
  }

  // A distribution within the cap costs at most the budget, so the patterns that it uses fall short
  // of the best worth by no more than the slack of all owners together.
  bool Enrich() {
    const double best = pricer_.BestValueAtMost(prices_);
    double slack = budget_ + best * problem_.owners + kRounding * problem_.owners;
    for (size_t kind = 0; kind < problem_.kinds.size(); ++kind) {
      slack -= prices_[kind] * problem_.kinds[kind].count;
    }
    bool complete = false;
    std::vector<Pattern> found;
    for (double short_of = 1e-3; !complete; short_of *= 2.0) {
      complete = short_of >= slack;
      auto patterns = pricer_.PatternsWorth(prices_, best - std::min(short_of, slack), kNearBest);
      if (!patterns) {
        complete = false;
        break;
      }
      found = std::move(*patterns);
    }
    for (const Pattern& pattern : found) {
      pool_->Add(pattern);
    }
    return complete;
  }

 private:
  bool AddColumn(const PatternProgram::Relaxed& relaxed) {
    const Pattern pattern = pricer_.GoodPattern(relaxed.kind_prices);
    PatternColumn column{pattern, SecondsOf(problem_, pattern)};
    if (WorthOf(relaxed, column) <= relaxed.owner_price + kLeastWorth || !pool_->Add(pattern)) {
      return false;
    }
    program_->AddColumn({pattern, column.cost / cap_});
    columns_.push_back(std::move(column));
    return true;
  }

  double WorthOf(const PatternProgram::Relaxed& relaxed, const PatternColumn& column) const {
    double worth = -column.cost / cap_;
    for (size_t kind = 0; kind < column.counts.size(); ++kind) {
      worth += relaxed.kind_prices[kind] * column.counts[kind];
    }
    return worth;
  }

  // Whatever the prices: all matrices are worth the sum of theirs, and an owner's pattern costs at
  // least what its matrices are worth less the best worth of any pattern.
  bool Excludes(const PatternProgram::Relaxed& relaxed) {
    double best = 0.0;
    if (pool_->complete()) {
      for (const PatternColumn& column : columns_) {
        best = std::max(best, WorthOf(relaxed, column));
      }
    } else {
      best = pricer_.BestValueAtMost(relaxed.kind_prices);
    }
    double least_cost = -best * problem_.owners;
    for (size_t kind = 0; kind < problem_.kinds.size(); ++kind) {
      least_cost += relaxed.kind_prices[kind] * problem_.kinds[kind].count;
    }
    return least_cost > budget_ + kRounding * problem_.owners;
  }

  const BalanceProblem& problem_;
  double cap_;
  double budget_;  // of all patterns together, in units of the cap
  PatternPool* pool_;
  PatternPricer pricer_;
  std::unique_ptr<PatternProgram> program_;
  std::vector<PatternColumn> columns_;  // of the program, costs in seconds
  std::vector<double> prices_;          // of the last relaxation
  int raised_ = 0;
};

}  // namespace

bool PatternPool::AddAll(double cap) {
  const std::optional<std::vector<Pattern>> patterns = AllPatterns(problem_, cap, kAllPatterns);
  if (patterns) {
    for (const Pattern& pattern : *patterns) {
      Add(pattern);
    }
    complete_ = true;
  }
  return complete_;
}

bool PatternPool::Add(const Pattern& pattern) {
  if (!known_.insert(pattern).second) {
    return false;
  }
  columns_.push_back({pattern, SecondsOf(problem_, pattern)});
  return true;
}

Verdict JudgeMakespan(const BalanceProblem& problem, double cap, const std::function<bool()>& stop,
                      PatternPool* pool) {
  return Judgement(problem, cap, pool).Run(stop, /*to_the_end=*/false);
}

bool EnrichPool(const BalanceProblem& problem, double cap, const std::function<bool()>& stop,
                PatternPool* pool) {
  Judgement judgement(problem, cap, pool);
  return judgement.Run(stop, /*to_the_end=*/true) == Verdict::kOpen && judgement.Enrich();
}

std::unique_ptr<PatternProgram> ProgramOf(const BalanceProblem& problem, const PatternPool& pool,
                                          double cap, bool exact, std::vector<size_t>* indices) {
  PatternDemand demand;
  for (const MatrixKind& kind : problem.kinds) {
    demand.demand.push_back(kind.count);
  }
  demand.owners = problem.owners;
  demand.exact = exact;
  std::unique_ptr<PatternProgram> program = MakeCbcPatternProgram(demand);
  for (size_t index = 0; index < pool.columns().size(); ++index) {
    const PatternColumn& column = pool.columns()[index];
    if (column.cost <= cap * (1.0 + 1e-12)) {
      program->AddColumn({column.counts, column.cost / cap});
      indices->push_back(index);
    }
  }
  return program;
}

}  // namespace dmuon::scheduler
