// How a session ends, and what it survives.
#include "daemon/coordinator/session_control.h"
#include "tests/daemon/session_support.h"

namespace dmuon {
namespace {

using std::chrono::seconds;
using SessionEndTest = test::SessionTest;
using test::AttachOf;
using test::Call;
using test::ExpectNames;

TEST_F(SessionEndTest, EndsWhenTheLastTrainerDetaches) {
  Run();
  EXPECT_TRUE(Detach(0).ok());
  EXPECT_TRUE(session_->closing());
  EXPECT_EQ(session_->StillAttached(), "trainer 1 (pid 101 on node)");
  auto sent = host_.Take();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].remove_trainer().trainer(), 0U);
  EXPECT_TRUE(Detach(1).ok());
  EXPECT_EQ(session_->state(), State::kEnded);
  EXPECT_FALSE(session_->failed());
  EXPECT_EQ(host_.Take(Kind::kEndSession).size(), 1U);
}

TEST_F(SessionEndTest, DetachInTheMiddleOfAStepAbortsIt) {
  Run();
  ASSERT_TRUE(Begin(0, 1).ok());
  ASSERT_TRUE(Begin(1, 1).ok());
  Call waiting = Wait(0, 1);
  ASSERT_TRUE(Detach(1).ok());
  ASSERT_TRUE(waiting.ok());
  auto report = waiting.As<v1::StepReport>();
  EXPECT_EQ(report.outcome(), v1::STEP_OUTCOME_ABORTED);
  ExpectNames(report.reason(), {"trainer 1 (pid 101 on node)", "detached"});
}

TEST_F(SessionEndTest, ADetachedTrainerDoesNotComeBack) {
  Run();
  ASSERT_TRUE(Detach(0).ok());
  Call again = Attach(AttachOf(0));
  EXPECT_EQ(again.status().code(), StatusCode::kFailedPrecondition);
  ExpectNames(again.message(), {"trainer 0", "has detached", "closing"});
}

TEST_F(SessionEndTest, AttachTimeoutNamesWhoIsMissing) {
  AcknowledgeAll();
  Call open;
  ASSERT_TRUE(Attach(AttachOf(0)).ok());
  Call ready = WaitReady(0);
  auto now = SessionControl::Clock::now();
  session_->Tick(now + seconds(29));
  EXPECT_EQ(session_->state(), State::kAttaching);
  session_->Tick(now + seconds(31));
  EXPECT_EQ(session_->state(), State::kEnded);
  EXPECT_TRUE(session_->failed());
  EXPECT_EQ(ready.status().code(), StatusCode::kDeadlineExceeded);
  ExpectNames(ready.message(), {"session 1", "30 s", "trainer 1 to attach"});
  EXPECT_EQ(ready.message().find("trainer 0"), std::string::npos) << ready.message();
  session_->Tick(now + seconds(99));
  EXPECT_EQ(host_.Take(Kind::kEndSession).size(), 1U);
}

TEST_F(SessionEndTest, ASessionToWhichNobodyAttachesEndsEarly) {
  session_->Tick(SessionControl::Clock::now() + std::chrono::seconds(25));
  EXPECT_NE(session_->state(), State::kEnded);  // owners are still starting it
  AcknowledgeAll();
  session_->Tick(SessionControl::Clock::now() + std::chrono::seconds(15));
  EXPECT_EQ(session_->state(), State::kAttaching);
  session_->Tick(SessionControl::Clock::now() + std::chrono::seconds(25));
  EXPECT_EQ(session_->state(), State::kEnded);
  ExpectNames(session_->end_reason(), {"session 1", "nobody attached", "20 s"});
}

TEST_F(SessionEndTest, AttachTimeoutNamesWhoDidNotPush) {
  AcknowledgeAll();
  ASSERT_TRUE(Attach(AttachOf(0)).ok());
  ASSERT_TRUE(Attach(AttachOf(1)).ok());
  Call ready = WaitReady(1);
  session_->Tick(SessionControl::Clock::now() + seconds(31));
  ExpectNames(ready.message(), {"trainer 0 (pid 100 on node) to push its initial values"});
}

TEST_F(SessionEndTest, BadInitialValuesEndTheSession) {
  AcknowledgeAll();
  ASSERT_TRUE(Attach(AttachOf(0)).ok());
  ASSERT_TRUE(Attach(AttachOf(1)).ok());
  Call ready = WaitReady(0);
  session_->OnOwnerMessage(1, test::InitialDoneOf(1, "the initial value of parameter a differs"));
  EXPECT_EQ(session_->state(), State::kEnded);
  EXPECT_EQ(ready.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ready.message(), "the initial value of parameter a differs");
}

TEST_F(SessionEndTest, RefusedInitialBucketsEndTheSession) {
  AcknowledgeAll();
  ASSERT_TRUE(Attach(AttachOf(0)).ok());
  Call ready = WaitReady(0);
  v1::OwnerMessage message;
  message.mutable_data_error()->set_session(1);
  message.mutable_data_error()->set_message("trainer 0 pushed bucket 9");
  session_->OnOwnerMessage(0, message);
  EXPECT_EQ(session_->state(), State::kEnded);
  EXPECT_EQ(ready.message(), "trainer 0 pushed bucket 9");
}

TEST_F(SessionEndTest, LosingATrainerBeforeItRunsEndsTheSession) {
  AcknowledgeAll();
  ASSERT_TRUE(Attach(AttachOf(0)).ok());
  ASSERT_TRUE(Attach(AttachOf(1)).ok());
  Call ready = WaitReady(0);
  session_->LoseTrainer(1);
  EXPECT_EQ(session_->state(), State::kEnded);
  EXPECT_TRUE(session_->failed());
  EXPECT_EQ(ready.status().code(), StatusCode::kAborted);
  ExpectNames(ready.message(), {"trainer 1 (pid 101 on node) was lost"});
}

TEST_F(SessionEndTest, LosingATrainerAbortsTheStepAndKeepsTheSession) {
  Run();
  ASSERT_TRUE(Begin(0, 1).ok());
  Call waiting = Wait(0, 1);
  session_->LoseTrainer(1);
  ASSERT_TRUE(waiting.ok());
  auto report = waiting.As<v1::StepReport>();
  EXPECT_EQ(report.outcome(), v1::STEP_OUTCOME_ABORTED);
  ExpectNames(report.reason(), {"trainer 1 (pid 101 on node) was lost"});
  EXPECT_EQ(session_->state(), State::kRunning);
  EXPECT_EQ(host_.Take(Kind::kRemoveTrainer).size(), 1U);
  Call lost = Begin(1, 1);
  ExpectNames(lost.message(), {"trainer 1 was lost", "attach first"});
  session_->LoseTrainer(1);   // told twice
  session_->LoseTrainer(17);  // nonsense
  EXPECT_TRUE(host_.Take().empty());
}

TEST_F(SessionEndTest, AReplacementResumesWithTheSameRegions) {
  Run();
  session_->LoseTrainer(1);
  host_.Take();
  v1::AttachRequest smaller = AttachOf(1);
  v1::Region& region = *smaller.add_regions();
  for (int64_t v : {0, 0}) region.add_start(v);
  for (int64_t v : {1, 2}) region.add_extent(v);
  Call other = Attach(smaller);
  EXPECT_EQ(other.status().code(), StatusCode::kInvalidArgument);
  ExpectNames(other.message(), {"trainer 1", "other regions"});
  EXPECT_EQ(session_->state(), State::kRunning);

  v1::AttachRequest replacement = AttachOf(1);
  replacement.set_pid(777);
  Call call = StartAttach(replacement);
  auto sent = host_.Take(Kind::kAddTrainer);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_TRUE(sent[0].add_trainer().resumed());
  for (int owner : {0, 1}) {
    session_->OnOwnerMessage(owner, test::AcknowledgeOf(sent[0].add_trainer().request()));
  }
  ASSERT_TRUE(call.ok());
  EXPECT_TRUE(call.As<v1::AttachReply>().resumed());
  EXPECT_TRUE(WaitReady(1).ok());
  EXPECT_TRUE(Begin(1, 1).ok());
  ExpectNames(session_->WaitingFor(), {"trainer 1 (pid 777 on node)"});
}

// Owners publish under the generation that they are in when they hear of the trainer; the reply
// must name the same one, although another trainer begins a step in between.
TEST_F(SessionEndTest, TheReplyToAResumedAttachNamesTheGenerationThatIsPublished) {
  Run();
  session_->LoseTrainer(1);
  host_.Take();
  Call call = StartAttach(AttachOf(1));
  uint64_t request = host_.Take(Kind::kAddTrainer).at(0).add_trainer().request();
  ASSERT_TRUE(Begin(0, 1).ok());  // reaches owners after AddTrainer
  for (int owner : {0, 1}) session_->OnOwnerMessage(owner, test::AcknowledgeOf(request));
  ASSERT_TRUE(call.ok());
  EXPECT_EQ(call.As<v1::AttachReply>().generation(), 0U);
}

// With one of its trainers gone for good a step could never complete.
TEST_F(SessionEndTest, StepsOfAClosingSessionAreRefused) {
  Run();
  ASSERT_TRUE(Detach(1).ok());
  Call begin = Begin(0, 1);
  EXPECT_EQ(begin.status().code(), StatusCode::kFailedPrecondition);
  ExpectNames(begin.message(), {"trainer 1", "detached"});
}

TEST_F(SessionEndTest, EverybodyWhoWaitsIsToldTheReason) {
  Run();
  ASSERT_TRUE(Begin(0, 1).ok());
  ASSERT_TRUE(Begin(1, 1).ok());
  Call step = Wait(0, 1);
  session_->End({StatusCode::kUnavailable, "the daemon was drained"});
  EXPECT_EQ(step.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(step.message(), "the daemon was drained");
  EXPECT_FALSE(session_->failed());
  auto ended = host_.Take(Kind::kEndSession);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].end_session().reason(), "the daemon was drained");
  session_->End({StatusCode::kAborted, "again"});
  EXPECT_EQ(session_->end_reason(), "the daemon was drained");
  EXPECT_TRUE(host_.Take().empty());
}

}  // namespace
}  // namespace dmuon
