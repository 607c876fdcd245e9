// The seam between a session and the ways in which bucket messages travel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "client/cpp/bucket.h"
#include "proto/status.h"

namespace dmuon::client {

class Connection;
class Lease;

// Send is called by one thread; Receive by another, while no Send is in progress. Neither waits for
// long once the lease is lost.
class Channel {
 public:
  virtual ~Channel() = default;

  // Sends a message of `bucket` to its owner. Returns when the bytes may be reused.
  virtual Status Send(const Bucket& bucket, std::span<const std::byte> message) = 0;

  // Receives, in order, the published message of each bucket that has a payload into its buffer,
  // and checks it.
  virtual Status Receive(std::vector<Bucket>& buckets, uint64_t generation) = 0;
};

// Streams chunks over the control connection, which must outlive the channel.
std::unique_ptr<Channel> MakeGrpcChannel(Connection& connection, uint64_t session,
                                         uint32_t trainer);

// Point to point to the owners' ranks. The process has joined the job (see mpi_job.h); the lease
// must outlive the channel.
std::unique_ptr<Channel> MakeMpiChannel(const Lease& lease, uint64_t session);

}  // namespace dmuon::client
