// The plan: which owner updates what, and in which buckets it travels.
//
// A plan depends on the spec (in its canonical order), the owner count and the options below; not
// on registration order, on the rank that made it, or on trainers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "proto/session_spec.h"

namespace dmuon::scheduler {

struct PlanOptions {
  int owners = 1;
  int64_t bucket_bytes = 32 << 20;    // a bucket is closed when it reaches this
  int64_t elementwise_block = 65536;  // elements; elementwise parameters are cut at multiples
  kernels::ElementType auto_precision = kernels::ElementType::kFloat32;  // of the owners' device
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

struct OwnerLoad {
  double cost = 0.0;  // arithmetic, in useful flops (elementwise: weighted bytes)
  uint64_t matrices = 0;
  uint64_t elements = 0;
};

struct Plan {
  int owners = 0;
  std::vector<Piece> pieces;        // by parameter, then by position inside it
  std::vector<PlanBucket> buckets;  // in publish order: early parameters first
  std::vector<OwnerLoad> loads;     // one per owner
  double makespan = 0.0;            // the largest load
  double lower_bound = 0.0;         // no plan can be shorter
};

// LPT over arithmetic cost. Throws std::invalid_argument for owners < 1 and SpecError for a
// precision that makes no sense here.
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
