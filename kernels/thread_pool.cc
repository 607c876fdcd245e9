#include "kernels/thread_pool.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace dmuon::kernels {
namespace {

// Loops follow each other closely inside a Newton-Schulz iteration: look for the next one for a few
// microseconds before going to sleep, no longer, because trainers need the cores.
constexpr int kSpins = 200;

template <typename Condition>
bool SpinUntil(Condition condition) {
  for (int i = 0; i < kSpins; ++i) {
    if (condition()) {
      return true;
    }
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }
  return false;
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads < 1) {
    throw std::invalid_argument("thread pool: threads = " + std::to_string(threads) +
                                ", must be at least 1");
  }
  workers_.reserve(threads - 1);
  for (int worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this, worker] { WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    generation_.fetch_add(1, std::memory_order_release);
  }
  start_.notify_all();
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

void ThreadPool::Run(int64_t count, Task task) {
  if (count <= 0) {
    return;
  }
  if (workers_.empty() || count == 1) {
    for (int64_t index = 0; index < count; ++index) {
      task.call(task.context, index, 0);
    }
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    task_ = task;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
  }
  start_.notify_all();
  Drain(0);
  const auto idle = [this] { return running_.load(std::memory_order_acquire) == 0; };
  if (!SpinUntil(idle)) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, idle);
  }
  const std::lock_guard lock(mutex_);
  if (error_) {
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

void ThreadPool::Drain(int worker) {
  try {
    for (int64_t index = next_.fetch_add(1); index < count_; index = next_.fetch_add(1)) {
      task_.call(task_.context, index, worker);
    }
  } catch (...) {
    next_.store(count_);
    const std::lock_guard lock(mutex_);
    if (!error_) {
      error_ = std::current_exception();
    }
  }
}

// Returns false when the pool stops.
bool ThreadPool::WaitForTask(uint64_t seen) {
  const auto started = [&] { return generation_.load(std::memory_order_acquire) != seen; };
  SpinUntil(started);
  std::unique_lock lock(mutex_);
  start_.wait(lock, started);
  return !stop_;
}

void ThreadPool::WorkerLoop(int worker) {
  for (uint64_t seen = 0; WaitForTask(seen); ++seen) {
    Drain(worker);
    const std::lock_guard lock(mutex_);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      done_.notify_one();
    }
  }
}

}  // namespace dmuon::kernels
