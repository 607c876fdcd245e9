// The seam to the solver of linear and integer programs: choose how many owners get each pattern.
// All costs are in units of the makespan that is aimed at, so that tolerances mean the same
// everywhere. One thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "scheduler/balance.h"

namespace dmuon::scheduler {

// A pattern and what it costs.
struct PatternColumn {
  Pattern counts;
  double cost = 0.0;
};

class PatternProgram {
 public:
  virtual ~PatternProgram() = default;

  // Columns are numbered in the order in which they are added.
  virtual void AddColumn(const PatternColumn& column) = 0;

  // The least total cost with fractional uses. What no column covers is paid for at a high price.
  struct Relaxed {
    double cost = 0.0;
    double uncovered = 0.0;           // matrices
    std::vector<double> kind_prices;  // duals: of one matrix of each kind
    double owner_price = 0.0;         // dual: what one owner less would cost, >= 0
    std::vector<double> uses;         // of each column
    bool solved = false;
  };
  virtual Relaxed SolveRelaxed() = 0;
  // What is still to be covered and by how many owners, for the next relaxation.
  virtual void SetDemand(const std::vector<uint32_t>& demand, uint32_t owners) = 0;
  // Makes leaving a matrix out dearer.
  virtual void RaiseUncoveredPrice() = 0;

  enum class Outcome { kFound, kImpossible, kNodeLimit, kTimeLimit };
  struct Integral {
    Outcome outcome = Outcome::kImpossible;
    std::vector<int64_t> uses;  // of each column, where found
  };
  // Any choice of whole uses that costs at most `budget`; kImpossible is proven.
  virtual Integral SolveIntegral(double budget, int nodes, double seconds) = 0;
};

// `demand` matrices of each kind on at most `owners` owners. Covered exactly or, where matrices may
// be taken off a pattern again, at least.
struct PatternDemand {
  std::vector<uint32_t> demand;
  uint32_t owners = 1;
  bool exact = false;
};
std::unique_ptr<PatternProgram> MakeCbcPatternProgram(const PatternDemand& demand);

}  // namespace dmuon::scheduler
