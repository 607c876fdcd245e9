#include "daemon/last_words.h"

#include "daemon/transport/mpi_world.h"

namespace dmuon {
namespace {

// "owner 1 (pid 4711 on gpu-07)"
std::string NameOf(const MpiWorld& world, int rank) {
  std::string name = "the trainer of rank " + std::to_string(rank);
  for (int owner = 0; owner < world.owners(); ++owner) {
    if (world.world_rank_of_owner(owner) == rank) name = "owner " + std::to_string(owner);
  }
  const RankInfo& info = world.ranks()[rank];
  return name + " (pid " + std::to_string(info.pid) + " on " + info.host + ")";
}

}  // namespace

std::string LastWords(const MpiWorld& world, const std::vector<int>& ended, int signal,
                      const std::string& pending) {
  std::string cause;
  for (int rank : ended) cause += (cause.empty() ? "lost " : ", then ") + NameOf(world, rank);
  if (cause.empty()) cause = "signal " + std::to_string(signal) + ", nobody on this host is gone";
  return "aborting: " + cause + "; pending: " + pending +
         "; nothing of an unfinished step was kept";
}

}  // namespace dmuon
