#include "scheduler/simulator/activity.h"

#include <algorithm>
#include <cassert>

namespace dmuon::simulator {

void Activity::Begin(Part part) {
  Advance();
  ++active_[static_cast<size_t>(part)];
}

void Activity::End(Part part) {
  Advance();
  assert(active_[static_cast<size_t>(part)] > 0);
  --active_[static_cast<size_t>(part)];
}

void Activity::Advance() {
  const double elapsed = events_->now() - advanced_to_;
  advanced_to_ = events_->now();
  const auto first =
      std::find_if(active_.begin(), active_.end(), [](int64_t count) { return count > 0; });
  if (first != active_.end()) {
    seconds_[static_cast<size_t>(first - active_.begin())] += elapsed;
  }
}

}  // namespace dmuon::simulator
