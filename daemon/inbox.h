// Work handed to the thread that owns an object: others post closures, the owner runs them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace dmuon {

class Inbox {
 public:
  using Task = std::function<void()>;

  // Any thread. Tasks run in the order in which they were posted.
  void Post(Task task) {
    {
      std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    wakeup_.notify_one();
  }

  // Owner thread: runs what is there. Returns whether anything was.
  bool RunAll() {
    {
      std::lock_guard lock(mutex_);
      running_.swap(tasks_);
    }
    for (Task& task : running_) task();
    bool ran = !running_.empty();
    running_.clear();
    return ran;
  }

  // Owner thread: sleeps until something is posted, at most `limit`.
  void WaitFor(std::chrono::microseconds limit) {
    std::unique_lock lock(mutex_);
    wakeup_.wait_for(lock, limit, [this] { return !tasks_.empty(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable wakeup_;
  std::vector<Task> tasks_;
  std::vector<Task> running_;  // owner thread only
};

}  // namespace dmuon
