#include "scheduler/simulator/event_queue.h"

#include <cassert>
#include <utility>

namespace dmuon::simulator {

void EventQueue::At(double time, Action action) {
  assert(time >= now_);
  actions_[time].push_back(std::move(action));
}

void EventQueue::Run() {
  while (!actions_.empty()) {
    const auto first = actions_.begin();
    now_ = first->first;
    std::vector<Action>& due = first->second;
    for (size_t i = 0; i < due.size(); ++i) {  // grows while it runs
      const Action action = std::exchange(due[i], nullptr);
      action();
    }
    actions_.erase(first);
  }
}

}  // namespace dmuon::simulator
