// Bucket messages point to point between the ranks of one MPI job.
#include <mpi.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "client/cpp/channel.h"
#include "client/cpp/lease.h"
#include "client/cpp/mpi_check.h"

namespace dmuon::client {
namespace {

constexpr int kToOwnerTag = 1;
constexpr int kToTrainerTag = 2;
constexpr double kTransferSeconds = 600.0;

class MpiChannel final : public Channel {
 public:
  MpiChannel(const Lease& lease, uint64_t session)
      : lease_(lease), session_(session), communicator_(DataCommunicator()) {
    MPI_Type_contiguous(kBucketAlignment, MPI_BYTE, &unit_);
    MPI_Type_commit(&unit_);
  }
  ~MpiChannel() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0) MPI_Type_free(&unit_);
  }

  Status Send(const Bucket& bucket, std::span<const std::byte> message) override {
    const std::string what = "push of bucket " + std::to_string(bucket.number());
    MPI_Request request = MPI_REQUEST_NULL;
    Status status =
        CheckMpi(MPI_Isend(message.data(), CountOf(message.size()), TypeOf(message.size()),
                           bucket.owner_mpi_rank(), kToOwnerTag, communicator_, &request),
                 "MPI_Isend", what);
    return status.ok() ? Finish(&request, MPI_STATUS_IGNORE, what) : status;
  }

  Status Receive(std::vector<Bucket>& buckets, uint64_t generation) override {
    // All receives are posted first; messages of one owner arrive in publish order.
    std::vector<std::pair<Bucket*, MPI_Request>> pending;
    for (Bucket& bucket : buckets) {
      if (!bucket.has_payload()) continue;
      pending.emplace_back(&bucket, MPI_REQUEST_NULL);
      const std::span<std::byte> buffer = bucket.buffer();
      Status status = CheckMpi(
          MPI_Irecv(buffer.data(), CountOf(buffer.size()), TypeOf(buffer.size()),
                    bucket.owner_mpi_rank(), kToTrainerTag, communicator_, &pending.back().second),
          "MPI_Irecv", Name(bucket));
      if (!status.ok()) return status;
    }
    Status result;
    for (auto& [bucket, request] : pending) {
      if (!result.ok()) {  // MPI must not write into buffers that are given up
        MPI_Cancel(&request);
        MPI_Request_free(&request);
        continue;
      }
      MPI_Status received;
      result = Finish(&request, &received, Name(*bucket));
      if (!result.ok()) continue;
      MPI_Count bytes = 0;
      MPI_Get_elements_x(&received, MPI_BYTE, &bytes);
      result = bucket->CheckPublished(bytes, session_, generation);
    }
    return result;
  }

 private:
  static std::string Name(const Bucket& bucket) {
    return "published bucket " + std::to_string(bucket.number());
  }
  static bool Large(size_t bytes) { return bytes > std::numeric_limits<int>::max(); }
  static int CountOf(size_t bytes) {
    return static_cast<int>(Large(bytes) ? bytes / kBucketAlignment : bytes);
  }
  MPI_Datatype TypeOf(size_t bytes) const { return Large(bytes) ? unit_ : MPI_BYTE; }

  Status Finish(MPI_Request* request, MPI_Status* received, const std::string& what) {
    Status status = PollUntil(
        [&]() -> Result<bool> {
          int done = 0;
          Status tested = CheckMpi(MPI_Test(request, &done, received), "MPI_Test", what);
          if (tested.ok() && done == 0) tested = lease_.Check(what);
          if (!tested.ok()) return tested;
          return done != 0;
        },
        [&] {
          return Status(StatusCode::kDeadlineExceeded,
                        what + ": not done within 600 s: see the daemon's log");
        },
        kTransferSeconds);
    if (!status.ok() && *request != MPI_REQUEST_NULL) {
      MPI_Cancel(request);
      MPI_Request_free(request);
    }
    return status;
  }

  const Lease& lease_;
  uint64_t session_;
  MPI_Comm communicator_;
  MPI_Datatype unit_ = MPI_DATATYPE_NULL;
};

}  // namespace

std::unique_ptr<Channel> MakeMpiChannel(const Lease& lease, uint64_t session) {
  return std::make_unique<MpiChannel>(lease, session);
}

}  // namespace dmuon::client
