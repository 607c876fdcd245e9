#include "scheduler/plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <stdexcept>

#include "proto/bucket_message.h"
#include "scheduler/same_numerics.h"

namespace dmuon::scheduler {
namespace {

// AdamW reads gradient, master and two moments and writes the last three: 28 bytes an element.
constexpr double kElementwiseBytes = 28.0;
// What a byte of an elementwise piece costs in useful flops of a Muon piece. Between a CPU core
// pair (0.5 Tflop/s against 20 GB/s: 25) and a GPU (150 and more); elementwise work is a few
// percent of a step, so its exact price hardly moves a plan.
constexpr double kFlopsPerByte = 32.0;

void AppendMuonPieces(const ParameterSpec& parameter, Piece piece, const MuonSettings& settings,
                      kernels::ElementType auto_precision, std::vector<Piece>* pieces) {
  for (const StridedMatrix& matrix : MatricesOf(parameter)) {
    if (matrix.rows != piece.geometry.rows || matrix.cols != piece.geometry.cols) {
      piece.muon = NumericsOf(settings, matrix.rows, matrix.cols, auto_precision);
    }
    piece.geometry = matrix;
    pieces->push_back(piece);
  }
}

void AppendBlocks(int64_t elements, int64_t block, Piece piece, std::vector<Piece>* pieces) {
  for (int64_t base = 0; base < elements; base += block) {
    const int64_t count = std::min(block, elements - base);
    piece.geometry = {base, 1, count, count};
    pieces->push_back(piece);
  }
}

std::vector<Piece> MakePieces(const SessionSpec& spec, const PlanOptions& options) {
  std::vector<Piece> pieces;
  for (uint32_t i = 0; i < spec.parameters.size(); ++i) {
    const ParameterSpec& parameter = spec.parameters[i];
    Piece piece;
    piece.parameter = i;
    piece.group = static_cast<uint32_t>(parameter.group);
    piece.rule = parameter.rule;
    if (parameter.rule == Rule::kMuon) {
      AppendMuonPieces(parameter, piece, spec.groups[piece.group].muon, options.auto_precision,
                       &pieces);
    } else {
      AppendBlocks(parameter.elements(), options.elementwise_block, piece, &pieces);
    }
  }
  return pieces;
}

double CostOf(const Piece& piece) {
  if (piece.rule == Rule::kAdamW) {
    return static_cast<double>(piece.geometry.elements()) * kElementwiseBytes * kFlopsPerByte;
  }
  return kernels::UsefulFlops(piece.geometry.rows, piece.geometry.cols, piece.muon.newton_schulz);
}

// Longest processing time first: the dearest piece that is left goes to the owner with the least
// load. Ties go to the earlier piece and to the lower owner.
void AssignOwners(Plan* plan) {
  std::vector<double> costs(plan->pieces.size());
  std::transform(plan->pieces.begin(), plan->pieces.end(), costs.begin(), CostOf);
  std::vector<uint32_t> order(plan->pieces.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&costs](uint32_t a, uint32_t b) { return costs[a] > costs[b]; });
  using Load = std::pair<double, uint32_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least_loaded;
  for (uint32_t owner = 0; owner < static_cast<uint32_t>(plan->owners); ++owner) {
    least_loaded.emplace(0.0, owner);
  }
  plan->loads.resize(static_cast<size_t>(plan->owners));
  for (const uint32_t index : order) {
    const uint32_t owner = least_loaded.top().second;
    least_loaded.pop();
    Piece& piece = plan->pieces[index];
    OwnerLoad& load = plan->loads[owner];
    piece.owners = {owner};
    load.cost += costs[index];
    load.matrices += piece.rule == Rule::kMuon ? 1 : 0;
    load.elements += static_cast<uint64_t>(piece.geometry.elements());
    least_loaded.emplace(load.cost, owner);
  }
  // One piece is on one owner; owners + 1 pieces put two on one of them.
  const double total = std::accumulate(costs.begin(), costs.end(), 0.0);
  const auto owners = static_cast<size_t>(plan->owners);
  plan->lower_bound = std::max(total / plan->owners, costs[order.front()]);
  if (order.size() > owners) {
    plan->lower_bound =
        std::max(plan->lower_bound, costs[order[owners - 1]] + costs[order[owners]]);
  }
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
  AssignOwners(&plan);
  for (const OwnerLoad& load : plan.loads) {
    plan.makespan = std::max(plan.makespan, load.cost);
  }
  MakeBuckets(spec, options.bucket_bytes, &plan);
  return plan;
}

std::vector<std::vector<uint32_t>> BatchesOf(const Plan& plan, uint32_t owner) {
  const auto less = [](const Piece* a, const Piece* b) {
    const auto key = [](const Piece* p) {
      return std::tuple_cat(std::tie(p->group, p->geometry.rows, p->geometry.cols), KeyOf(p->muon));
    };
    return key(a) < key(b);
  };
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
