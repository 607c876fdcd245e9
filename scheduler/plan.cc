#include "scheduler/plan.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "proto/bucket_message.h"
#include "scheduler/assignment.h"
#include "scheduler/balance.h"
#include "scheduler/pieces.h"
#include "scheduler/same_numerics.h"

namespace dmuon::scheduler {
namespace {

double BusiestSeconds(const std::vector<OwnerLoad>& loads) {
  double busiest = 0.0;
  for (const OwnerLoad& load : loads) {
    busiest = std::max(busiest, load.seconds());
  }
  return busiest;
}

// Which owner has which number tells nothing: the fullest comes first.
std::vector<Pattern> Ordered(const BalanceProblem& problem, std::vector<Pattern> owners) {
  std::stable_sort(owners.begin(), owners.end(), [&problem](const Pattern& a, const Pattern& b) {
    const double seconds_a = SecondsOf(problem, a);
    const double seconds_b = SecondsOf(problem, b);
    return seconds_a != seconds_b ? seconds_a > seconds_b : a > b;
  });
  return owners;
}

// Finds owners and loads of all pieces.
void AssignOwners(const SessionSpec& spec, const PlanOptions& options, Plan* plan) {
  const CostProfilePtr profile = options.profile ? options.profile : ArithmeticProfile();
  PieceKinds kinds = KindsOf(spec, options, *profile, plan->pieces);
  Balance balance = SolveBalance(kinds.problem, {options.solver_nodes, options.solver_seconds});
  const auto assign = [&](const std::vector<Pattern>& owners) {
    plan->loads = MatrixLoads(spec, kinds, plan->pieces, owners);
    PlaceBlocks(spec, options, *profile, &plan->pieces, &plan->loads);
    plan->makespan = BusiestSeconds(plan->loads);
  };
  std::vector<Pattern> owners = Ordered(kinds.problem, std::move(balance.owners));
  if (!balance.greedy.empty()) {
    assign(balance.greedy);
    plan->greedy_makespan = plan->makespan;
  }
  assign(owners);
  // Blocks do not divide as the solver's filler does.
  if (!balance.greedy.empty() && plan->greedy_makespan < plan->makespan) {
    owners = Ordered(kinds.problem, std::move(balance.greedy));
    assign(owners);
  }
  PlaceMatrices(kinds, owners, &plan->pieces);
  plan->lower_bound = std::min(balance.lower_bound, plan->makespan);
  plan->stopped_by_clock = balance.stopped_by_clock;
  plan->profile = profile->name();
  plan->guesses = std::move(kinds.guesses);
}

void MakeBuckets(const SessionSpec& spec, int64_t bucket_bytes, Plan* plan) {
  struct Open {
    PlanBucket bucket;
    int64_t bytes = 0;
  };
  std::vector<Open> open(static_cast<size_t>(plan->owners));
  for (uint32_t index = 0; index < plan->pieces.size(); ++index) {
    const Piece& piece = plan->pieces[index];
    Open& target = open[piece.owners.front()];
    target.bucket.owner = piece.owners.front();
    target.bucket.pieces.push_back(index);
    target.bytes += RoundUpToAlignment(piece.geometry.elements() *
                                       SizeOf(spec.parameters[piece.parameter].dtype));
    if (target.bytes >= bucket_bytes) {
      plan->buckets.push_back(std::move(target.bucket));
      target = Open{};
    }
  }
  for (Open& rest : open) {
    if (!rest.bucket.pieces.empty()) {
      plan->buckets.push_back(std::move(rest.bucket));
    }
  }
  std::sort(
      plan->buckets.begin(), plan->buckets.end(),
      [](const PlanBucket& a, const PlanBucket& b) { return a.pieces.front() < b.pieces.front(); });
}

}  // namespace

Plan MakePlan(const SessionSpec& spec, const PlanOptions& options) {
  if (options.owners < 1 || options.bucket_bytes < 1 || options.elementwise_block < 1) {
    throw std::invalid_argument(
        "a plan needs at least one owner, and buckets and blocks of at "
        "least one byte and element; asked for " +
        std::to_string(options.owners) + " owners, " + std::to_string(options.bucket_bytes) +
        " bytes, " + std::to_string(options.elementwise_block) + " elements");
  }
  Plan plan;
  plan.owners = options.owners;
  plan.pieces = MakePieces(spec, options);
  if (plan.pieces.empty()) {
    throw SpecError("parameters: empty; there is nothing to plan");
  }
  AssignOwners(spec, options, &plan);
  MakeBuckets(spec, options.bucket_bytes, &plan);
  return plan;
}

double Plan::idle_share() const {
  double busy = 0.0;
  for (const OwnerLoad& load : loads) {
    busy += load.seconds();
  }
  return makespan > 0.0 ? 1.0 - busy / (makespan * owners) : 0.0;
}

std::vector<std::vector<uint32_t>> BatchesOf(const Plan& plan, uint32_t owner) {
  const auto less = [](const Piece* a, const Piece* b) { return BatchKeyOf(*a) < BatchKeyOf(*b); };
  std::map<const Piece*, size_t, decltype(less)> batch_of(less);
  std::vector<std::vector<uint32_t>> batches;
  for (uint32_t index = 0; index < plan.pieces.size(); ++index) {
    const Piece& piece = plan.pieces[index];
    if (piece.rule != Rule::kMuon || piece.owners.front() != owner) {
      continue;
    }
    const auto [found, inserted] = batch_of.try_emplace(&piece, batches.size());
    if (inserted) {
      batches.emplace_back();
    }
    batches[found->second].push_back(index);
  }
  return batches;
}

}  // namespace dmuon::scheduler
