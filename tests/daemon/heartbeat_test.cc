#include "daemon/heartbeat.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <vector>

namespace dmuon {
namespace {

using std::chrono::seconds;

class HeartbeatTest : public testing::Test {
 protected:
  Heartbeat::Clock::time_point now_ = Heartbeat::Clock::now();

  // Looks every second, as the engine would, until `until` seconds; `heard` is heard every time.
  static std::optional<int> Watch(Heartbeat& heartbeat, Heartbeat::Clock::time_point from,
                                  int until, const std::vector<int>& heard) {
    for (int s = 1; s <= until; ++s) {
      for (int owner : heard) heartbeat.Hear(owner, from + seconds(s));
      if (auto lost = heartbeat.FindLost(from + seconds(s))) return lost;
    }
    return std::nullopt;
  }
};

TEST_F(HeartbeatTest, OwnerZeroWatchesEverybody) {
  Heartbeat heartbeat(0, 4, 10.0, now_);
  EXPECT_EQ(Watch(heartbeat, now_, 10, {1, 3}), std::nullopt);
  EXPECT_EQ(heartbeat.FindLost(now_ + seconds(11)), 2);
}

TEST_F(HeartbeatTest, OthersWatchOwnerZero) {
  Heartbeat watching(2, 4, 10.0, now_);
  EXPECT_EQ(Watch(watching, now_, 30, {0}), std::nullopt);  // 1 and 3 do not report here
  EXPECT_EQ(Watch(watching, now_ + seconds(30), 30, {}), 0);
}

TEST_F(HeartbeatTest, ALateHeartbeatStartsTheTimeAgain) {
  Heartbeat heartbeat(0, 2, 10.0, now_);
  EXPECT_EQ(Watch(heartbeat, now_, 9, {}), std::nullopt);
  heartbeat.Hear(1, now_ + seconds(9));
  EXPECT_EQ(Watch(heartbeat, now_ + seconds(9), 10, {}), std::nullopt);
  EXPECT_EQ(heartbeat.FindLost(now_ + seconds(20)), 1);
}

TEST_F(HeartbeatTest, AnOwnerAloneLosesNobody) {
  Heartbeat heartbeat(0, 1, 10.0, now_);
  EXPECT_EQ(Watch(heartbeat, now_, 100, {}), std::nullopt);
}

// A process that was stopped itself must not accuse others of its own silence.
TEST_F(HeartbeatTest, OwnSleepForgives) {
  Heartbeat heartbeat(0, 3, 10.0, now_);
  EXPECT_EQ(heartbeat.FindLost(now_ + seconds(3600)), std::nullopt);
  // From then on they have the whole time again, and not more.
  EXPECT_EQ(Watch(heartbeat, now_ + seconds(3600), 10, {2}), std::nullopt);
  EXPECT_EQ(heartbeat.FindLost(now_ + seconds(3611)), 1);
}

TEST_F(HeartbeatTest, AgesAreMeasuredFromTheLastSign) {
  Heartbeat heartbeat(0, 2, 10.0, now_);
  heartbeat.Hear(1, now_ + seconds(2));
  EXPECT_EQ(heartbeat.AgeOf(1, now_ + seconds(5)), 3.0);
  EXPECT_EQ(heartbeat.AgeOf(0, now_ + seconds(5)), 0.0);  // itself
}

// With heartbeats every second and the default timeout a lost owner is found within 15 s.
TEST_F(HeartbeatTest, IntervalLeavesRoomForMissedOnes) {
  EXPECT_LE(Heartbeat::kInterval, seconds(10) / 5);
}

}  // namespace
}  // namespace dmuon
