// What a process says when it is told to abort: who is gone, and what was pending.
#pragma once

#include <string>
#include <vector>

namespace dmuon {

class MpiWorld;

// One line: whose process is gone on this host, in the order of `ended` (NeighbourWatch::Ended()),
// as in "lost owner 1 (pid 4711 on gpu-07), then owner 2 (...)", or that none is; and `pending`.
// mpirun sends SIGTERM to the survivors when a rank has died, so this is where its name can still
// be told.
std::string LastWords(const MpiWorld& world, const std::vector<int>& ended, int signal,
                      const std::string& pending);

}  // namespace dmuon
