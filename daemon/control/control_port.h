// What the gRPC services ask of the engine. Any thread.
#pragma once

#include <string>

#include "daemon/control/ingress.h"
#include "daemon/coordinator/coordinator_host.h"
#include "daemon/transport/bucket_buffer.h"
#include "daemon/transport/bucket_pool.h"

namespace dmuon {

class ControlPort {
 public:
  virtual ~ControlPort() = default;
  // Runs a call on the coordinator, wherever it is; `reply` comes on the engine thread.
  virtual void Submit(std::string method, std::string request, Reply reply) = 0;
  // Sends an accepted bucket message on to its owner.
  virtual void ForwardBucket(uint32_t owner, BucketPtr bucket) = 0;
  virtual Ingress& ingress() = 0;
  virtual BucketPool& pool() = 0;
};

}  // namespace dmuon
