#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <list>
#include <map>
#include <tuple>
#include <vector>

#include "daemon/transport/bucket_pool.h"
#include "daemon/transport/communicators.h"
#include "daemon/transport/mpi_check.h"
#include "daemon/transport/mpi_world.h"
#include "daemon/transport/transport.h"

namespace dmuon {
namespace {

// Tags on the data communicator.
constexpr int kToOwnerTag = 1;
constexpr int kToTrainerTag = 2;
// Tags on the owners' communicator.
constexpr int kControlTag = 1;
constexpr int kBucketTag = 2;

constexpr int64_t kUnit = kBucketAlignment;  // bucket messages are counted in units of 64 bytes

class MpiTransport : public Transport {
 public:
  MpiTransport(const MpiWorld& world, BucketPool& pool)
      : world_(world),
        pool_(pool),
        owners_(world.communicators().owners),
        data_(world.communicators().data) {
    DMUON_MPI(MPI_Type_contiguous(kUnit, MPI_BYTE, &unit_));
    DMUON_MPI(MPI_Type_commit(&unit_));
  }
  ~MpiTransport() override { MPI_Type_free(&unit_); }

  void SendToOwner(int owner, const v1::OwnerMessage& message) override {
    if (owner == world_.owner()) {
      loopback_.push_back({message, nullptr});
      return;
    }
    Send& send = sends_.emplace_back();
    send.text = message.SerializeAsString();
    DMUON_MPI(MPI_Isend(send.text.data(), static_cast<int>(send.text.size()), MPI_BYTE, owner,
                        kControlTag, owners_, &send.request));
  }

  void SendBucketToOwner(int owner, BucketPtr bucket) override {
    if (owner == world_.owner()) {
      loopback_.push_back({{}, std::move(bucket)});
      return;
    }
    SendBucket(std::move(bucket), owner, kBucketTag, owners_);
  }

  void SendBucketToTrainer(int world_rank, BucketPtr bucket) override {
    SendBucket(std::move(bucket), world_rank, kToTrainerTag, data_);
  }

  void SetMaxBucketBytes(int64_t bytes) override { max_bucket_bytes_ = bytes; }

  bool Poll(TransportHandler& handler) override {
    bool worked = DeliverLoopback(handler);
    worked |= ReceiveControl(handler);
    worked |= ProbeBuckets(owners_, kBucketTag, handler);
    if (world_.has_trainers()) worked |= ProbeBuckets(data_, kToOwnerTag, handler);
    worked |= DeliverBuckets(handler);
    worked |= RetireSends();
    return worked;
  }

  bool SendsDone() const override { return sends_.empty() && loopback_.empty(); }

  void Flush(double timeout_s) override {
    auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
    while (!sends_.empty() && std::chrono::steady_clock::now() < deadline) RetireSends();
  }

 private:
  struct Send {
    MPI_Request request = MPI_REQUEST_NULL;
    std::string text;  // one of the two
    BucketPtr bucket;
  };
  struct Receive {
    MPI_Request request = MPI_REQUEST_NULL;
    std::shared_ptr<BucketBuffer> bucket;
  };
  struct Loopback {
    v1::OwnerMessage message;
    BucketPtr bucket;
  };
  struct Source {
    MPI_Comm comm;
    int rank;
    bool operator<(const Source& other) const {
      return std::tie(comm, rank) < std::tie(other.comm, other.rank);
    }
  };

  void SendBucket(BucketPtr bucket, int rank, int tag, MPI_Comm comm) {
    Send& send = sends_.emplace_back();
    send.bucket = std::move(bucket);
    DMUON_MPI(MPI_Isend(send.bucket->data(), static_cast<int>(send.bucket->bytes() / kUnit), unit_,
                        rank, tag, comm, &send.request));
  }

  bool DeliverLoopback(TransportHandler& handler) {
    bool any = !loopback_.empty();
    for (size_t n = loopback_.size(); n > 0; --n) {  // what is added meanwhile waits its turn
      Loopback item = std::move(loopback_.front());
      loopback_.pop_front();
      if (item.bucket) {
        handler.OnOwnerBucket(world_.owner(), std::move(item.bucket));
      } else {
        handler.OnOwnerMessage(world_.owner(), item.message);
      }
    }
    return any;
  }

  bool ReceiveControl(TransportHandler& handler) {
    bool any = false;
    for (;;) {
      int found = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status;
      DMUON_MPI(MPI_Improbe(MPI_ANY_SOURCE, kControlTag, owners_, &found, &message, &status));
      if (found == 0) return any;
      any = true;
      int bytes = 0;
      DMUON_MPI(MPI_Get_count(&status, MPI_BYTE, &bytes));
      std::string text(bytes, '\0');
      DMUON_MPI(MPI_Mrecv(text.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE));
      v1::OwnerMessage parsed;
      if (!parsed.ParseFromString(text)) {
        throw std::runtime_error("owner " + std::to_string(status.MPI_SOURCE) +
                                 " sent a message that does not parse: do all owners run the same "
                                 "dmuond?");
      }
      handler.OnOwnerMessage(status.MPI_SOURCE, parsed);
    }
  }

  // Starts receiving every bucket message that has arrived.
  bool ProbeBuckets(MPI_Comm comm, int tag, TransportHandler& handler) {
    bool any = false;
    for (;;) {
      int found = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status;
      DMUON_MPI(MPI_Improbe(MPI_ANY_SOURCE, tag, comm, &found, &message, &status));
      if (found == 0) return any;
      any = true;
      int units = 0;
      DMUON_MPI(MPI_Get_count(&status, unit_, &units));
      int64_t bytes = units == MPI_UNDEFINED ? -1 : units * kUnit;
      if (bytes < static_cast<int64_t>(sizeof(BucketHeader)) || bytes > max_bucket_bytes_) {
        Refuse(message, status, comm, bytes, handler);
        continue;
      }
      Receive& receive = receives_[{comm, status.MPI_SOURCE}].emplace_back();
      receive.bucket = pool_.Take(bytes);
      DMUON_MPI(MPI_Imrecv(receive.bucket->data(), units, unit_, &message, &receive.request));
    }
  }

  // Takes a message off the wire without keeping it; a truncation error is what we expect.
  void Refuse(MPI_Message message, const MPI_Status& status, MPI_Comm comm, int64_t bytes,
              TransportHandler& handler) {
    std::byte sink[sizeof(BucketHeader)];
    MPI_Mrecv(sink, sizeof(sink), MPI_BYTE, &message, MPI_STATUS_IGNORE);
    std::string what = bytes < 0 ? "a message whose length is not a multiple of 64 bytes"
                                 : "a message of " + std::to_string(bytes) +
                                       " bytes; a bucket message has between 64 and " +
                                       std::to_string(max_bucket_bytes_);
    if (comm == data_) handler.OnTrainerGarbage(status.MPI_SOURCE, what);
  }

  // Hands over what has arrived completely, in order for each source.
  bool DeliverBuckets(TransportHandler& handler) {
    bool any = false;
    for (auto& [source, queue] : receives_) {
      while (!queue.empty()) {
        int done = 0;
        DMUON_MPI(MPI_Test(&queue.front().request, &done, MPI_STATUS_IGNORE));
        if (done == 0) break;
        any = true;
        std::shared_ptr<BucketBuffer> bucket = std::move(queue.front().bucket);
        queue.pop_front();
        if (source.comm == data_) {
          handler.OnTrainerBucket(source.rank, std::move(bucket));
        } else {
          handler.OnOwnerBucket(source.rank, std::move(bucket));
        }
      }
    }
    return any;
  }

  bool RetireSends() {
    size_t before = sends_.size();
    for (auto it = sends_.begin(); it != sends_.end();) {
      int done = 0;
      DMUON_MPI(MPI_Test(&it->request, &done, MPI_STATUS_IGNORE));
      it = done != 0 ? sends_.erase(it) : std::next(it);
    }
    return sends_.size() != before;
  }

  const MpiWorld& world_;
  BucketPool& pool_;
  MPI_Comm owners_;
  MPI_Comm data_;
  MPI_Datatype unit_ = MPI_DATATYPE_NULL;
  int64_t max_bucket_bytes_ = 1 << 20;
  std::list<Send> sends_;
  std::deque<Loopback> loopback_;
  std::map<Source, std::deque<Receive>> receives_;
};

}  // namespace

std::unique_ptr<Transport> MakeMpiTransport(const MpiWorld& world, BucketPool& pool) {
  return std::make_unique<MpiTransport>(world, pool);
}

}  // namespace dmuon
