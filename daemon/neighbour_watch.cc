#include "daemon/neighbour_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "daemon/transport/mpi_world.h"

namespace dmuon {

NeighbourWatch::NeighbourWatch(const MpiWorld& world) : stop_(eventfd(0, EFD_CLOEXEC)) {
  if (stop_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  const RankInfo& own = world.ranks()[world.world_rank()];
  for (int rank = 0; rank < static_cast<int>(world.ranks().size()); ++rank) {
    const RankInfo& info = world.ranks()[rank];
    if (rank == world.world_rank() || info.host != own.host) continue;
    // Not by name: glibc 2.36 declares it for C only.
    int pidfd = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(info.pid), 0));
    if (pidfd >= 0) {
      watched_.push_back({rank, pidfd});
    } else if (errno == ESRCH) {
      ended_.push_back(rank);
    }
  }
  thread_ = std::thread([this] { Run(); });
}

NeighbourWatch::~NeighbourWatch() {
  uint64_t one = 1;
  while (write(stop_, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  thread_.join();
  for (const Watched& neighbour : watched_) close(neighbour.pidfd);
  close(stop_);
}

std::vector<int> NeighbourWatch::Ended() const {
  std::lock_guard lock(mutex_);
  return ended_;
}

void NeighbourWatch::Run() {
  std::vector<pollfd> polled{{stop_, POLLIN, 0}};
  for (const Watched& neighbour : watched_) polled.push_back({neighbour.pidfd, POLLIN, 0});
  for (;;) {
    if (poll(polled.data(), polled.size(), -1) < 0) continue;  // EINTR
    if (polled[0].revents != 0) return;
    std::lock_guard lock(mutex_);
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      ended_.push_back(watched_[i - 1].rank);
      polled[i].fd = -1;  // poll skips it from now on
    }
  }
}

}  // namespace dmuon
