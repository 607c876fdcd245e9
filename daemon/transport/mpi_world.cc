#include "daemon/transport/mpi_world.h"

#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>

#include "daemon/transport/communicators.h"
#include "daemon/transport/mpi_check.h"

namespace dmuon {
namespace {

using Clock = std::chrono::steady_clock;

Hello OwnHello() {
  Hello hello;
  hello.pid = getpid();
  gethostname(hello.host, sizeof(hello.host) - 1);
  return hello;
}

std::string SilentRanks(std::vector<MPI_Request>& receives) {
  std::string names;
  for (size_t rank = 0; rank < receives.size(); ++rank) {
    int done = 0;
    MPI_Test(&receives[rank], &done, MPI_STATUS_IGNORE);
    if (done == 0) names += (names.empty() ? "" : ", ") + std::to_string(rank);
  }
  return names;
}

}  // namespace

MpiWorld::MpiWorld(double timeout_s) {
  int provided = 0;
  DMUON_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided));
  if (provided < MPI_THREAD_SERIALIZED) {
    throw std::runtime_error(
        "this MPI offers no MPI_THREAD_SERIALIZED: use Open MPI built with thread support");
  }
  DMUON_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank_));
  ExchangeHellos(timeout_s);
  BuildCommunicators();
}

void MpiWorld::ExchangeHellos(double timeout_s) {
  int size = 0;
  DMUON_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  Hello own = OwnHello();
  std::vector<Hello> hellos(size);
  std::vector<MPI_Request> sends(size, MPI_REQUEST_NULL);
  std::vector<MPI_Request> receives(size, MPI_REQUEST_NULL);
  hellos[world_rank_] = own;
  for (int rank = 0; rank < size; ++rank) {
    if (rank == world_rank_) continue;
    DMUON_MPI(MPI_Irecv(&hellos[rank], sizeof(Hello), MPI_BYTE, rank, kHelloTag, MPI_COMM_WORLD,
                        &receives[rank]));
    DMUON_MPI(
        MPI_Isend(&own, sizeof(Hello), MPI_BYTE, rank, kHelloTag, MPI_COMM_WORLD, &sends[rank]));
  }
  auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  for (int done = 0; done == 0;) {
    int sent = 0;
    DMUON_MPI(MPI_Testall(size, sends.data(), &sent, MPI_STATUSES_IGNORE));
    DMUON_MPI(MPI_Testall(size, receives.data(), &done, MPI_STATUSES_IGNORE));
    done = done != 0 && sent != 0 ? 1 : 0;
    if (done != 0) break;
    if (Clock::now() > deadline) {
      throw std::runtime_error(
          "ranks " + SilentRanks(receives) + " of this MPI job said no hello within " +
          std::to_string(static_cast<int>(timeout_s)) +
          " s: every program of the job must start a dmuond or a client with channel mpi "
          "(timeouts.startup_s sets how long to wait)");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (int rank = 0; rank < size; ++rank) {
    const Hello& hello = hellos[rank];
    if (hello.magic != own.magic || hello.version != own.version) {
      throw std::runtime_error("rank " + std::to_string(rank) +
                               " of this MPI job speaks another version of the handshake: install "
                               "the same dmuond and client everywhere");
    }
    ranks_.push_back({hello.role, hello.pid, std::string(hello.host, strnlen(hello.host, 40))});
    if (hello.role == Role::kOwner) {
      if (rank == world_rank_) owner_ = static_cast<int>(owner_ranks_.size());
      owner_ranks_.push_back(rank);
    } else {
      has_trainers_ = true;
    }
  }
}

void MpiWorld::BuildCommunicators() {
  auto communicators = std::make_unique<Communicators>();
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group owners = MPI_GROUP_NULL;
  DMUON_MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
  DMUON_MPI(MPI_Group_incl(world, this->owners(), owner_ranks_.data(), &owners));
  DMUON_MPI(MPI_Comm_create_group(MPI_COMM_WORLD, world, kDataCommTag, &communicators->data));
  DMUON_MPI(MPI_Comm_create_group(MPI_COMM_WORLD, owners, kOwnersCommTag, &communicators->owners));
  DMUON_MPI(MPI_Comm_set_errhandler(communicators->data, MPI_ERRORS_RETURN));
  DMUON_MPI(MPI_Comm_set_errhandler(communicators->owners, MPI_ERRORS_RETURN));

  MPI_Comm node = MPI_COMM_NULL;
  DMUON_MPI(MPI_Comm_split_type(communicators->owners, MPI_COMM_TYPE_SHARED, owner_, MPI_INFO_NULL,
                                &node));
  MPI_Group node_group = MPI_GROUP_NULL;
  DMUON_MPI(MPI_Comm_group(node, &node_group));
  int node_size = 0;
  DMUON_MPI(MPI_Group_size(node_group, &node_size));
  std::vector<int> node_ranks(node_size);
  for (int i = 0; i < node_size; ++i) node_ranks[i] = i;
  owners_on_node_.resize(node_size);
  DMUON_MPI(MPI_Group_translate_ranks(node_group, node_size, node_ranks.data(), owners,
                                      owners_on_node_.data()));
  MPI_Group_free(&node_group);
  MPI_Comm_free(&node);
  MPI_Group_free(&owners);
  MPI_Group_free(&world);
  communicators_ = std::move(communicators);
}

MpiWorld::~MpiWorld() {
  if (communicators_ != nullptr) {
    MPI_Comm_free(&communicators_->owners);
    MPI_Comm_free(&communicators_->data);
  }
  MPI_Finalize();
}

void MpiWorld::Abort(int code) {
  MPI_Abort(MPI_COMM_WORLD, code);
  _exit(code);
}

}  // namespace dmuon
