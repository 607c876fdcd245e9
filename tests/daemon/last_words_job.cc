// One owner of an MPI job whose owner 1 is killed: the others say their last words.
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "daemon/last_words.h"
#include "daemon/neighbour_watch.h"
#include "daemon/signals.h"
#include "daemon/transport/communicators.h"
#include "daemon/transport/mpi_world.h"

int main() {
  // Before any thread starts: one that doesn't block SIGCONT would swallow it.
  dmuon::BlockSignals();
  sigset_t continued;
  sigemptyset(&continued);
  sigaddset(&continued, SIGCONT);
  pthread_sigmask(SIG_BLOCK, &continued, nullptr);
  dmuon::MpiWorld world(60);
  dmuon::NeighbourWatch neighbours(world);
  if (world.owner() == 0) {
    std::printf("before: %s\n",
                dmuon::LastWords(world, neighbours.Ended(), SIGTERM, "step 7, idle").c_str());
    std::printf("owner 1 is pid %ld\n", static_cast<long>(world.owner_info(1).pid));
    std::fflush(stdout);
  }
  // mpirun sends survivors SIGCONT, of which owner 2 dies here, and SIGTERM one second later.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, world.owner() == 2 ? SIGCONT : SIGTERM);
  MPI_Barrier(world.communicators().owners);
  if (world.owner() == 1) raise(SIGKILL);

  int received = 0;
  sigwait(&set, &received);
  if (world.owner() == 2) raise(SIGKILL);  // sanitizers linger in _exit
  // Owner 2's end wakes mpirun and the watch at the same time: SIGTERM may come first.
  for (int i = 0; i < 50 && neighbours.Ended().size() < 2; ++i) usleep(10'000);
  std::printf(
      "after: %s\n",
      dmuon::LastWords(world, neighbours.Ended(), received, "step 7, waiting for owner 1").c_str());
  std::fflush(stdout);
  _exit(128 + received);
}
