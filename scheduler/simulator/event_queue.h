// Simulated time: what happens when, in one thread and without a clock.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

namespace dmuon::simulator {

using Action = std::function<void()>;

// Runs actions in the order of their times, and those of one time in the order of posting: the same
// input gives the same run.
class EventQueue {
 public:
  double now() const { return now_; }  // seconds

  // `time` is not before now().
  void At(double time, Action action);
  void After(double seconds, Action action) { At(now_ + seconds, std::move(action)); }

  // Until nothing is left; actions post more.
  void Run();

 private:
  struct Entry {
    double time;
    uint64_t number;
    uint32_t slot;  // of the action: entries move often, actions never
    bool operator>(const Entry& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  double now_ = 0.0;
  uint64_t posted_ = 0;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> entries_;
  std::vector<Action> actions_;
  std::vector<uint32_t> free_slots_;
};

}  // namespace dmuon::simulator
