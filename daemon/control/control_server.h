// The Unix socket and the gRPC server behind it.
//
// Connections are accepted here, the peer's user is checked (SO_PEERCRED), then the descriptor is
// handed to gRPC. The socket file is 0600 and removed when the server goes.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "daemon/control/control_port.h"

namespace dmuon {

class ControlServer {
 public:
  // Throws std::runtime_error: another dmuond listens at `path`, the path is no socket, or a system
  // call failed. A socket file that nobody listens on is stale and replaced.
  ControlServer(const std::string& path, ControlPort& port);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

 private:
  struct Grpc;
  void AcceptLoop();

  std::string path_;
  int listener_ = -1;
  std::atomic<bool> stop_{false};
  std::unique_ptr<Grpc> grpc_;
  std::thread acceptor_;
};

}  // namespace dmuon
