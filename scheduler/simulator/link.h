// One direction of one link: a port of a device, a network card, a fabric.
#pragma once

#include <array>
#include <cstdint>
#include <deque>

#include "scheduler/simulator/event_queue.h"

namespace dmuon::simulator {

// Who sends. A link serves each kind first come, first served, and shares its bandwidth equally
// between the kinds that have something to send: collectives are not stuck behind a long queue of
// buckets, and buckets keep the order in which they were sent.
enum class Traffic { kTraining, kOwners };

class Link {
 public:
  // `events` outlives the link. `bytes_per_s` > 0.
  Link(EventQueue* events, double bytes_per_s) : events_(events), bytes_per_s_(bytes_per_s) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Queues `bytes` >= 0. `started` (may be empty) runs when the first byte enters the link,
  // `passed` when the last one has left it.
  void Send(Traffic traffic, double bytes, Action started, Action passed);

  double bytes() const { return bytes_; }  // accepted so far

 private:
  struct Job {
    double bytes_left;
    Action started;
    Action passed;
  };

  void Advance();
  void Reschedule();
  void FinishDue(uint64_t generation);
  std::deque<Job>& queue(Traffic traffic) { return queues_[static_cast<size_t>(traffic)]; }

  EventQueue* events_;
  double bytes_per_s_;
  double bytes_ = 0.0;
  std::array<std::deque<Job>, 2> queues_;
  double advanced_to_ = 0.0;
  size_t due_ = 0;           // the queue whose first job ends next
  uint64_t generation_ = 0;  // of the event that ends it; older events are stale
};

}  // namespace dmuon::simulator
