// What the devices compute: trainers first, owners in the gaps.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "scheduler/simulator/activity.h"

namespace dmuon::simulator {

// Trainers of all devices compute the same at the same time. A device's owner takes its jobs in the
// order in which they came and has the device only while the trainers wait, unless it has a device
// of its own; a job that is interrupted goes on where it was.
class Devices {
 public:
  struct Work {
    SpanKind kind = SpanKind::kForward;
    double seconds = 0.0;
    std::string label;
  };

  // `events`, `activity` and `spans` outlive this object; `spans` null: no timeline.
  Devices(int count, bool owners_apart, EventQueue* events, Activity* activity,
          std::vector<Span>* spans);

  // On every device; one at a time.
  void RunOnAll(Work work, Action done);

  // For one device's owner.
  void RunForOwner(int owner, Work work, Action done);

  // For how long an owner's jobs have run.
  const std::vector<double>& owner_busy_s() const { return owner_busy_s_; }

 private:
  struct Job {
    Work work;
    double seconds_left;
    double first_start;  // < 0: not yet
    Action done;
  };
  struct Owner {
    std::deque<Job> jobs;
    bool running = false;
    double resumed_at = 0.0;
    uint64_t generation = 0;  // of the event that ends the first job; older events are stale
  };

  void Interrupt();
  void Continue();
  void StartFirst(size_t index);
  void FinishFirst(size_t index, uint64_t generation);

  EventQueue* events_;
  Activity* activity_;
  std::vector<Span>* spans_;
  bool owners_apart_;
  bool trainers_busy_ = false;
  bool interrupted_ = false;
  std::vector<Owner> owners_;
  std::vector<double> owner_busy_s_;
};

}  // namespace dmuon::simulator
