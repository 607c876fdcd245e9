#include "client/cpp/mpi_job.h"

#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include "client/cpp/mpi_check.h"

namespace dmuon::client {
namespace {

constexpr int kHelloTag = 0x4450;
constexpr int kCreateTag = kHelloTag + 1;
constexpr uint32_t kHelloMagic = 0x4f4c4c48;  // "HLLO"
constexpr uint32_t kHelloVersion = 1;

enum class Role : uint32_t { kOwner = 1, kTrainer = 2 };

struct Hello {
  uint32_t magic = kHelloMagic;
  uint32_t version = kHelloVersion;
  Role role = Role::kTrainer;
  uint32_t reserved = 0;
  int64_t pid = 0;
  char host[40] = {};
};
static_assert(sizeof(Hello) == 64);

// MPI_COMM_WORLD exists once in a process, and so does what its ranks create from it together.
struct Job {
  std::mutex mutex;
  bool joined = false;
  bool has_owner = false;
  MPI_Comm data = MPI_COMM_NULL;
};

Job& TheJob() {
  static Job job;
  return job;
}

Status CheckThreadLevel() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  int level = MPI_THREAD_SINGLE;
  if (initialized != 0 && finalized == 0) MPI_Query_thread(&level);
  if (level == MPI_THREAD_MULTIPLE) return Status::Ok();
  return Status::FailedPrecondition(
      "channel mpi: MPI does not run with MPI_THREAD_MULTIPLE in this process: call "
      "MPI_Init_thread(..., MPI_THREAD_MULTIPLE, ...) before opening the session");
}

// The hellos of all ranks; the own one at the own rank.
class HelloExchange {
 public:
  HelloExchange() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    mine_.pid = getpid();
    gethostname(mine_.host, sizeof(mine_.host) - 1);
    theirs_.assign(size_, mine_);
    requests_.assign(2 * static_cast<size_t>(size_), MPI_REQUEST_NULL);
  }

  Status Run(double timeout_s) {
    for (int other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      MPI_Irecv(&theirs_[other], sizeof(Hello), MPI_BYTE, other, kHelloTag, MPI_COMM_WORLD,
                &requests_[other]);
      MPI_Isend(&mine_, sizeof(Hello), MPI_BYTE, other, kHelloTag, MPI_COMM_WORLD,
                &requests_[size_ + other]);
    }
    return PollUntil(
        [&]() -> Result<bool> {
          int done = 0;
          Status status = CheckMpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(),
                                               &done, MPI_STATUSES_IGNORE),
                                   "MPI_Testall", "channel mpi: hello");
          if (!status.ok()) return status;
          return done != 0;
        },
        [&] { return Silent(timeout_s); }, timeout_s);
  }

  Result<bool> HasOwner() const {
    bool found = false;
    for (int other = 0; other < size_; ++other) {
      const Hello& hello = theirs_[other];
      if (hello.magic != kHelloMagic || hello.version != kHelloVersion) {
        return Status::Internal("channel mpi: rank " + std::to_string(other) +
                                " answered with version " + std::to_string(hello.version) +
                                " instead of " + std::to_string(kHelloVersion) +
                                ": it is another program, or of another version");
      }
      found = found || hello.role == Role::kOwner;
    }
    return found;
  }

 private:
  // Gives the requests up, so that MPI no longer writes into this object.
  Status Silent(double timeout_s) {
    std::string ranks;
    for (int other = 0; other < size_; ++other) {
      int done = 1;
      if (requests_[other] != MPI_REQUEST_NULL) {
        MPI_Test(&requests_[other], &done, MPI_STATUS_IGNORE);
      }
      if (done == 0) {
        ranks += (ranks.empty() ? "" : ", ") + std::to_string(other);
        MPI_Cancel(&requests_[other]);
        MPI_Wait(&requests_[other], MPI_STATUS_IGNORE);
      }
    }
    char seconds[32];
    std::snprintf(seconds, sizeof(seconds), "%g", timeout_s);
    return {StatusCode::kDeadlineExceeded,
            "channel mpi: no hello from rank(s) " + ranks + " of the MPI job within " + seconds +
                " s: every program of the job must be dmuond or a trainer that opens a session on "
                "channel mpi or joins the job"};
  }

  int rank_ = 0;
  int size_ = 0;
  Hello mine_;
  std::vector<Hello> theirs_;
  std::vector<MPI_Request> requests_;  // receives, then sends, by rank
};

Status Join(double timeout_s, Job* job) {
  HelloExchange exchange;
  if (Status status = exchange.Run(timeout_s); !status.ok()) return status;
  Result<bool> has_owner = exchange.HasOwner();
  if (!has_owner.ok()) return has_owner.status();
  job->has_owner = has_owner.value();
  if (!job->has_owner) return Status::Ok();
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  Status status = CheckMpi(MPI_Comm_create_group(MPI_COMM_WORLD, world, kCreateTag, &job->data),
                           "MPI_Comm_create_group", "channel mpi");
  MPI_Group_free(&world);
  if (status.ok()) MPI_Comm_set_errhandler(job->data, MPI_ERRORS_RETURN);
  return status;
}

}  // namespace

bool RunningInMpiJob() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized == 0 || finalized != 0) return false;
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size > 1;
}

Result<std::optional<int>> JoinMpiJob(double timeout_s) {
  if (Status status = CheckThreadLevel(); !status.ok()) return status;
  Job& job = TheJob();
  std::lock_guard lock(job.mutex);
  if (!job.joined) {
    if (Status status = Join(timeout_s, &job); !status.ok()) return status;
    job.joined = true;
  }
  if (!job.has_owner) return std::optional<int>();
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return std::optional<int>(rank);
}

MPI_Comm DataCommunicator() {
  std::lock_guard lock(TheJob().mutex);
  return TheJob().data;
}

}  // namespace dmuon::client
