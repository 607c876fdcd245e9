#include "daemon/owner/assembly.h"

#include <string>
#include <utility>

namespace dmuon {

Assembly::Assembly(std::shared_ptr<const TrainerSet> trainers, const scheduler::Plan& plan)
    : trainers_(std::move(trainers)), plan_(plan), slots_(trainers_->trainers.size()) {
  for (const auto& [piece, place] : trainers_->places) {
    uint32_t contributors = 0;
    for (size_t t = 0; t < slots_.size(); ++t) {
      const LayoutBucket& bucket = trainers_->trainers[t].layout.buckets[place.bucket];
      if (bucket.payload_bytes > 0) slots_[t].try_emplace(place.bucket);
      if (bucket.entries[place.entry].count > 0) ++contributors;
    }
    remaining_[piece] = contributors;
  }
}

Status Assembly::Take(BucketPtr message, std::vector<uint32_t>* complete) {
  BucketHeader header = message->header();
  auto found = slots_[header.trainer].find(header.bucket);
  if (found == slots_[header.trainer].end()) return Status::Ok();  // nothing of it concerns us
  Slot& slot = found->second;
  if (slot.is_final) {
    return Status::FailedPrecondition("trainer " + std::to_string(header.trainer) +
                                      " pushed bucket " + std::to_string(header.bucket) +
                                      " again after its final push of this step");
  }
  slot.message = std::move(message);
  slot.is_final = (header.flags & kBucketFinal) != 0;
  if (!slot.is_final) return Status::Ok();

  const LayoutBucket& bucket = trainers_->trainers[header.trainer].layout.buckets[header.bucket];
  for (const LayoutEntry& entry : bucket.entries) {
    if (entry.count > 0 && --remaining_[entry.piece] == 0) Complete(entry.piece, complete);
  }
  return Status::Ok();
}

void Assembly::Complete(uint32_t piece, std::vector<uint32_t>* complete) {
  if (!AnyGradient(piece)) {
    if (!sealed_) {
      undecided_.insert(piece);
      return;
    }
    if (absent_parameters_.count(plan_.pieces[piece].parameter) != 0) absent_.insert(piece);
  }
  complete->push_back(piece);
}

void Assembly::Seal(const std::set<uint32_t>& absent, std::vector<uint32_t>* complete) {
  sealed_ = true;
  absent_parameters_ = absent;
  std::set<uint32_t> undecided = std::move(undecided_);
  undecided_.clear();
  for (uint32_t piece : undecided) Complete(piece, complete);
}

bool Assembly::AnyGradient(uint32_t piece) const {
  for (const BucketPtr& message : ContributionsOf(piece)) {
    if (message) return true;
  }
  return false;
}

Contributions Assembly::ContributionsOf(uint32_t piece) const {
  const PiecePlace& place = trainers_->places.at(piece);
  Contributions contributions(slots_.size());
  for (size_t t = 0; t < slots_.size(); ++t) {
    const LayoutBucket& bucket = trainers_->trainers[t].layout.buckets[place.bucket];
    if (bucket.entries[place.entry].count == 0) continue;
    auto slot = slots_[t].find(place.bucket);
    if (slot == slots_[t].end() || !slot->second.message) continue;
    if (IsPresent(slot->second.message->presence(), place.entry)) {
      contributions[t] = slot->second.message;
    }
  }
  return contributions;
}

std::set<uint32_t> Assembly::MissingFrom(uint32_t trainer) const {
  std::set<uint32_t> parameters;
  for (const auto& [bucket, slot] : slots_[trainer]) {
    if (slot.is_final) continue;
    for (const LayoutEntry& entry : trainers_->trainers[trainer].layout.buckets[bucket].entries) {
      if (entry.count > 0) parameters.insert(plan_.pieces[entry.piece].parameter);
    }
  }
  return parameters;
}

}  // namespace dmuon
