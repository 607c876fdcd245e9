// The agreement on steps: who has begun and sealed, which owners are ready, and the outcome.
// Owner 0's engine thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/coordinator/coordinator_host.h"
#include "dmuon/v1/control.pb.h"
#include "proto/session_spec.h"

namespace dmuon {

class StepControl {
 public:
  using Clock = std::chrono::steady_clock;

  struct Setup {
    uint64_t session = 0;
    const SessionSpec* spec = nullptr;  // outlives the object
    uint32_t trainers = 0;
    double timeout_s = 300;
  };

  StepControl(CoordinatorHost& host, const Setup& setup);

  uint64_t next_step() const { return next_step_; }
  uint64_t generation() const { return generation_; }
  bool active() const { return active_.has_value(); }
  uint64_t count(v1::StepOutcome outcome) const;
  uint64_t stale_pushes() const { return stale_pushes_; }
  bool begun(uint32_t trainer) const { return active_ && active_->begun.count(trainer) != 0; }
  bool sealed(uint32_t trainer) const { return active_ && active_->sealed.count(trainer) != 0; }

  void Begin(const v1::BeginStepRequest& request, const Reply& reply);
  // `absent` is in canonical numbers, and names only what the trainer holds a part of.
  void Seal(const v1::SealStepRequest& request, const std::set<uint32_t>& absent,
            const Reply& reply);
  void Wait(const v1::WaitStepRequest& request, const Reply& reply);

  void OnReduced(int owner, const v1::Reduced& message);
  void OnReady(int owner, const v1::StepReady& message);
  void OnDataError(const v1::DataError& message);
  void OnMissing(int owner, const v1::Missing& message);

  // Ends the step in progress, if any, with nothing changed.
  void Abort(const std::string& reason);
  // Answers everybody who still waits.
  void Close(const Status& status);
  // Called regularly: looks after the step timeout.
  void Tick(Clock::time_point now);
  // Who or what the step in progress waits for; empty when idle.
  std::string WaitingFor() const;

  // How trainers are named in messages, "trainer 1 (pid 4711 on gpu-07)".
  void NameTrainer(uint32_t trainer, const std::string& name) { names_[trainer] = name; }
  // On how many trainers a parameter must be absent to be absent: those that hold a part of it.
  // One entry per parameter; all trainers until this is called.
  void SetHolders(std::vector<uint32_t> holders) { holders_ = std::move(holders); }

 private:
  using Values = std::map<std::string, double>;  // "muon.lr" -> 0.02

  struct Active {
    Active(uint64_t number, Values agreed) : step(number), values(std::move(agreed)) {}

    uint64_t step;
    Values values;
    Clock::time_point started = Clock::now();
    Clock::time_point all_sealed;
    std::set<uint32_t> begun;
    std::set<uint32_t> sealed;
    std::map<uint32_t, uint32_t> absent_on;  // parameter -> how many trainers
    std::set<int> reduced;
    std::set<int> ready;
    std::map<uint32_t, double> norms;  // squared, by piece
    std::map<uint32_t, std::string> not_finite;
    std::map<std::string, v1::Orthogonalised> orthogonalised;
    uint64_t muon_expected = 0;
    uint64_t muon_done = 0;
    std::vector<double> compute_s;  // by owner
    double norm = 0;
    double clip_factor = 1;
    bool clip_sent = false;
    uint32_t absent = 0;
    std::optional<Clock::time_point> asked_missing;
    std::map<uint32_t, std::string> missing;  // by trainer
    std::set<int> answered_missing;
  };

  Status CheckBegin(const v1::BeginStepRequest& request, const Values& values) const;
  void StartActive(const v1::BeginStepRequest& request, Values values);
  Status CheckGeneration(uint32_t trainer, uint64_t generation, const char* call) const;
  void AllSealed();
  void Advance();
  void AgreeOnNorm();
  void Finish(v1::StepOutcome outcome, const std::string& reason, const std::string& parameter);
  std::string TimeoutReason() const;
  std::string Name(uint32_t trainer) const;

  CoordinatorHost& host_;
  Setup setup_;
  std::vector<uint32_t> holders_;  // by parameter
  uint64_t next_step_ = 1;
  uint64_t generation_ = 0;
  std::optional<Active> active_;
  std::map<uint64_t, v1::StepReport> reports_;  // the last few, by generation
  std::map<uint64_t, std::vector<Reply>> waiting_;
  std::map<v1::StepOutcome, uint64_t> counts_;
  std::map<uint32_t, std::string> names_;
  std::map<uint32_t, std::string> data_problems_;  // by trainer: the last stale push
  uint64_t stale_pushes_ = 0;
};

}  // namespace dmuon
