#include "scheduler/simulator/link.h"

#include <gtest/gtest.h>

namespace dmuon::simulator {
namespace {

TEST(EventQueue, RunsByTimeThenByOrderOfPosting) {
  EventQueue events;
  std::string order;
  events.At(2.0, [&] { order += "c"; });
  events.At(1.0, [&] {
    order += "a";
    events.After(1.0, [&] { order += "e"; });
    events.After(0.0, [&] { order += "b"; });
  });
  events.At(2.0, [&] { order += "d"; });
  events.Run();
  EXPECT_EQ(order, "abcde");
  EXPECT_EQ(events.now(), 2.0);
}

// When each of the jobs, sent at their times, has passed a link of 100 bytes a second.
struct Job {
  double sent_s;
  Traffic traffic;
  double bytes;
};

std::vector<double> Passed(const std::vector<Job>& jobs) {
  EventQueue events;
  Link link(&events, 100.0);
  std::vector<double> passed(jobs.size(), -1.0);
  for (size_t i = 0; i < jobs.size(); ++i) {
    events.At(jobs[i].sent_s, [&, i] {
      link.Send(jobs[i].traffic, jobs[i].bytes, nullptr, [&, i] { passed[i] = events.now(); });
    });
  }
  events.Run();
  return passed;
}

TEST(Link, AloneTakesBytesOverBandwidth) {
  EXPECT_EQ(Passed({{1.0, Traffic::kOwners, 300.0}}), (std::vector<double>{4.0}));
}

TEST(Link, OneKindGoesFirstComeFirstServed) {
  EXPECT_EQ(Passed({{0.0, Traffic::kOwners, 100.0}, {0.0, Traffic::kOwners, 200.0}}),
            (std::vector<double>{1.0, 3.0}));
}

TEST(Link, TwoKindsShareEqually) {
  // 50 bytes a second each until the shorter one has passed after 2 s; then 200 bytes are left.
  EXPECT_EQ(Passed({{0.0, Traffic::kTraining, 100.0}, {0.0, Traffic::kOwners, 300.0}}),
            (std::vector<double>{2.0, 4.0}));
}

TEST(Link, ALaterKindSlowsDownWhatIsUnderWay) {
  // 100 bytes have passed when the second comes; the other 100 then take 2 s.
  EXPECT_EQ(Passed({{0.0, Traffic::kOwners, 200.0}, {1.0, Traffic::kTraining, 200.0}}),
            (std::vector<double>{3.0, 4.0}));
}

TEST(Link, NothingTakesNoTime) {
  EXPECT_EQ(Passed({{2.0, Traffic::kOwners, 0.0}}), (std::vector<double>{2.0}));
}

TEST(Link, SaysWhenTheFirstByteEnters) {
  EventQueue events;
  Link link(&events, 100.0);
  double started = -1.0;
  link.Send(Traffic::kOwners, 100.0, nullptr, nullptr);
  link.Send(
      Traffic::kOwners, 100.0, [&] { started = events.now(); }, nullptr);
  events.Run();
  EXPECT_EQ(started, 1.0);
  EXPECT_EQ(link.bytes(), 200.0);
}

}  // namespace
}  // namespace dmuon::simulator
