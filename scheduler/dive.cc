#include "scheduler/dive.h"

#include <algorithm>
#include <cmath>

namespace dmuon::scheduler {
namespace {

constexpr double kWhole = 1e-6;  // what a use may lack

// Demand and owners that are left, and the patterns that were fixed.
struct Descent {
  std::vector<uint32_t> demand;
  uint32_t owners = 0;
  std::vector<Pattern> fixed;

  bool done() const {
    return owners == 0 ||
           std::all_of(demand.begin(), demand.end(), [](uint32_t count) { return count == 0; });
  }

  // Fixes one use, of as many of its matrices as are left.
  void Fix(const Pattern& pattern) {
    Pattern taken = pattern;
    for (size_t kind = 0; kind < taken.size(); ++kind) {
      taken[kind] = std::min(taken[kind], demand[kind]);
      demand[kind] -= taken[kind];
    }
    fixed.push_back(std::move(taken));
    --owners;
  }
};

// Every whole use at once; where there is none, the one that lacks least.
void FixUses(const std::vector<double>& uses, const std::vector<const Pattern*>& patterns,
             Descent* descent) {
  size_t largest = 0;
  bool fixed = false;
  for (size_t i = 0; i < uses.size(); ++i) {
    largest = uses[i] > uses[largest] ? i : largest;
    for (auto left = static_cast<int64_t>(uses[i] + kWhole); left > 0 && !descent->done(); --left) {
      descent->Fix(*patterns[i]);
      fixed = true;
    }
  }
  if (!fixed) {
    descent->Fix(*patterns[largest]);
  }
}

// Gives what is left, the dearest first, to the least loaded owner with room.
bool DealRest(const BalanceProblem& problem, Descent* descent) {
  std::vector<Pattern>& owners = descent->fixed;
  owners.resize(problem.owners, Pattern(problem.kinds.size(), 0));
  std::vector<size_t> order(problem.kinds.size());
  for (size_t kind = 0; kind < order.size(); ++kind) {
    order[kind] = kind;
  }
  std::stable_sort(order.begin(), order.end(), [&problem](size_t a, size_t b) {
    return problem.kinds[a].seconds[1] > problem.kinds[b].seconds[1];
  });
  for (const size_t kind : order) {
    for (; descent->demand[kind] > 0; --descent->demand[kind]) {
      Pattern* best = nullptr;
      double best_seconds = 0.0;
      for (Pattern& pattern : owners) {
        ++pattern[kind];
        const double seconds = SecondsOf(problem, pattern);
        if (FitsMemory(problem, pattern) && (best == nullptr || seconds < best_seconds)) {
          best = &pattern;
          best_seconds = seconds;
        }
        --pattern[kind];
      }
      if (best == nullptr) {
        return false;
      }
      ++(*best)[kind];
    }
  }
  return true;
}

}  // namespace

std::vector<Pattern> Dive(const BalanceProblem& problem, const PatternPool& pool, double cap,
                          const std::function<bool()>& stop) {
  std::vector<size_t> indices;
  const auto program = ProgramOf(problem, pool, cap, /*exact=*/false, &indices);
  if (indices.empty()) {
    return {};
  }
  std::vector<const Pattern*> patterns;
  patterns.reserve(indices.size());
  for (const size_t index : indices) {
    patterns.push_back(&pool.columns()[index].counts);
  }
  Descent descent;
  for (const MatrixKind& kind : problem.kinds) {
    descent.demand.push_back(kind.count);
  }
  descent.owners = problem.owners;
  while (!descent.done() && !stop()) {
    program->SetDemand(descent.demand, descent.owners);
    const PatternProgram::Relaxed relaxed = program->SolveRelaxed();
    if (!relaxed.solved) {
      break;
    }
    FixUses(relaxed.uses, patterns, &descent);
  }
  return DealRest(problem, &descent) ? std::move(descent.fixed) : std::vector<Pattern>();
}

}  // namespace dmuon::scheduler
