// Which contributions of a step have arrived at this owner, and which pieces they complete.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "daemon/owner/trainer_set.h"
#include "daemon/transport/bucket_buffer.h"
#include "proto/status.h"

namespace dmuon {

// The bucket messages that hold one piece, by trainer; null where the trainer has nothing of it or
// no gradient for it.
using Contributions = std::vector<BucketPtr>;

// One step (or the initial values). Used by the engine thread.
class Assembly {
 public:
  Assembly(std::shared_ptr<const TrainerSet> trainers, const scheduler::Plan& plan);

  // A message that fits its layout. Refuses a second final push and a push after the final one.
  // Appends to `complete` the pieces that now have every final contribution and at least one
  // gradient, or whose absence is decided.
  Status Take(BucketPtr message, std::vector<uint32_t>* complete);

  // Every trainer has sealed; `absent` are the parameters that nobody has a gradient for. Appends
  // the pieces whose fate this decides.
  void Seal(const std::set<uint32_t>& absent, std::vector<uint32_t>* complete);

  // Of a complete piece: false if its parameter has no gradient in this step.
  bool HasGradient(uint32_t piece) const { return absent_.count(piece) == 0; }
  Contributions ContributionsOf(uint32_t piece) const;

  // Parameters that `trainer` still owes us, ascending.
  std::set<uint32_t> MissingFrom(uint32_t trainer) const;

 private:
  struct Slot {
    BucketPtr message;
    bool is_final = false;
  };

  void Complete(uint32_t piece, std::vector<uint32_t>* complete);
  bool AnyGradient(uint32_t piece) const;

  std::shared_ptr<const TrainerSet> trainers_;
  const scheduler::Plan& plan_;
  std::vector<std::map<uint32_t, Slot>> slots_;  // by trainer, by bucket
  std::map<uint32_t, uint32_t> remaining_;       // by piece: trainers whose final push is missing
  std::set<uint32_t> undecided_;                 // complete, but nobody here has a gradient
  std::set<uint32_t> absent_;
  bool sealed_ = false;
  std::set<uint32_t> absent_parameters_;
};

}  // namespace dmuon
