#include "daemon/control/control_server.h"

#include <fcntl.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "daemon/control/services.h"

namespace dmuon {
namespace {

constexpr int kMaxMessageBytes = 256 << 20;  // specs of tens of thousands of parameters fit
constexpr int kPollMs = 200;

[[noreturn]] void Fail(const std::string& what, const std::string& path) {
  throw std::runtime_error(what + " " + path + ": " + std::strerror(errno));
}

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);  // the config checked its length
  return address;
}

// Removes a socket file that nobody listens on.
void RemoveStale(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return;
  if (!S_ISSOCK(info.st_mode)) {
    throw std::runtime_error("control.address: " + path +
                             " exists and is not a socket; choose another path");
  }
  int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe < 0) Fail("socket", path);
  sockaddr_un address = AddressOf(path);
  bool alive = connect(probe, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  close(probe);
  if (alive) {
    throw std::runtime_error("control.address: another dmuond listens at " + path +
                             "; stop it or choose another path");
  }
  spdlog::warn("replacing the stale socket {} (its owner is gone)", path);
  unlink(path.c_str());
}

int Listen(const std::string& path) {
  RemoveStale(path);
  int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) Fail("socket", path);
  sockaddr_un address = AddressOf(path);
  mode_t before = umask(0177);
  int bound = bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  umask(before);
  if (bound != 0 || listen(listener, SOMAXCONN) != 0) Fail("control.address: listen on", path);
  return listener;
}

bool PeerAllowed(int connection) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  if (peer.uid == geteuid() || peer.uid == 0) return true;
  spdlog::warn("refused a connection from user {} (pid {}): this daemon serves user {}", peer.uid,
               peer.pid, geteuid());
  return false;
}

}  // namespace

struct ControlServer::Grpc {
  explicit Grpc(ControlPort& port) : relay(port), control(relay), admin(relay), data(relay) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.SetMaxSendMessageSize(kMaxMessageBytes);
    builder.RegisterService(&control);
    builder.RegisterService(&admin);
    builder.RegisterService(&data);
    server = builder.BuildAndStart();
    if (!server) throw std::runtime_error("the gRPC server did not start");
  }

  Relay relay;
  ControlService control;
  AdminService admin;
  DataService data;
  std::unique_ptr<grpc::Server> server;
};

ControlServer::ControlServer(const std::string& path, ControlPort& port)
    : path_(path), listener_(Listen(path)), grpc_(std::make_unique<Grpc>(port)) {
  acceptor_ = std::thread([this] { AcceptLoop(); });
}

void ControlServer::AcceptLoop() {
  while (!stop_) {
    pollfd waiting{listener_, POLLIN, 0};
    if (poll(&waiting, 1, kPollMs) <= 0) continue;
    int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) continue;
    if (PeerAllowed(connection)) {
      grpc::AddInsecureChannelFromFd(grpc_->server.get(), connection);
    } else {
      close(connection);
    }
  }
}

ControlServer::~ControlServer() {
  unlink(path_.c_str());
  stop_ = true;
  acceptor_.join();
  close(listener_);
  grpc_->relay.Stop();
  grpc_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
}

}  // namespace dmuon
