// The trainers of a session as an owner sees them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/session/segments.h"
#include "daemon/session/trainer_layout.h"
#include "dmuon/v1/owner.pb.h"
#include "proto/region.h"
#include "scheduler/plan.h"

namespace dmuon {

struct TrainerInfo {
  bool attached = false;
  std::string host_id;
  v1::Channel channel = v1::CHANNEL_UNSPECIFIED;
  int mpi_rank = -1;                        // channel mpi
  uint32_t ingress = 0;                     // other channels: the owner whose socket it attached to
  std::vector<Region> regions;              // by parameter
  std::vector<Contribution> contributions;  // by parameter
  TrainerLayout layout;
};

// Where a piece lies in the bucket messages.
struct PiecePlace {
  uint32_t bucket = 0;
  uint32_t entry = 0;
};

// Everything about the attached trainers that the step needs; immutable, so that the compute thread
// reads it while the engine goes on.
struct TrainerSet {
  std::vector<TrainerInfo> trainers;
  std::vector<std::vector<uint32_t>> groups;          // reduction tree, see ReductionGroups
  std::map<uint32_t, PiecePlace> places;              // by owned piece
  std::map<uint32_t, std::vector<Segment>> segments;  // by owned piece

  // The contribution of a parameter; all trainers agree on it.
  Contribution contribution(uint32_t parameter) const {
    return trainers.front().contributions[parameter];
  }
};

// Reads the regions of an AddTrainer message (canonical order) and computes the layout.
TrainerInfo MakeTrainerInfo(const SessionSpec& spec, const scheduler::Plan& plan,
                            const v1::AddTrainer& message);

std::shared_ptr<const TrainerSet> MakeTrainerSet(const SessionSpec& spec,
                                                 const scheduler::Plan& plan, uint32_t owner,
                                                 std::vector<TrainerInfo> trainers);

}  // namespace dmuon
