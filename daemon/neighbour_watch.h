// Watches the other processes of the MPI job on this host: who ended, in which order.
#pragma once

#include <mutex>
#include <thread>
#include <vector>

namespace dmuon {

class MpiWorld;

// When one rank dies, mpirun ends all others too: only the order tells who was first. A thread
// that sleeps until a process ends (pidfd_open, Linux 5.3) writes it down.
class NeighbourWatch {
 public:
  // Throws std::system_error when the thread can't be started. A process that can't be watched
  // counts as running.
  explicit NeighbourWatch(const MpiWorld& world);
  ~NeighbourWatch();
  NeighbourWatch(const NeighbourWatch&) = delete;
  NeighbourWatch& operator=(const NeighbourWatch&) = delete;

  // World ranks whose process has ended so far, first one first. Any thread.
  std::vector<int> Ended() const;

 private:
  struct Watched {
    int rank = 0;
    int pidfd = -1;
  };
  void Run();

  std::vector<Watched> watched_;
  int stop_ = -1;  // eventfd that wakes the thread at the end
  mutable std::mutex mutex_;
  std::vector<int> ended_;
  std::thread thread_;
};

}  // namespace dmuon
