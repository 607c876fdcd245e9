// The plan: which owner updates what, and in which buckets it travels.
//
// A plan depends on the spec (in its canonical order), the owner count and the options below; not
// on registration order, on the rank that made it, or on trainers. Only where the clock stopped the
// solver may another run find another plan, and the plan says so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "proto/session_spec.h"
#include "scheduler/cost_profile.h"

namespace dmuon::scheduler {

struct PlanOptions {
  int owners = 1;
  int64_t bucket_bytes = 32 << 20;    // a bucket is closed when it reaches this
  int64_t elementwise_block = 65536;  // elements; elementwise parameters are cut at multiples
  kernels::ElementType auto_precision = kernels::ElementType::kFloat32;  // of the owners' device
  CostProfilePtr profile = nullptr;  // null: ArithmeticProfile()
  double link_bytes_per_s = 0.0;   // of an owner's link, each way; 0: communication is not counted
  int64_t memory_limit_bytes = 0;  // of each owner, for what OwnerBytes lists; 0: none
  int solver_nodes = 2000;         // of each integer program
  double solver_seconds = 10.0;    // of wall clock, in all
};

// What one owner updates as a whole: a matrix of a Muon parameter or a block of an AdamW parameter.
struct Piece {
  uint32_t parameter = 0;  // index in the spec's canonical order
  uint32_t group = 0;      // index into the spec's groups: pieces of one group share step values
  StridedMatrix geometry;
  std::vector<uint32_t> owners;  // length one; a team that shares one matrix will be longer
  // Numerics of a Muon piece, fixed here for every owner and every batch.
  kernels::MuonOptions muon;
  Rule rule = Rule::kMuon;
};

struct PlanBucket {
  uint32_t owner = 0;
  std::vector<uint32_t> pieces;  // indices into Plan::pieces, ascending
};

// What an owner keeps, by purpose: OwnedState and its buckets. The kernels' workspace comes on top.
struct OwnerBytes {
  int64_t gradients = 0;
  int64_t masters = 0;
  int64_t moments = 0;  // Muon's momentum, AdamW's two moments
  int64_t buckets = 0;  // gradients and parameters as they travel

  int64_t total() const { return gradients + masters + moments + buckets; }
};

struct OwnerLoad {
  double muon_seconds = 0.0;
  double elementwise_seconds = 0.0;
  double communication_seconds = 0.0;
  uint64_t matrices = 0;
  uint64_t elements = 0;
  OwnerBytes bytes;

  double seconds() const { return muon_seconds + elementwise_seconds + communication_seconds; }
};

struct Plan {
  int owners = 0;
  std::vector<Piece> pieces;         // by parameter, then by position inside it
  std::vector<PlanBucket> buckets;   // in publish order: early parameters first
  std::vector<OwnerLoad> loads;      // one per owner
  double makespan = 0.0;             // seconds of the busiest owner
  double lower_bound = 0.0;          // proven: no plan is shorter
  double greedy_makespan = 0.0;      // of LPT on the same costs; 0 where that finds no room
  bool stopped_by_clock = false;     // the solver was; another run may end elsewhere
  std::string profile;               // name of the cost profile
  std::vector<std::string> guesses;  // shapes of which the profile knows no costs, as lines of text

  // Within a millionth, which is as near as the solver looks.
  bool proven_optimal() const { return makespan <= lower_bound * (1.0 + 1e-6); }
  // The share of all owners' time in which they wait for the busiest.
  double idle_share() const;
};

// Never longer than LPT on the same costs. Throws std::invalid_argument for owners < 1 and the like
// and for a memory limit that cannot be kept, SpecError for a precision that makes no sense here.
Plan MakePlan(const SessionSpec& spec, const PlanOptions& options);

// 16 hex digits over everything in the plan that owners must agree on.
std::string PlanHash(const Plan& plan);

// Byte form for the broadcast from owner 0. ParsePlan throws std::invalid_argument on garbage.
std::string SerializePlan(const Plan& plan);
Plan ParsePlan(const std::string& bytes);

// The Muon pieces of one owner, equal in shape, numerics and group within a batch: one NS call
// each. Batches and their pieces are in plan order.
std::vector<std::vector<uint32_t>> BatchesOf(const Plan& plan, uint32_t owner);

// Kernel options of a Muon parameter's matrix: the spec's settings, `auto` resolved by the shipped
// rule for its shape.
kernels::MuonOptions NumericsOf(const MuonSettings& settings, int64_t rows, int64_t cols,
                                kernels::ElementType auto_precision);

}  // namespace dmuon::scheduler
