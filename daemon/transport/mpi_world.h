// The MPI job: who is an owner, who is a trainer, and the communicators between them.
//
// Every program of an MPMD job must take part in the handshake (the client libraries do): each rank
// sends every other rank a 64-byte hello on MPI_COMM_WORLD and waits for theirs, so that a rank
// that never comes is named instead of waited for. After that the owners build their own
// communicator, and all ranks build the data communicator on which bucket messages travel, so that
// a trainer's own traffic never mixes with ours.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dmuon {

inline constexpr int kHelloTag = 0x4450;
inline constexpr int kDataCommTag = kHelloTag + 1;
inline constexpr int kOwnersCommTag = kHelloTag + 2;

enum class Role : uint32_t { kOwner = 1, kTrainer = 2 };

struct Hello {
  uint32_t magic = 0x4f4c4c48;
  uint32_t version = 1;
  Role role = Role::kOwner;
  uint32_t reserved = 0;
  int64_t pid = 0;
  char host[40] = {};
};
static_assert(sizeof(Hello) == 64);

struct RankInfo {
  Role role = Role::kOwner;
  int64_t pid = 0;
  std::string host;
};

// Initialises MPI and does the handshake; finalises when destroyed. One per process; used by one
// thread. The communicators are stored as opaque handles to keep MPI out of this header;
// transport.cc knows them.
class MpiWorld {
 public:
  // Throws std::runtime_error naming the ranks that stayed silent for `timeout_s`.
  explicit MpiWorld(double timeout_s);
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int owner() const { return owner_; }  // rank among the owners
  int owners() const { return static_cast<int>(owner_ranks_.size()); }
  int world_rank() const { return world_rank_; }
  int world_rank_of_owner(int owner) const { return owner_ranks_[owner]; }
  // By world rank.
  const std::vector<RankInfo>& ranks() const { return ranks_; }
  const RankInfo& owner_info(int owner) const { return ranks_[owner_ranks_[owner]]; }
  // Owners that share memory with this one, ascending; the first of them serves the node's socket.
  const std::vector<int>& owners_on_node() const { return owners_on_node_; }
  bool serves_socket() const { return owners_on_node_.front() == owner_; }
  bool has_trainers() const { return has_trainers_; }

  struct Communicators;
  const Communicators& communicators() const { return *communicators_; }

  // Ends the whole job with `code`. Does not return.
  [[noreturn]] static void Abort(int code);

 private:
  void ExchangeHellos(double timeout_s);
  void BuildCommunicators();

  int world_rank_ = 0;
  int owner_ = 0;
  std::vector<RankInfo> ranks_;
  std::vector<int> owner_ranks_;
  std::vector<int> owners_on_node_;
  bool has_trainers_ = false;
  std::unique_ptr<Communicators> communicators_;
};

}  // namespace dmuon
