#include "scheduler/simulator/event_queue.h"

#include <cassert>
#include <utility>

namespace dmuon::simulator {

void EventQueue::At(double time, Action action) {
  assert(time >= now_);
  uint32_t slot = 0;
  if (free_slots_.empty()) {
    slot = static_cast<uint32_t>(actions_.size());
    actions_.push_back(std::move(action));
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
    actions_[slot] = std::move(action);
  }
  entries_.push({time, posted_++, slot});
}

void EventQueue::Run() {
  while (!entries_.empty()) {
    const Entry entry = entries_.top();
    entries_.pop();
    now_ = entry.time;
    const Action action = std::exchange(actions_[entry.slot], nullptr);
    free_slots_.push_back(entry.slot);
    action();
  }
}

}  // namespace dmuon::simulator
