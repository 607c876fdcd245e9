#include "daemon/owner/trainer_set.h"

#include <utility>

namespace dmuon {

TrainerInfo MakeTrainerInfo(const SessionSpec& spec, const scheduler::Plan& plan,
                            const v1::AddTrainer& message) {
  TrainerInfo info;
  info.attached = true;
  info.host_id = message.host_id();
  info.channel = message.channel();
  info.mpi_rank = message.mpi_rank();
  info.ingress = message.ingress();
  for (const v1::Region& region : message.regions()) {
    info.regions.push_back({{region.start().begin(), region.start().end()},
                            {region.extent().begin(), region.extent().end()}});
    info.contributions.push_back(region.contribution() == v1::CONTRIBUTION_REPLICA
                                     ? Contribution::kReplica
                                     : Contribution::kPartial);
  }
  info.layout = MakeTrainerLayout(spec, plan, info.regions);
  return info;
}

std::shared_ptr<const TrainerSet> MakeTrainerSet(const SessionSpec& spec,
                                                 const scheduler::Plan& plan, uint32_t owner,
                                                 std::vector<TrainerInfo> trainers) {
  auto set = std::make_shared<TrainerSet>();
  set->trainers = std::move(trainers);
  std::vector<std::string> host_ids;
  for (const TrainerInfo& trainer : set->trainers) host_ids.push_back(trainer.host_id);
  set->groups = ReductionGroups(host_ids);

  for (uint32_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
    if (plan.buckets[bucket].owner != owner) continue;
    const std::vector<uint32_t>& pieces = plan.buckets[bucket].pieces;
    for (uint32_t entry = 0; entry < pieces.size(); ++entry) {
      const scheduler::Piece& piece = plan.pieces[pieces[entry]];
      std::vector<Region> regions;
      for (const TrainerInfo& trainer : set->trainers) {
        regions.push_back(trainer.regions[piece.parameter]);
      }
      set->places[pieces[entry]] = {bucket, entry};
      set->segments[pieces[entry]] =
          MakeSegments(spec.parameters[piece.parameter].shape, piece.geometry, regions);
    }
  }
  return set;
}

}  // namespace dmuon
