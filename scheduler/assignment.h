// From pieces to the balance problem and back: counts are found for kinds of matrices, then named
// matrices are dealt, then elementwise blocks fill what is left. Internal to scheduler/.
#pragma once

#include <vector>

#include "scheduler/balance.h"
#include "scheduler/plan.h"

namespace dmuon::scheduler {

// Matrices that are one batch on one owner, with their costs and their pieces in plan order.
struct PieceKinds {
  BalanceProblem problem;
  std::vector<std::vector<uint32_t>> members;  // of each kind
  std::vector<double> communication_seconds;   // of one matrix of each kind
  std::vector<std::string> guesses;            // as Plan::guesses
};

PieceKinds KindsOf(const SessionSpec& spec, const PlanOptions& options, const CostProfile& profile,
                   const std::vector<Piece>& pieces);

// Names the owners of the kinds' matrices: each owner's share of a kind is spread over the layers,
// and neighbours in plan order, a layer's matrices, go to different owners as far as the counts
// allow. `owners` has one pattern each.
void PlaceMatrices(const PieceKinds& kinds, const std::vector<Pattern>& owners,
                   std::vector<Piece>* pieces);

// What the matrices alone make of each owner.
std::vector<OwnerLoad> MatrixLoads(const SessionSpec& spec, const PieceKinds& kinds,
                                   const std::vector<Piece>& pieces,
                                   const std::vector<Pattern>& owners);

// Gives every elementwise block to the least loaded owner that has room. Throws
// std::invalid_argument where none has.
void PlaceBlocks(const SessionSpec& spec, const PlanOptions& options, const CostProfile& profile,
                 std::vector<Piece>* pieces, std::vector<OwnerLoad>* loads);

}  // namespace dmuon::scheduler
