// Signals: SIGUSR1 asks for a drain, SIGTERM and SIGINT mean abort now.
#pragma once

#include <functional>
#include <thread>

namespace dmuon {

// Blocks the signals that SignalThread waits for, in this thread and those that it starts, and
// keeps them from threads that libraries started before main. To be called first thing in main.
void BlockSignals();

// Waits for signals on a thread of its own.
class SignalThread {
 public:
  // `drain` and `abort` run on the signal thread; `abort` gets the signal and does not return.
  SignalThread(std::function<void()> drain, std::function<void(int)> abort);
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  std::thread thread_;
};

}  // namespace dmuon
