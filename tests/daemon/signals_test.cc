#include "daemon/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <future>
#include <thread>

namespace dmuon {
namespace {

// Each runs in a process of its own.
class SignalsDeathTest : public testing::Test {
 protected:
  SignalsDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

[[noreturn]] void DrainTwiceThenStop() {
  BlockSignals();
  int drained = 0;
  {
    std::promise<void> each[2];
    SignalThread signals([&] { each[drained++].set_value(); }, [](int) { _exit(9); });
    for (std::promise<void>& one : each) {
      kill(getpid(), SIGUSR1);
      one.get_future().wait();
    }
  }  // joins the thread
  _exit(drained == 2 ? 0 : 8);
}

[[noreturn]] void AbortWith(int signal) {
  BlockSignals();
  SignalThread signals([] { _exit(9); }, [](int caught) { _exit(100 + caught); });
  kill(getpid(), signal);
  for (;;) pause();
}

// Threads that were there before BlockSignals, as libraries start them.
[[noreturn]] void AbortAmongThreadsThatBlockNothing(int signal) {
  for (int i = 0; i < 3; ++i) {
    std::thread([] {
      for (;;) pause();
    }).detach();
  }
  AbortWith(signal);
}

[[noreturn]] void WriteToAClosedPipe() {
  BlockSignals();
  int ends[2];
  if (pipe(ends) != 0) _exit(9);
  close(ends[0]);
  _exit(write(ends[1], "x", 1) == -1 && errno == EPIPE ? 0 : 8);
}

TEST_F(SignalsDeathTest, UserSignalDrainsEveryTime) {
  EXPECT_EXIT(DrainTwiceThenStop(), testing::ExitedWithCode(0), "");
}

TEST_F(SignalsDeathTest, TermAndIntAbortWithTheirNumber) {
  EXPECT_EXIT(AbortWith(SIGTERM), testing::ExitedWithCode(100 + SIGTERM), "");
  EXPECT_EXIT(AbortWith(SIGINT), testing::ExitedWithCode(100 + SIGINT), "");
}

TEST_F(SignalsDeathTest, ThreadsThatBlockNothingPassSignalsOn) {
  EXPECT_EXIT(AbortAmongThreadsThatBlockNothing(SIGTERM), testing::ExitedWithCode(100 + SIGTERM),
              "");
}

TEST_F(SignalsDeathTest, BrokenConnectionsDoNotKill) {
  EXPECT_EXIT(WriteToAClosedPipe(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace dmuon
