#include "scheduler/simulator/devices.h"

#include <gtest/gtest.h>

namespace dmuon::simulator {
namespace {

class DevicesTest : public ::testing::Test {
 protected:
  Devices Make(bool apart) { return {2, apart, &events_, &activity_, &spans_}; }
  Action Note(double* when) {
    return [this, when] { *when = events_.now(); };
  }

  EventQueue events_;
  Activity activity_{&events_};
  std::vector<Span> spans_;
};

const Devices::Work kForwardWork{SpanKind::kForward, 2.0, "forward"};
const Devices::Work kUpdate{SpanKind::kOptimizer, 3.0, "update"};

TEST_F(DevicesTest, TrainersInterruptOwners) {
  Devices devices = Make(false);
  double updated = 0.0;
  devices.RunForOwner(1, kUpdate, Note(&updated));
  events_.At(1.0, [&] { devices.RunOnAll(kForwardWork, [] {}); });
  events_.Run();
  EXPECT_DOUBLE_EQ(updated, 5.0);  // 1 s before, 2 s after the forward pass
  EXPECT_DOUBLE_EQ(devices.owner_busy_s()[1], 3.0);
  EXPECT_EQ(devices.owner_busy_s()[0], 0.0);
  EXPECT_DOUBLE_EQ(activity_.seconds(Part::kForward), 2.0);
  EXPECT_DOUBLE_EQ(activity_.seconds(Part::kOptimizer), 3.0);
}

TEST_F(DevicesTest, JobsThatComeDuringTrainersWorkWait) {
  Devices devices = Make(false);
  double updated = 0.0;
  devices.RunOnAll(kForwardWork, [] {});
  devices.RunForOwner(0, kUpdate, Note(&updated));
  events_.Run();
  EXPECT_DOUBLE_EQ(updated, 5.0);
}

TEST_F(DevicesTest, OwnersApartAreNotInterrupted) {
  Devices devices = Make(true);
  double updated = 0.0;
  devices.RunForOwner(0, kUpdate, Note(&updated));
  devices.RunOnAll(kForwardWork, [] {});
  events_.Run();
  EXPECT_DOUBLE_EQ(updated, 3.0);
  // The trainers' work has precedence where both are under way.
  EXPECT_DOUBLE_EQ(activity_.seconds(Part::kForward), 2.0);
  EXPECT_DOUBLE_EQ(activity_.seconds(Part::kOptimizer), 1.0);
}

TEST_F(DevicesTest, AnOwnersJobsGoOneAfterTheOther) {
  Devices devices = Make(false);
  double first = 0.0;
  double second = 0.0;
  double other = 0.0;
  devices.RunForOwner(0, kUpdate, Note(&first));
  devices.RunForOwner(0, kUpdate, Note(&second));
  devices.RunForOwner(1, kUpdate, Note(&other));
  events_.Run();
  EXPECT_EQ(first, 3.0);
  EXPECT_EQ(second, 6.0);
  EXPECT_EQ(other, 3.0);
  ASSERT_EQ(spans_.size(), 3U);
  EXPECT_EQ(spans_[0].lane, 0);
  EXPECT_EQ(spans_[1].lane, 1);
  EXPECT_EQ(spans_[2].start_s, 3.0);
}

}  // namespace
}  // namespace dmuon::simulator
