#include "daemon/coordinator/coordinator.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/daemon/expect_text.h"
#include "tests/daemon/recording_host.h"
#include "tests/daemon/session_support.h"

namespace dmuon {
namespace {

using std::chrono::seconds;
using test::AttachOf;
using test::Call;
using test::ExpectNames;

constexpr char kOther[] = R"({"parameters": [{"name": "a", "shape": [4, 2]},
                                             {"name": "b", "shape": [2, 3]}]})";

class CoordinatorTest : public testing::Test {
 protected:
  using Kind = v1::OwnerMessage;

  CoordinatorTest() { Restart({}); }
  void Restart(const CoordinatorOptions& options) { coordinator_.emplace(host_, options); }

  template <typename Request>
  Call Handle(const std::string& method, const Request& request) {
    Call call;
    coordinator_->Handle(method, request.SerializeAsString(), 0, call.reply());
    return call;
  }
  Call StartOpen(const std::string& spec = test::kTwoParameters, uint32_t trainers = 2,
                 bool resume = false, double step_timeout_s = 0) {
    v1::OpenSessionRequest request;
    request.set_spec_json(spec);
    request.set_trainers(trainers);
    request.set_resume(resume);
    request.set_step_timeout_s(step_timeout_s);
    return Handle("OpenSession", request);
  }
  Call Open(const std::string& spec = test::kTwoParameters, uint32_t trainers = 2,
            bool resume = false) {
    Call call = StartOpen(spec, trainers, resume);
    Acknowledge();
    return call;
  }
  // Owners acknowledge what asks for it. Returns all that was sent.
  std::vector<v1::OwnerMessage> Acknowledge() {
    auto sent = host_.Take();
    for (const v1::OwnerMessage& message : sent) {
      uint64_t request = message.has_start_session() ? message.start_session().request()
                         : message.has_add_trainer() ? message.add_trainer().request()
                                                     : 0;
      if (request == 0) continue;
      for (int owner : {0, 1}) {
        coordinator_->OnOwnerMessage(owner, test::AcknowledgeOf(request));
      }
    }
    return sent;
  }
  Call Attach(uint64_t session, uint32_t trainer) {
    Call call = Handle("Attach", AttachOf(trainer, session));
    Acknowledge();
    return call;
  }
  Call ForTrainer(const std::string& method, uint64_t session, uint32_t trainer) {
    v1::DetachRequest request;  // WaitReady and TrainerLost have the same two fields
    request.set_session(session);
    request.set_trainer(trainer);
    return Handle(method, request);
  }
  Call Begin(uint64_t session, uint32_t trainer, uint64_t step) {
    v1::BeginStepRequest request;
    request.set_session(session);
    request.set_trainer(trainer);
    request.set_step(step);
    return Handle("BeginStep", request);
  }
  // A session with two trainers that runs. Returns its number.
  uint64_t Run() {
    Call open = Open();
    EXPECT_TRUE(open.ok()) << open.message();
    uint64_t session = open.As<v1::OpenSessionReply>().session();
    EXPECT_TRUE(Attach(session, 0).ok());
    EXPECT_TRUE(Attach(session, 1).ok());
    for (int owner : {0, 1}) coordinator_->OnOwnerMessage(owner, test::InitialDoneOf(session));
    EXPECT_TRUE(ForTrainer("WaitReady", session, 0).ok());
    host_.Take();
    return session;
  }
  static void ExpectRefused(const Call& call, StatusCode code,
                            std::initializer_list<std::string> parts) {
    ASSERT_TRUE(call.answered());
    EXPECT_EQ(call.status().code(), code) << call.message();
    ExpectNames(call.message(), parts);
  }

  test::RecordingHost host_{2};
  std::optional<Coordinator> coordinator_;
};

TEST_F(CoordinatorTest, OpensAndJoins) {
  Call first = StartOpen();
  Call second = StartOpen();
  Acknowledge();
  auto created = first.As<v1::OpenSessionReply>();
  auto joined = second.As<v1::OpenSessionReply>();
  EXPECT_TRUE(created.created());
  EXPECT_FALSE(joined.created());
  EXPECT_EQ(created.session(), joined.session());
}

TEST_F(CoordinatorTest, EqualSpecsMayRegisterInAnotherOrder) {
  ASSERT_TRUE(Open().ok());
  Call other = Open(R"({"preset": "dmuon", "parameters": [{"name": "b", "shape": [2, 2]},
                        {"name": "a", "shape": [4, 2], "rule": "muon"}]})");
  ASSERT_TRUE(other.ok()) << other.message();
  EXPECT_FALSE(other.As<v1::OpenSessionReply>().created());
}

TEST_F(CoordinatorTest, RefusesJoiningWithAnotherSpecOrSize) {
  ASSERT_TRUE(Open().ok());
  ExpectRefused(Open(kOther), StatusCode::kFailedPrecondition,
                {"spec differs", "session 1", "[2,3]", "[2,2]"});
  ExpectRefused(Open(test::kTwoParameters, 3), StatusCode::kFailedPrecondition,
                {"trainers: 3", "session 1", "has 2"});
}

TEST_F(CoordinatorTest, RefusesBadRequestsBeforeAnythingChanges) {
  ExpectRefused(StartOpen("{"), StatusCode::kInvalidArgument, {});
  ExpectRefused(StartOpen(R"({"parameters": [{"name": "a", "shape": [2, 2, 2]}]})"),
                StatusCode::kInvalidArgument, {"view"});
  ExpectRefused(StartOpen(R"({"groups": {"muon": {"lr": -1}}, "parameters": []})"),
                StatusCode::kInvalidArgument, {"groups.muon.lr", "-1"});
  ExpectRefused(StartOpen(test::kTwoParameters, 0), StatusCode::kInvalidArgument, {"trainers: 0"});
  ExpectRefused(StartOpen(test::kTwoParameters, 1, false, -1), StatusCode::kInvalidArgument,
                {"step_timeout_s", "-1"});
  ExpectRefused(StartOpen(test::kTwoParameters, 1, false, std::nan("")),
                StatusCode::kInvalidArgument, {"step_timeout_s"});
  Call garbage;
  coordinator_->Handle("OpenSession", "\xff\xff", 0, garbage.reply());
  ExpectRefused(garbage, StatusCode::kInvalidArgument, {"parse"});
  EXPECT_TRUE(host_.Take().empty());
}

TEST_F(CoordinatorTest, RefusesPrecisionsThatTheDeviceLacks) {
  ExpectRefused(StartOpen(R"({"groups": {"muon": {"precision": "fp16"}},
                              "parameters": [{"name": "a", "shape": [2, 2]}]})"),
                StatusCode::kInvalidArgument,
                {"groups.muon.precision", "fp16", "no arithmetic of that type"});
}

TEST_F(CoordinatorTest, UnknownSessionsAndMethodsAreNamed) {
  ExpectRefused(Begin(5, 0, 1), StatusCode::kNotFound, {"session 5", "not known"});
  ExpectRefused(Handle("Dance", v1::DrainRequest()), StatusCode::kUnimplemented, {"Dance"});
}

TEST_F(CoordinatorTest, AnEndedSessionTellsWhy) {
  uint64_t session = Run();
  ASSERT_TRUE(ForTrainer("Detach", session, 0).ok());
  ASSERT_TRUE(ForTrainer("Detach", session, 1).ok());
  ExpectRefused(Begin(session, 0, 1), StatusCode::kNotFound,
                {"session 1 has ended", "all trainers have detached"});
  EXPECT_EQ(Run(), session + 1);
}

TEST_F(CoordinatorTest, ARunningSessionRefusesNewOnes) {
  uint64_t session = Run();
  ExpectRefused(StartOpen(), StatusCode::kFailedPrecondition,
                {"session " + std::to_string(session), "running", "resume"});
}

TEST_F(CoordinatorTest, LostTrainersResume) {
  uint64_t session = Run();
  ForTrainer("TrainerLost", session, 1);
  ExpectRefused(StartOpen(kOther, 2, true), StatusCode::kFailedPrecondition, {"spec differs"});
  Call open = Open(test::kTwoParameters, 2, true);
  ASSERT_TRUE(open.ok()) << open.message();
  EXPECT_EQ(open.As<v1::OpenSessionReply>().session(), session);
  EXPECT_FALSE(open.As<v1::OpenSessionReply>().created());
  Call attach = Attach(session, 1);
  ASSERT_TRUE(attach.ok());
  EXPECT_TRUE(attach.As<v1::AttachReply>().resumed());
}

TEST_F(CoordinatorTest, ResumeNeedsASession) {
  ExpectRefused(StartOpen(test::kTwoParameters, 2, true), StatusCode::kNotFound,
                {"resume", "no session"});
}

TEST_F(CoordinatorTest, ASessionWithoutTrainersIsReplaced) {
  uint64_t session = Run();
  ForTrainer("TrainerLost", session, 0);
  ForTrainer("TrainerLost", session, 1);
  host_.Take();
  Call open = StartOpen(kOther, 1);
  auto sent = Acknowledge();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].end_session().session(), session);  // owners forget it first
  EXPECT_EQ(sent[1].start_session().session(), session + 1);
  ASSERT_TRUE(open.ok()) << open.message();
  EXPECT_TRUE(open.As<v1::OpenSessionReply>().created());
}

// A new job that comes while the trainers of the one before still leave.
TEST_F(CoordinatorTest, OpenWaitsForTheSessionThatCloses) {
  uint64_t session = Run();
  ASSERT_TRUE(ForTrainer("Detach", session, 1).ok());
  Call first = StartOpen(kOther);
  Call second = StartOpen(kOther);
  EXPECT_EQ(first.answers(), 0);
  ASSERT_TRUE(ForTrainer("Detach", session, 0).ok());
  Acknowledge();
  ASSERT_TRUE(first.ok()) << first.message();
  ASSERT_TRUE(second.ok()) << second.message();
  EXPECT_TRUE(first.As<v1::OpenSessionReply>().created());
  EXPECT_FALSE(second.As<v1::OpenSessionReply>().created());
}

TEST_F(CoordinatorTest, WaitingOpensEndWithTheAttachTimeout) {
  CoordinatorOptions options;
  options.attach_timeout_s = 20;
  Restart(options);
  uint64_t session = Run();
  ASSERT_TRUE(ForTrainer("Detach", session, 1).ok());
  Call open = StartOpen(kOther);
  auto now = Coordinator::Clock::now();
  coordinator_->Tick(now + seconds(19));
  EXPECT_EQ(open.answers(), 0);
  coordinator_->Tick(now + seconds(21));
  ExpectRefused(open, StatusCode::kDeadlineExceeded,
                {"session 1", "closing", "trainer 0 (pid 100 on node)"});
  ASSERT_TRUE(ForTrainer("Detach", session, 0).ok());
  EXPECT_EQ(open.answers(), 1);
}

// The trainer that everybody waits for dies instead of detaching.
TEST_F(CoordinatorTest, OpenThatWaitsIsServedWhenTheLastTrainerIsLost) {
  uint64_t session = Run();
  ASSERT_TRUE(ForTrainer("Detach", session, 1).ok());
  Call open = StartOpen(kOther);
  ForTrainer("TrainerLost", session, 0);
  coordinator_->Tick(Coordinator::Clock::now());
  Acknowledge();
  ASSERT_TRUE(open.answered());
  EXPECT_TRUE(open.ok()) << open.message();
}

// Two new jobs, one that waited and one that finds no trainers left: they are not one session.
TEST_F(CoordinatorTest, OpenDoesNotJoinAnotherSpecThatWaited) {
  uint64_t session = Run();
  ASSERT_TRUE(ForTrainer("Detach", session, 1).ok());
  Call waited = StartOpen(kOther);
  ForTrainer("TrainerLost", session, 0);
  Call later = StartOpen(test::kTwoParameters);
  Acknowledge();
  ASSERT_TRUE(waited.ok()) << waited.message();
  ExpectRefused(later, StatusCode::kFailedPrecondition, {"spec differs"});
}

// An owner may still speak of the session before when the next one has begun.
TEST_F(CoordinatorTest, MessagesOfAnEarlierSessionAreIgnored) {
  Call first = Open();
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(Attach(1, 0).ok());
  ForTrainer("TrainerLost", 1, 0);  // ends it before it runs
  Call second = Open();
  ASSERT_EQ(second.As<v1::OpenSessionReply>().session(), 2U);
  coordinator_->OnOwnerMessage(1, test::InitialDoneOf(1, "the initial value of a differs"));
  v1::OwnerMessage refused;
  refused.mutable_data_error()->set_session(1);
  refused.mutable_data_error()->set_message("trainer 0 pushed bucket 9");
  coordinator_->OnOwnerMessage(1, refused);
  EXPECT_TRUE(Attach(2, 0).ok());
  ASSERT_TRUE(Attach(2, 1).ok());
  Call ready = ForTrainer("WaitReady", 2, 0);
  coordinator_->OnOwnerMessage(1, test::InitialDoneOf(1));
  coordinator_->OnOwnerMessage(0, test::InitialDoneOf(2));
  EXPECT_EQ(ready.answers(), 0) << "owner 1 has no initial values of session 2 yet";
  coordinator_->OnOwnerMessage(1, test::InitialDoneOf(2));
  EXPECT_TRUE(ready.ok());
}

TEST_F(CoordinatorTest, DrainWithoutAStepLeavesAtOnce) {
  uint64_t session = Run();
  EXPECT_TRUE(Handle("Drain", v1::DrainRequest()).ok());
  auto sent = host_.Take();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].end_session().session(), session);
  EXPECT_FALSE(sent[1].shutdown().failed());
  EXPECT_TRUE(Handle("Drain", v1::DrainRequest()).ok());
  EXPECT_TRUE(host_.Take().empty());  // once
}

TEST_F(CoordinatorTest, DrainFinishesTheStepFirst) {
  uint64_t session = Run();
  ASSERT_TRUE(Begin(session, 0, 1).ok());
  ASSERT_TRUE(Begin(session, 1, 1).ok());
  host_.Take();
  EXPECT_TRUE(Handle("Drain", v1::DrainRequest()).ok());
  EXPECT_TRUE(host_.Take(Kind::kShutdown).empty());
  ExpectRefused(StartOpen(), StatusCode::kUnavailable, {"draining"});

  v1::SealStepRequest seal;
  seal.set_session(session);
  seal.set_generation(1);
  for (uint32_t trainer : {0U, 1U}) {
    seal.set_trainer(trainer);
    ASSERT_TRUE(Handle("SealStep", seal).ok());
  }
  v1::WaitStepRequest wait;
  wait.set_session(session);
  wait.set_generation(1);
  Call waiting = Handle("WaitStep", wait);
  for (int owner : {0, 1}) {
    v1::OwnerMessage reduced;
    reduced.mutable_reduced()->set_session(session);
    reduced.mutable_reduced()->set_generation(1);
    coordinator_->OnOwnerMessage(owner, reduced);
    v1::OwnerMessage ready;
    ready.mutable_step_ready()->set_session(session);
    ready.mutable_step_ready()->set_generation(1);
    EXPECT_EQ(waiting.answers(), 0);
    coordinator_->OnOwnerMessage(owner, ready);
  }
  EXPECT_EQ(waiting.As<v1::StepReport>().outcome(), v1::STEP_OUTCOME_COMMITTED);
  auto shutdown = host_.Take(Kind::kShutdown);
  ASSERT_EQ(shutdown.size(), 1U);
  EXPECT_FALSE(shutdown[0].shutdown().failed());
}

TEST_F(CoordinatorTest, LeavesAfterTheFirstSessionWhenToldTo) {
  CoordinatorOptions options;
  options.exit_after_session = true;
  Restart(options);
  uint64_t session = Run();
  ASSERT_TRUE(ForTrainer("Detach", session, 0).ok());
  EXPECT_TRUE(host_.Take(Kind::kShutdown).empty());
  ASSERT_TRUE(ForTrainer("Detach", session, 1).ok());
  auto shutdown = host_.Take(Kind::kShutdown);
  ASSERT_EQ(shutdown.size(), 1U);
  EXPECT_FALSE(shutdown[0].shutdown().failed());
}

TEST_F(CoordinatorTest, LeavesWithFailureWhenTheFirstSessionFailed) {
  CoordinatorOptions options;
  options.exit_after_session = true;
  Restart(options);
  ASSERT_TRUE(Open().ok());
  ASSERT_TRUE(Attach(1, 0).ok());
  host_.Take();
  ForTrainer("TrainerLost", 1, 0);
  auto shutdown = host_.Take(Kind::kShutdown);
  ASSERT_EQ(shutdown.size(), 1U);
  EXPECT_TRUE(shutdown[0].shutdown().failed());
}

TEST_F(CoordinatorTest, StatusDescribesOwnersAndSession) {
  Run();
  auto status = Handle("Status", v1::StatusRequest()).As<v1::StatusReply>();
  EXPECT_EQ(status.owners_size(), 2);
  ASSERT_EQ(status.sessions_size(), 1);
  EXPECT_EQ(status.sessions(0).state(), "running");
  EXPECT_EQ(status.sessions(0).trainers_size(), 2);
}

TEST_F(CoordinatorTest, WaitingForIsOneLine) {
  EXPECT_EQ(coordinator_->WaitingFor(), "no session");
  Open();
  ExpectNames(coordinator_->WaitingFor(), {"session start", "trainer 0 to attach"});
  ForTrainer("TrainerLost", 1, 0);
  Attach(1, 0);
  Attach(1, 1);
  for (int owner : {0, 1}) coordinator_->OnOwnerMessage(owner, test::InitialDoneOf(1));
  EXPECT_EQ(coordinator_->WaitingFor(), "step 1, idle");
  Begin(1, 0, 1);
  ExpectNames(coordinator_->WaitingFor(), {"step 1", "trainer 1 (pid 101 on node) to begin"});
}

}  // namespace
}  // namespace dmuon
