// The control connection to the daemon. gRPC types stay in rpc.h, which only .cc files include.
#pragma once

#include <memory>
#include <string>

#include "proto/status.h"

namespace dmuon::client {

struct Rpc;

// Belongs to the process that opened it: gRPC does not survive fork.
class Connection {
 public:
  // Waits up to `timeout_s` for a daemon at `address`, a gRPC address such as unix:/path.
  static Result<std::unique_ptr<Connection>> Open(const std::string& address, double timeout_s);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // FailedPrecondition in a fork of the process that opened the connection.
  Status CheckProcess() const;
  Rpc& rpc() { return *rpc_; }

 private:
  explicit Connection(std::unique_ptr<Rpc> rpc);
  std::unique_ptr<Rpc> rpc_;
};

// This user's Unix socket, where dmuond listens unless its configuration says otherwise.
std::string DefaultAddress();

}  // namespace dmuon::client
