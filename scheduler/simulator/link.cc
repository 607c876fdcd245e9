#include "scheduler/simulator/link.h"

#include <algorithm>

namespace dmuon::simulator {

void Link::Send(Traffic traffic, double bytes, Action started, Action passed) {
  bytes_ += bytes;
  std::deque<Job>& jobs = queue(traffic);
  if (!jobs.empty()) {
    jobs.push_back({bytes, std::move(started), std::move(passed)});
    return;
  }
  Advance();
  jobs.push_back({bytes, nullptr, std::move(passed)});
  Reschedule();
  if (started) {
    started();
  }
}

// Takes what has passed since the last call off both first jobs.
void Link::Advance() {
  const double elapsed = events_->now() - advanced_to_;
  advanced_to_ = events_->now();
  if (elapsed <= 0.0) {
    return;
  }
  const double share = queues_[0].empty() || queues_[1].empty() ? 1.0 : 0.5;
  for (std::deque<Job>& jobs : queues_) {
    if (!jobs.empty()) {
      Job& job = jobs.front();
      job.bytes_left = std::max(0.0, job.bytes_left - elapsed * share * bytes_per_s_);
    }
  }
}

void Link::Reschedule() {
  ++generation_;
  if (queues_[0].empty() && queues_[1].empty()) {
    return;
  }
  const bool both = !queues_[0].empty() && !queues_[1].empty();
  if (both) {
    due_ = queues_[1].front().bytes_left < queues_[0].front().bytes_left ? 1 : 0;
  } else {
    due_ = queues_[0].empty() ? 1 : 0;
  }
  const double rate = both ? 0.5 * bytes_per_s_ : bytes_per_s_;
  events_->After(queues_[due_].front().bytes_left / rate,
                 [this, generation = generation_] { FinishDue(generation); });
}

void Link::FinishDue(uint64_t generation) {
  if (generation != generation_) {
    return;
  }
  Advance();
  std::deque<Job>& jobs = queues_[due_];
  const Action passed = std::move(jobs.front().passed);
  jobs.pop_front();
  const Action started = jobs.empty() ? nullptr : std::move(jobs.front().started);
  Reschedule();
  if (started) {
    started();
  }
  if (passed) {
    passed();
  }
}

}  // namespace dmuon::simulator
