#include "scheduler/simulator/devices.h"

#include <algorithm>
#include <cassert>

namespace dmuon::simulator {
namespace {

Part PartOf(SpanKind kind) {
  switch (kind) {
    case SpanKind::kForward:
      return Part::kForward;
    case SpanKind::kBackward:
      return Part::kBackward;
    default:
      return Part::kOptimizer;
  }
}

}  // namespace

Devices::Devices(int count, bool owners_apart, EventQueue* events, Activity* activity,
                 std::vector<Span>* spans)
    : events_(events),
      activity_(activity),
      spans_(spans),
      owners_apart_(owners_apart),
      owners_(static_cast<size_t>(count)),
      owner_busy_s_(static_cast<size_t>(count), 0.0) {}

void Devices::RunOnAll(Work work, Action done) {
  assert(!trainers_busy_);
  trainers_busy_ = true;
  Interrupt();
  const Part part = PartOf(work.kind);
  activity_->Begin(part);
  const double start = events_->now();
  const double seconds = work.seconds;
  events_->After(seconds, [this, part, start, work = std::move(work), done = std::move(done)] {
    activity_->End(part);
    if (spans_ != nullptr) {
      spans_->push_back({kTrainersLane, work.kind, start, events_->now(), work.label});
    }
    trainers_busy_ = false;
    done();
    if (!trainers_busy_) {
      Continue();
    }
  });
}

void Devices::RunForOwner(int owner, Work work, Action done) {
  const auto index = static_cast<size_t>(owner);
  const double seconds = work.seconds;
  owners_[index].jobs.push_back({std::move(work), seconds, -1.0, std::move(done)});
  if (owners_[index].jobs.size() == 1 && !interrupted_) {
    StartFirst(index);
  }
}

void Devices::Interrupt() {
  if (owners_apart_ || interrupted_) {
    return;
  }
  interrupted_ = true;
  for (size_t i = 0; i < owners_.size(); ++i) {
    Owner& owner = owners_[i];
    if (!owner.running) {
      continue;
    }
    const double ran = events_->now() - owner.resumed_at;
    owner_busy_s_[i] += ran;
    owner.jobs.front().seconds_left = std::max(0.0, owner.jobs.front().seconds_left - ran);
    owner.running = false;
    ++owner.generation;
    activity_->End(Part::kOptimizer);
  }
}

void Devices::Continue() {
  if (!interrupted_) {
    return;
  }
  interrupted_ = false;
  for (size_t i = 0; i < owners_.size(); ++i) {
    if (!owners_[i].jobs.empty()) {
      StartFirst(i);
    }
  }
}

void Devices::StartFirst(size_t index) {
  Owner& owner = owners_[index];
  Job& job = owner.jobs.front();
  owner.running = true;
  owner.resumed_at = events_->now();
  if (job.first_start < 0.0) {
    job.first_start = events_->now();
  }
  activity_->Begin(Part::kOptimizer);
  const uint64_t generation = ++owner.generation;
  events_->After(job.seconds_left, [this, index, generation] { FinishFirst(index, generation); });
}

void Devices::FinishFirst(size_t index, uint64_t generation) {
  Owner& owner = owners_[index];
  if (generation != owner.generation) {
    return;
  }
  owner_busy_s_[index] += events_->now() - owner.resumed_at;
  owner.running = false;
  activity_->End(Part::kOptimizer);
  const Job job = std::move(owner.jobs.front());
  owner.jobs.pop_front();
  if (spans_ != nullptr) {
    spans_->push_back(
        {static_cast<int>(index), job.work.kind, job.first_start, events_->now(), job.work.label});
  }
  if (!owner.jobs.empty()) {
    StartFirst(index);
  }
  job.done();
}

}  // namespace dmuon::simulator
