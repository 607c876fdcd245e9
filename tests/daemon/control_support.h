// A control server on a socket of its own, with a port that records what reaches the engine, and a
// client's channel to it.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/control_port.h"
#include "daemon/control/control_server.h"

namespace dmuon::test {

class RecordingPort : public ControlPort {
 public:
  struct Submitted {
    std::string method;
    std::string request;
    Reply reply;
  };
  struct Forwarded {
    uint32_t owner = 0;
    BucketPtr bucket;
  };

  void Submit(std::string method, std::string request, Reply reply) override {
    std::lock_guard lock(mutex_);
    calls_.push_back({std::move(method), std::move(request), std::move(reply)});
    changed_.notify_all();
  }
  void ForwardBucket(uint32_t owner, BucketPtr bucket) override {
    std::lock_guard lock(mutex_);
    buckets_.push_back({owner, std::move(bucket)});
    changed_.notify_all();
  }
  Ingress& ingress() override { return ingress_; }
  BucketPool& pool() override { return pool_; }

  // The next call that was submitted; waits for it.
  Submitted Next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !calls_.empty(); });
    Submitted call = std::move(calls_.front());
    calls_.erase(calls_.begin());
    return call;
  }
  std::vector<Forwarded> forwarded() {
    std::lock_guard lock(mutex_);
    return buckets_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Submitted> calls_;
  std::vector<Forwarded> buckets_;
  Ingress ingress_;
  BucketPool pool_;
};

class ControlTest : public testing::Test {
 protected:
  ControlTest() {
    folder_ = testing::TempDir() + "dmuon-control-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = folder_ + "/d.sock";
  }
  ~ControlTest() override {
    server_.reset();
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }
  void Start() {
    server_.emplace(path_, port_);
    channel_ = grpc::CreateChannel("unix:" + path_, grpc::InsecureChannelCredentials());
  }

  std::string folder_;
  std::string path_;
  RecordingPort port_;
  std::optional<ControlServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace dmuon::test
