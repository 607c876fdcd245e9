// The denominator of every bandwidth figure: what plain copies of large arrays reach right now.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device.h"
#include "kernels/thread_pool.h"

namespace dmuon::kernels::testing {

enum class Clock {
  kWall,
  kCpu,  // processor time of the process over its threads: for machines whose cores are shared
};

// Seconds that `run` takes on `threads` threads.
double TimeOnce_s(Clock clock, int threads, const std::function<void()>& run);

// Times of repeated runs of one thing.
class RunTimes {
 public:
  void Add(double time_s) { times_.push_back(time_s); }
  bool empty() const { return times_.empty(); }
  double median_s() const;
  double fastest_s() const;

 private:
  std::vector<double> times_;
};

// Copies an array on all threads in several ways. Whoever measures a kernel calls RunRound before
// each run of it: both then see the same machine, whatever else runs on it.
class CopyRate {
 public:
  struct Rate {
    double median_gb_s = 0.0;   // of the way with the best median
    double fastest_gb_s = 0.0;  // of the fastest run of any way
    std::string how;            // the way of the median
  };

  // Array memory of `device`, of the same kind as a kernel's; `device` outlives this.
  CopyRate(Device& device, int threads, int64_t array_bytes, Clock clock);

  // Every way once.
  void RunRound();
  // Forgets the rounds so far.
  void Clear() { times_.assign(times_.size(), {}); }
  // Bytes read plus bytes written per second.
  Rate Best() const;

 private:
  void Run(int way);

  ThreadPool pool_;
  Clock clock_;
  Buffer from_;
  Buffer to_;
  std::vector<RunTimes> times_;
};

}  // namespace dmuon::kernels::testing
