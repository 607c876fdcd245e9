// The part of SessionControl in which a trainer attaches.
#include <spdlog/spdlog.h>

#include <utility>

#include "daemon/coordinator/attach_checks.h"
#include "daemon/coordinator/session_control.h"

namespace dmuon {

void SessionControl::Attach(const v1::AttachRequest& request, uint32_t ingress,
                            const Reply& reply) {
  Trainer trainer;
  trainer.request = request;
  bool resumed = state_ == State::kRunning;
  Status status = CheckAttach(request);
  if (status.ok()) status = MapParameterNames(spec_, request, &trainer.canonical, &trainer.own);
  if (status.ok()) status = CollectRegions(spec_, request, trainer.canonical, &trainer.regions);
  if (status.ok()) status = ChooseChannel(request, &trainer);
  if (!status.ok()) return reply(status, {});
  status = CheckAgainstOthers(trainer, request.trainer());
  if (!status.ok()) {
    reply(status, {});
    // The trainers do not fit together, and the others would wait for nothing.
    if (!resumed) End(status);
    return;
  }

  trainer.attached = true;
  Trainer& slot = trainers_[request.trainer()];
  slot = std::move(trainer);
  steps_.NameTrainer(request.trainer(), NameOf(slot));
  spdlog::info("session {}: {} attached, channel {} ({})", setup_.id, NameOf(slot),
               ChannelName(slot.channel), slot.channel_reason);

  v1::OwnerMessage message;
  v1::AddTrainer& add = *message.mutable_add_trainer();
  add.set_session(setup_.id);
  add.set_trainer(request.trainer());
  add.set_host_id(request.host_id());
  add.set_channel(slot.channel);
  add.set_mpi_rank(request.mpi_rank());
  add.set_ingress(ingress);
  for (const v1::Region& region : slot.regions) *add.add_regions() = region;
  add.set_resumed(resumed);
  BroadcastAndThen(std::move(message),
                   [this, number = request.trainer(), resumed, reply,
                    generation = steps_.generation()](const std::string& error) {
                     if (!error.empty()) return reply(Status::Internal(error), {});
                     v1::AttachReply answer = MakeAttachReply(trainers_[number]);
                     answer.set_resumed(resumed);
                     answer.set_generation(generation);
                     Answer(reply, answer);
                   });
}

Status SessionControl::CheckAttach(const v1::AttachRequest& request) const {
  if (request.trainer() >= setup_.trainers) {
    return Status::InvalidArgument("trainer: " + std::to_string(request.trainer()) +
                                   ", but the session has trainers 0 to " +
                                   std::to_string(setup_.trainers - 1));
  }
  const Trainer& slot = trainers_[request.trainer()];
  if (slot.attached) {
    return {StatusCode::kAlreadyExists,
            NameOf(slot) + " is attached already: give every trainer its own number"};
  }
  if (slot.detached && state_ == State::kRunning) {
    return Status::FailedPrecondition(NameOf(slot) + " has detached; the session is closing");
  }
  return Status::Ok();
}

Status SessionControl::CheckAgainstOthers(const Trainer& trainer, uint32_t number) const {
  const Trainer& before = trainers_[number];
  if (state_ == State::kRunning && !SameRegions(before.regions, trainer.regions)) {
    return Status::InvalidArgument("trainer " + std::to_string(number) +
                                   " resumes with other regions than before");
  }
  std::vector<const std::vector<v1::Region>*> all(trainers_.size(), nullptr);
  for (uint32_t other = 0; other < trainers_.size(); ++other) {
    if (other == number) {
      all[other] = &trainer.regions;
    } else if (trainers_[other].attached) {
      all[other] = &trainers_[other].regions;
      if (trainer.channel == v1::CHANNEL_MPI && trainers_[other].channel == v1::CHANNEL_MPI &&
          trainers_[other].request.mpi_rank() == trainer.request.mpi_rank()) {
        return Status::InvalidArgument("mpi_rank: " + std::to_string(trainer.request.mpi_rank()) +
                                       " is that of trainer " + std::to_string(other) + " already");
      }
    }
  }
  return CheckRegionsTogether(spec_, all);
}

Status SessionControl::ChooseChannel(const v1::AttachRequest& request, Trainer* trainer) const {
  bool in_job = host_.is_trainer_rank(request.mpi_rank());
  switch (request.channel()) {
    case v1::CHANNEL_GRPC:
      trainer->channel = v1::CHANNEL_GRPC;
      trainer->channel_reason = "asked for";
      return Status::Ok();
    case v1::CHANNEL_MPI:
      if (!in_job) {
        return Status::InvalidArgument(
            "channel mpi: rank " + std::to_string(request.mpi_rank()) +
            " is not a trainer of the owners' MPI job; start owners and trainers with one mpirun "
            "(mpirun -np N dmuond ... : -np T trainer ...) or use channel grpc");
      }
      trainer->channel = v1::CHANNEL_MPI;
      trainer->channel_reason = "asked for";
      return Status::Ok();
    case v1::CHANNEL_AUTO:
    case v1::CHANNEL_UNSPECIFIED:
      trainer->channel = in_job ? v1::CHANNEL_MPI : v1::CHANNEL_GRPC;
      trainer->channel_reason = in_job ? "auto: the trainer is in the owners' MPI job"
                                       : "auto: the trainer is not in the owners' MPI job";
      return Status::Ok();
    default:
      return {StatusCode::kUnimplemented, "channel " + ChannelName(request.channel()) +
                                              " is not in this release; use grpc or mpi"};
  }
}

std::string SessionControl::NameOf(const Trainer& trainer) const {
  return fmt::format("trainer {} (pid {} on {})", trainer.request.trainer(), trainer.request.pid(),
                     trainer.request.host_id());
}

v1::AttachReply SessionControl::MakeAttachReply(const Trainer& trainer) const {
  v1::AttachReply answer;
  answer.set_channel(trainer.channel);
  answer.set_channel_reason(trainer.channel_reason);
  answer.set_next_step(steps_.next_step());
  TrainerLayout layout = MakeTrainerLayout(spec_, plan_, RegionsOf(trainer.regions));
  for (uint32_t number = 0; number < layout.buckets.size(); ++number) {
    v1::Bucket& bucket = *answer.add_buckets();
    bucket.set_bucket(number);
    bucket.set_owner(layout.buckets[number].owner);
    bucket.set_owner_mpi_rank(
        host_.world_rank_of_owner(static_cast<int>(layout.buckets[number].owner)));
    bucket.set_payload_bytes(layout.buckets[number].payload_bytes);
    for (const LayoutEntry& from : layout.buckets[number].entries) {
      const scheduler::Piece& piece = plan_.pieces[from.piece];
      v1::BucketEntry& entry = *bucket.add_entries();
      entry.set_parameter(trainer.own[piece.parameter]);
      entry.set_base(piece.geometry.base);
      entry.set_rows(piece.geometry.rows);
      entry.set_cols(piece.geometry.cols);
      entry.set_row_stride(piece.geometry.row_stride);
      entry.set_offset(from.offset);
      entry.set_count(from.count);
      entry.set_dtype(std::string(dmuon::NameOf(spec_.parameters[piece.parameter].dtype)));
    }
  }
  return answer;
}

}  // namespace dmuon
