// Steps that do not complete: the timeout's report, and pushes that were refused.
#include "daemon/coordinator/step_control.h"
#include "tests/daemon/step_support.h"

namespace dmuon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Call;
using test::ExpectNames;

class StepTimeoutTest : public test::StepTest {
 protected:
  using Clock = StepControl::Clock;

  void Missing(int owner, const std::map<uint32_t, std::vector<std::string>>& by_trainer = {},
               uint64_t more = 0) {
    v1::Missing message;
    message.set_request(steps_.generation());
    for (const auto& [trainer, names] : by_trainer) {
      v1::MissingFromTrainer& entry = *message.add_trainers();
      entry.set_trainer(trainer);
      entry.set_parameters(names.size() + more);
      for (const std::string& name : names) entry.add_examples(name);
    }
    steps_.OnMissing(owner, message);
  }
  void DataError(uint32_t trainer, uint64_t generation, bool stale, const std::string& text) {
    v1::DataError message;
    message.set_trainer(trainer);
    message.set_generation(generation);
    message.set_stale(stale);
    message.set_message(text);
    steps_.OnDataError(message);
  }
  // The step's reason after the timeout of 60 s; owners have been asked by then.
  std::string TimeOut() {
    steps_.Tick(late_);
    EXPECT_FALSE(steps_.active());
    return Report(steps_.generation()).reason();
  }
  void AskMissing() {
    steps_.Tick(late_);
    auto asked = host_.Take(Kind::kAskMissing);
    ASSERT_EQ(asked.size(), 1U);
    EXPECT_EQ(asked[0].ask_missing().generation(), steps_.generation());
    EXPECT_TRUE(steps_.active());
  }

  Clock::time_point start_ = Clock::now();
  Clock::time_point late_ = start_ + seconds(120);
};

TEST_F(StepTimeoutTest, NothingHappensBefore) {
  steps_.Tick(late_);  // no step
  BeginBoth(1);
  host_.Take();
  steps_.Tick(Clock::now() + seconds(59));
  EXPECT_TRUE(host_.Take().empty());
  EXPECT_TRUE(steps_.active());
}

TEST_F(StepTimeoutTest, OwnersAreAskedOnceAndThenNamesAreNamed) {
  steps_.NameTrainer(1, "trainer 1 (pid 4711 on gpu-07)");
  uint64_t generation = BeginBoth(1);
  ASSERT_TRUE(Seal(0, generation).ok());
  Call waiting = Wait(0, generation);
  AskMissing();
  steps_.Tick(late_ + milliseconds(100));
  EXPECT_TRUE(host_.Take().empty());  // still waiting for answers
  Missing(0, {{1, {"a", "b"}}}, 3);
  steps_.Tick(late_ + milliseconds(200));
  EXPECT_TRUE(steps_.active());
  Missing(1, {{1, {"c"}}});
  std::string reason = TimeOut();
  EXPECT_TRUE(waiting.ok());
  ExpectNames(reason,
              {"step 1", "60 s", "trainer 1 (pid 4711 on gpu-07)", "not sealed",
               "owner 0 misses 5 parameters (a, b, ...)", "owner 1 misses 1 parameter (c)"});
  EXPECT_EQ(reason.find("trainer 0"), std::string::npos) << reason;
  EXPECT_EQ(Report(generation).outcome(), v1::STEP_OUTCOME_ABORTED);
  EXPECT_EQ(Report(generation).next_step(), 1U);
}

TEST_F(StepTimeoutTest, TrainersThatNeverBeganAreNamed) {
  ASSERT_TRUE(Begin(0, 1).ok());
  ASSERT_TRUE(Seal(0, 1).ok());
  AskMissing();
  Missing(0, {{1, {"a"}}});
  Missing(1);
  ExpectNames(TimeOut(), {"trainer 1 has not begun it", "owner 0 misses 1 parameter (a)"});
}

TEST_F(StepTimeoutTest, OwnersThatDoNotAnswerAreNamedAfterAMoment) {
  BeginBoth(1);
  AskMissing();
  Missing(0);
  steps_.Tick(late_ + milliseconds(1900));
  EXPECT_TRUE(steps_.active());
  steps_.Tick(late_ + milliseconds(2100));
  EXPECT_FALSE(steps_.active());
  ExpectNames(Report(1).reason(), {"owner 1 does not answer"});
}

TEST_F(StepTimeoutTest, OwnersThatComputeAreNamedWhenNothingIsMissing) {
  uint64_t generation = SealBoth(1);
  Reduced(0, generation);
  Reduced(1, generation);
  Ready(0, generation);
  AskMissing();
  Missing(0);
  Missing(1);
  std::string reason = TimeOut();
  ExpectNames(reason, {"owner 1 is still computing"});
  EXPECT_EQ(reason.find("owner 0"), std::string::npos) << reason;
}

TEST_F(StepTimeoutTest, AnswersToAnEarlierQuestionAreIgnored) {
  BeginBoth(1);
  AskMissing();
  v1::Missing old;
  old.set_request(steps_.generation() - 1);
  steps_.OnMissing(0, old);
  steps_.OnMissing(1, old);
  steps_.Tick(late_);
  EXPECT_TRUE(steps_.active());
}

TEST_F(StepTimeoutTest, StalePushesAreCountedAndNamedInTheTimeout) {
  uint64_t generation = BeginBoth(1);
  DataError(1, generation - 1, true, "trainer 1 pushed bucket 4 for generation 0");
  EXPECT_EQ(steps_.stale_pushes(), 1U);
  EXPECT_TRUE(steps_.active());  // harmless by itself
  AskMissing();
  Missing(0, {{1, {"a"}}});
  Missing(1);
  ExpectNames(TimeOut(), {"trainer 1", "owner 0 misses 1 parameter (a)",
                          "trainer 1 pushed bucket 4 for generation 0"});
  // Only of the step in which they happened.
  BeginBoth(1);
  AskMissing();
  Missing(0, {{1, {"a"}}});
  Missing(1);
  std::string reason = TimeOut();
  EXPECT_EQ(reason.find("generation 0"), std::string::npos) << reason;
}

TEST_F(StepTimeoutTest, RefusedPushesOfThisStepAbortItAtOnce) {
  uint64_t generation = BeginBoth(1);
  Call waiting = Wait(0, generation);
  DataError(1, generation, false, "trainer 1 pushed bucket 0 with 3 entries; it has 2");
  EXPECT_EQ(Finished(), v1::STEP_OUTCOME_ABORTED);
  ASSERT_TRUE(waiting.ok());
  EXPECT_EQ(waiting.As<v1::StepReport>().reason(),
            "trainer 1 pushed bucket 0 with 3 entries; it has 2");
  EXPECT_EQ(steps_.stale_pushes(), 0U);
}

TEST_F(StepTimeoutTest, RefusedPushesOfOtherStepsDoNotTouchThisOne) {
  uint64_t generation = BeginBoth(1);
  DataError(1, generation + 1, false, "trainer 1 pushed bucket 0 for generation 2");
  DataError(1, generation - 1, false, "trainer 1 pushed bucket 0 for generation 0");
  EXPECT_TRUE(steps_.active());
}

}  // namespace
}  // namespace dmuon
