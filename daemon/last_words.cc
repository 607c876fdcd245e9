#include "daemon/last_words.h"

#include <fstream>

#include "daemon/transport/mpi_world.h"

namespace dmuon {
namespace {

// Whether the process runs; a zombie does not.
bool IsAlive(int64_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(stat, text)) return false;
  size_t name_end = text.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= text.size() ||
         (text[name_end + 2] != 'Z' && text[name_end + 2] != 'X');
}

}  // namespace

std::string LastWords(const MpiWorld& world, int signal, const std::string& pending) {
  const RankInfo& own = world.ranks()[world.world_rank()];
  std::string gone;
  int owner = 0;
  for (size_t rank = 0; rank < world.ranks().size(); ++rank) {
    const RankInfo& info = world.ranks()[rank];
    std::string name = info.role == Role::kOwner ? "owner " + std::to_string(owner++)
                                                 : "the trainer of rank " + std::to_string(rank);
    if (info.host != own.host || IsAlive(info.pid)) continue;
    gone += (gone.empty() ? "" : ", ") + name + " (pid " + std::to_string(info.pid) + " on " +
            info.host + ")";
  }
  std::string cause = gone.empty()
                          ? "signal " + std::to_string(signal) + ", nobody on this host is gone"
                          : "lost " + gone;
  return "aborting: " + cause + "; pending: " + pending +
         "; nothing of an unfinished step was kept";
}

}  // namespace dmuon
