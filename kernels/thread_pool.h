// A fixed set of threads that run the iterations of a loop.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace dmuon::kernels {

// Used by one thread at a time, which works too; `threads` counts it. Which worker runs which
// iteration is not defined, so an iteration must depend on its index only: then results are the
// same for any number of threads.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs body(index, worker) for index in [0, count); worker is in [0, threads()) and no two
  // iterations run on one worker at the same time. Returns when all are done. The first exception
  // that an iteration throws is thrown again here, after the others have stopped. No allocation.
  template <typename Body>
  void ParallelFor(int64_t count, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    Run(count, {[](void* context, int64_t index, int worker) {
                  (*static_cast<Plain*>(context))(index, worker);
                },
                const_cast<void*>(static_cast<const void*>(&body))});
  }

 private:
  struct Task {
    void (*call)(void* context, int64_t index, int worker) = nullptr;
    void* context = nullptr;
  };

  void Run(int64_t count, Task task);
  void WorkerLoop(int worker);
  void Drain(int worker);
  bool WaitForTask(uint64_t seen);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  std::atomic<uint64_t> generation_{0};  // raised for each loop, under mutex_
  std::atomic<int> running_{0};          // workers that have not finished the current loop
  bool stop_ = false;                    // under mutex_
  Task task_;
  int64_t count_ = 0;
  std::atomic<int64_t> next_{0};
  std::exception_ptr error_;  // under mutex_
};

}  // namespace dmuon::kernels
