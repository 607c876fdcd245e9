// The thread on which an owner's arithmetic runs, one job after another.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "daemon/inbox.h"

namespace dmuon {

// The device and everything allocated from it are used by jobs only.
class ComputeWorker {
 public:
  ComputeWorker();
  // Finishes the jobs that were posted, then joins.
  ~ComputeWorker();
  ComputeWorker(const ComputeWorker&) = delete;
  ComputeWorker& operator=(const ComputeWorker&) = delete;

  // Any thread.
  void Post(std::function<void()> job) { jobs_.Post(std::move(job)); }

 private:
  Inbox jobs_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace dmuon
