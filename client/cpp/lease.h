// The stream by which the daemon knows that this trainer lives, and the trainer that the daemon
// does.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "client/cpp/connection.h"
#include "proto/status.h"

namespace dmuon::v1 {
class StepReport;
class WaitReadyReply;
class WaitReadyRequest;
class WaitStepRequest;
}  // namespace dmuon::v1

namespace dmuon::client {

class Lease {
 public:
  // The connection must outlive the lease.
  Lease(Connection& connection, uint64_t session, uint32_t trainer);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // Not ok when the daemon has died or given the session up; `what` starts the message. Any thread.
  Status Check(const std::string& what) const;

  // Calls that may take long. They end with Check's status when the lease is lost meanwhile.
  Status WaitReady(const v1::WaitReadyRequest& request, double timeout_s,
                   v1::WaitReadyReply* reply);
  Status WaitStep(const v1::WaitStepRequest& request, const std::string& what,
                  v1::StepReport* reply);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dmuon::client
