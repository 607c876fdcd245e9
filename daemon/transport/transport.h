// Messages between owners, and bucket messages between owners and the trainers of the MPI job.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/transport/bucket_buffer.h"
#include "dmuon/v1/owner.pb.h"
#include "proto/status.h"

namespace dmuon {

class BucketPool;
class MpiWorld;

// What arrives. Called from Transport::Poll.
class TransportHandler {
 public:
  virtual ~TransportHandler() = default;
  virtual void OnOwnerMessage(int owner, const v1::OwnerMessage& message) = 0;
  // From a trainer on the `mpi` channel; `world_rank` is its rank in the job.
  virtual void OnTrainerBucket(int world_rank, BucketPtr bucket) = 0;
  // A message from a trainer that could not be taken: too large, or not a multiple of 64 bytes.
  virtual void OnTrainerGarbage(int world_rank, const std::string& what) = 0;
  // Relayed by another owner: a gradient or initial value for this one, or published parameters for
  // a trainer that is attached here.
  virtual void OnOwnerBucket(int owner, BucketPtr bucket) = 0;
};

// Used by the thread that owns MPI only. Sends never block and keep their order per destination;
// messages to oneself are delivered by the next Poll.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual void SendToOwner(int owner, const v1::OwnerMessage& message) = 0;
  virtual void SendBucketToOwner(int owner, BucketPtr bucket) = 0;
  virtual void SendBucketToTrainer(int world_rank, BucketPtr bucket) = 0;

  // Bound on what is received; larger bucket messages are refused before memory is taken.
  virtual void SetMaxBucketBytes(int64_t bytes) = 0;

  // Makes progress and delivers what has arrived. Returns whether there was anything.
  virtual bool Poll(TransportHandler& handler) = 0;
  // Whether everything that was sent has left.
  virtual bool SendsDone() const = 0;
  // Waits until sends have left, at most `timeout_s`.
  virtual void Flush(double timeout_s) = 0;
};

// Both arguments outlive the transport.
std::unique_ptr<Transport> MakeMpiTransport(const MpiWorld& world, BucketPool& pool);

}  // namespace dmuon
