#include "client/cpp/sender.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

namespace dmuon::client {
namespace {

Bucket MakeBucket(uint32_t number) {
  BucketLayout layout;
  layout.number = number;
  return std::move(Bucket::Make(std::move(layout)).value());
}

// Sends nothing: records the order, blocks while the gate is closed, fails for one bucket.
class RecordingChannel final : public Channel {
 public:
  Status Send(const Bucket& bucket, std::span<const std::byte>) override {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
    sent_.push_back(bucket.number());
    if (bucket.number() == failing_) return Status::Internal("bucket was refused");
    return Status::Ok();
  }
  Status Receive(std::vector<Bucket>&, uint64_t) override { return Status::Ok(); }

  void SetOpen(bool open) {
    {
      std::lock_guard lock(mutex_);
      open_ = open;
    }
    opened_.notify_all();
  }
  void FailFor(uint32_t number) { failing_ = number; }
  std::vector<uint32_t> sent() {
    std::lock_guard lock(mutex_);
    return sent_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = true;
  uint32_t failing_ = 999;
  std::vector<uint32_t> sent_;
};

TEST(Sender, SendsInOrderAndWaits) {
  RecordingChannel channel;
  const Bucket first = MakeBucket(1);
  const Bucket second = MakeBucket(2);
  Sender sender(channel);
  channel.SetOpen(false);
  sender.Start(first, {});
  sender.Start(second, {});
  EXPECT_TRUE(channel.sent().empty());
  channel.SetOpen(true);
  EXPECT_TRUE(sender.Wait(first).ok());
  EXPECT_TRUE(sender.WaitAll().ok());
  EXPECT_EQ(channel.sent(), (std::vector<uint32_t>{1, 2}));
}

TEST(Sender, DropsWhatFollowsAFailureUntilReset) {
  RecordingChannel channel;
  const Bucket first = MakeBucket(1);
  const Bucket second = MakeBucket(2);
  channel.FailFor(1);
  Sender sender(channel);
  sender.Start(first, {});
  sender.Start(second, {});
  EXPECT_EQ(sender.WaitAll().message(), "bucket was refused");
  EXPECT_EQ(sender.Wait(second).message(), "bucket was refused");
  EXPECT_EQ(channel.sent(), (std::vector<uint32_t>{1}));
  sender.Reset();
  sender.Start(second, {});
  EXPECT_TRUE(sender.WaitAll().ok());
  EXPECT_EQ(channel.sent(), (std::vector<uint32_t>{1, 2}));
}

TEST(Sender, EndsWithSendsStillQueued) {
  RecordingChannel channel;
  const Bucket first = MakeBucket(1);
  {
    Sender sender(channel);
    for (int i = 0; i < 100; ++i) sender.Start(first, {});
  }
  EXPECT_LE(channel.sent().size(), 100U);
}

}  // namespace
}  // namespace dmuon::client
