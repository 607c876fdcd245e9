// Simulated time: what happens when, in one thread and without a clock.
#pragma once

#include <functional>
#include <map>
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
  double now_ = 0.0;
  // By time: alike nodes do the same at exactly the same time, so there are far fewer times than
  // actions.
  std::map<double, std::vector<Action>> actions_;
};

}  // namespace dmuon::simulator
