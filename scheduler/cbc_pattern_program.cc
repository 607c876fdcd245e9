// The pattern program on CBC: relaxations by Clp, kept warm between columns; integer programs by
// branch and bound.
#include <CbcHeuristicDiveCoefficient.hpp>
#include <CbcModel.hpp>
#include <CglGomory.hpp>
#include <CglMixedIntegerRounding2.hpp>
#include <CoinPackedMatrix.hpp>
#include <CoinPackedVector.hpp>
#include <OsiClpSolverInterface.hpp>
#include <algorithm>
#include <cmath>

#include "scheduler/pattern_program.h"

namespace dmuon::scheduler {
namespace {

class CbcPatternProgram : public PatternProgram {
 public:
  explicit CbcPatternProgram(const PatternDemand& demand)
      : kinds_(static_cast<int>(demand.demand.size())),
        owners_(demand.owners),
        uncovered_price_(4.0 * demand.owners) {
    solver_.messageHandler()->setLogLevel(0);
    for (const uint32_t count : demand.demand) {
      solver_.addRow(CoinPackedVector(), count, demand.exact ? count : solver_.getInfinity());
    }
    solver_.addRow(CoinPackedVector(), -solver_.getInfinity(), owners_);
    for (int kind = 0; kind < kinds_; ++kind) {
      CoinPackedVector column;
      column.insert(kind, 1.0);
      solver_.addCol(column, 0.0, solver_.getInfinity(), uncovered_price_);
    }
  }

  void AddColumn(const PatternColumn& column) override {
    CoinPackedVector entries;
    for (int kind = 0; kind < kinds_; ++kind) {
      if (column.counts[static_cast<size_t>(kind)] > 0) {
        entries.insert(kind, column.counts[static_cast<size_t>(kind)]);
      }
    }
    entries.insert(kinds_, 1.0);
    solver_.addCol(entries, 0.0, owners_, column.cost);
  }

  Relaxed SolveRelaxed() override {
    if (solved_before_) {
      solver_.resolve();
    } else {
      solver_.initialSolve();
      solved_before_ = true;
    }
    Relaxed relaxed;
    relaxed.solved = solver_.isProvenOptimal();
    if (!relaxed.solved) {
      return relaxed;
    }
    relaxed.cost = solver_.getObjValue();
    const double* uses = solver_.getColSolution();
    const double* prices = solver_.getRowPrice();
    for (int kind = 0; kind < kinds_; ++kind) {
      relaxed.uncovered += uses[kind];
      relaxed.kind_prices.push_back(prices[kind]);
    }
    relaxed.owner_price = std::max(0.0, -prices[kinds_]);
    relaxed.uses.assign(uses + kinds_, uses + solver_.getNumCols());
    return relaxed;
  }

  void SetDemand(const std::vector<uint32_t>& demand, uint32_t owners) override {
    for (int kind = 0; kind < kinds_; ++kind) {
      solver_.setRowLower(kind, demand[static_cast<size_t>(kind)]);
    }
    solver_.setRowUpper(kinds_, owners);
  }

  void RaiseUncoveredPrice() override {
    uncovered_price_ *= 64.0;
    for (int kind = 0; kind < kinds_; ++kind) {
      solver_.setObjCoeff(kind, uncovered_price_);
    }
  }

  Integral SolveIntegral(double budget, int nodes, double seconds) override {
    OsiClpSolverInterface whole(solver_);
    CoinPackedVector costs;
    for (int column = 0; column < whole.getNumCols(); ++column) {
      if (column < kinds_) {
        whole.setColUpper(column, 0.0);
      } else {
        whole.setInteger(column);
        costs.insert(column, whole.getObjCoefficients()[column]);
      }
    }
    whole.addRow(costs, -whole.getInfinity(), budget);
    CbcModel model(whole);
    SetUp(nodes, seconds, &model);
    model.branchAndBound();
    return ResultOf(model);
  }

 private:
  static void SetUp(int nodes, double seconds, CbcModel* model) {
    model->setLogLevel(0);
    model->solver()->messageHandler()->setLogLevel(0);
    model->setMaximumNodes(nodes);
    model->setMaximumSeconds(seconds);
    model->setMaximumSolutions(1);
    CglGomory gomory;
    gomory.setLimit(64);
    CglMixedIntegerRounding2 rounding;
    model->addCutGenerator(&gomory, -99, "gomory");
    model->addCutGenerator(&rounding, -99, "rounding");
    CbcRounding simple(*model);
    CbcHeuristicDiveCoefficient dive(*model);
    model->addHeuristic(&simple);
    model->addHeuristic(&dive);
  }

  Integral ResultOf(const CbcModel& model) const {
    Integral result;
    if (const double* best = model.bestSolution()) {
      result.outcome = Outcome::kFound;
      for (int column = kinds_; column < model.getNumCols(); ++column) {
        result.uses.push_back(std::llround(best[column]));
      }
    } else if (model.isSecondsLimitReached()) {
      result.outcome = Outcome::kTimeLimit;
    } else if (model.isProvenInfeasible()) {
      result.outcome = Outcome::kImpossible;
    } else {
      result.outcome = Outcome::kNodeLimit;
    }
    return result;
  }

  OsiClpSolverInterface solver_;  // first one column a kind for what is not covered
  int kinds_;
  double owners_;
  double uncovered_price_;
  bool solved_before_ = false;
};

}  // namespace

std::unique_ptr<PatternProgram> MakeCbcPatternProgram(const PatternDemand& demand) {
  return std::make_unique<CbcPatternProgram>(demand);
}

}  // namespace dmuon::scheduler
