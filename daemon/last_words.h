// What a process says when it is told to abort: who is gone, and what was pending.
#pragma once

#include <string>

namespace dmuon {

class MpiWorld;

// One line: the ranks on this host whose process is gone ("owner 1 (pid 4711 on gpu-07)"), or that
// none is, and `pending`. mpirun sends SIGTERM to the survivors when a rank has died, so this is
// where its name can still be told.
std::string LastWords(const MpiWorld& world, int signal, const std::string& pending);

}  // namespace dmuon
