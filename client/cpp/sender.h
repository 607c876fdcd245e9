// Sends bucket messages in the background, in order.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <set>
#include <span>
#include <thread>

#include "client/cpp/bucket.h"
#include "client/cpp/channel.h"
#include "proto/status.h"

namespace dmuon::client {

// Owned by the session's thread; has one thread of its own. After a failed send everything queued
// is dropped, and every wait returns that failure until Reset.
class Sender {
 public:
  // The channel must outlive the sender.
  explicit Sender(Channel& channel);
  // Waits for the send in progress; drops the others.
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  // `message` is a view of the bucket's buffer, which stays untouched until Wait returns.
  void Start(const Bucket& bucket, std::span<const std::byte> message);
  // Until nothing of `bucket` is being sent.
  Status Wait(const Bucket& bucket);
  Status WaitAll();
  // Waits for all sends and forgets a failure.
  void Reset();

 private:
  struct Job {
    const Bucket* bucket;
    std::span<const std::byte> message;
  };
  void Run();

  Channel& channel_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> queue_;
  std::set<const Bucket*> pending_;  // queued or being sent
  Status failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace dmuon::client
