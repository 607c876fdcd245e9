#include "daemon/coordinator/session_control.h"

#include "tests/daemon/session_support.h"

namespace dmuon {
namespace {

using SessionControlTest = test::SessionTest;
using test::AttachOf;
using test::Call;
using test::ExpectNames;

TEST_F(SessionControlTest, StartBroadcastsSpecAndPlan) {
  auto sent = host_.Take();
  ASSERT_EQ(sent.size(), 1U);
  const v1::StartSession& start = sent[0].start_session();
  EXPECT_EQ(start.session(), 1U);
  EXPECT_EQ(start.trainers(), 2U);
  EXPECT_EQ(start.plan_hash(), plan_hash_);
  EXPECT_EQ(scheduler::PlanHash(scheduler::ParsePlan(start.plan())), plan_hash_);
  EXPECT_EQ(CanonicalJson(ParseSessionSpec(start.spec_json())),
            CanonicalJson(ParseSessionSpec(test::kTwoParameters)));
}

TEST_F(SessionControlTest, JoinsAreAnsweredWhenAllOwnersHoldTheSession) {
  Call created;
  Call joined;
  session_->Join(true, created.reply());
  session_->Join(false, joined.reply());
  uint64_t request = host_.Take()[0].start_session().request();
  session_->OnOwnerMessage(1, test::AcknowledgeOf(request));
  session_->OnOwnerMessage(1, test::AcknowledgeOf(request));  // the same owner does not count twice
  EXPECT_EQ(created.answers(), 0);
  session_->OnOwnerMessage(0, test::AcknowledgeOf(request));
  ASSERT_TRUE(created.ok());
  ASSERT_TRUE(joined.ok());
  auto reply = created.As<v1::OpenSessionReply>();
  EXPECT_TRUE(reply.created());
  EXPECT_EQ(reply.session(), 1U);
  EXPECT_EQ(reply.plan_hash(), plan_hash_);
  EXPECT_EQ(reply.precision(), "fp32");
  EXPECT_EQ(reply.owners(), 2U);
  EXPECT_FALSE(joined.As<v1::OpenSessionReply>().created());
  Call late;
  session_->Join(false, late.reply());
  EXPECT_TRUE(late.ok());
}

TEST_F(SessionControlTest, AnOwnerThatCannotStartEndsTheSession) {
  Call open;
  session_->Join(true, open.reply());
  uint64_t request = host_.Take()[0].start_session().request();
  session_->OnOwnerMessage(0, test::AcknowledgeOf(request));
  session_->OnOwnerMessage(1, test::AcknowledgeOf(request, "owner 1: plan hash differs"));
  EXPECT_EQ(session_->state(), State::kEnded);
  EXPECT_TRUE(session_->failed());
  EXPECT_EQ(open.status().code(), StatusCode::kInternal);
  ExpectNames(open.message(), {"owner 1: plan hash differs"});
}

TEST_F(SessionControlTest, AttachTellsOwnersAndAnswersWithTheLayout) {
  AcknowledgeAll();
  v1::AttachRequest request = AttachOf(1);
  request.mutable_parameters()->SwapElements(0, 1);  // registers b first
  v1::Region& region = *request.add_regions();       // its parameter 1 is a: rows 1 to 3
  region.set_parameter(1);
  for (int64_t v : {1, 0}) region.add_start(v);
  for (int64_t v : {3, 2}) region.add_extent(v);
  Call call = StartAttach(request, 1);
  EXPECT_EQ(call.answers(), 0);
  auto sent = host_.Take();
  ASSERT_EQ(sent.size(), 1U);
  const v1::AddTrainer& add = sent[0].add_trainer();
  EXPECT_EQ(add.trainer(), 1U);
  EXPECT_EQ(add.ingress(), 1U);
  EXPECT_EQ(add.host_id(), "node");
  EXPECT_FALSE(add.resumed());
  ASSERT_EQ(add.regions_size(), 2);
  EXPECT_EQ(add.regions(0).start(0), 1);  // a comes first in canonical order
  EXPECT_EQ(add.regions(1).extent(0), 2);
  for (int owner : {0, 1}) {
    EXPECT_EQ(call.answers(), 0);
    session_->OnOwnerMessage(owner, test::AcknowledgeOf(add.request()));
  }
  ASSERT_TRUE(call.ok());
  auto reply = call.As<v1::AttachReply>();
  EXPECT_EQ(reply.channel(), v1::CHANNEL_GRPC);
  EXPECT_EQ(reply.next_step(), 1U);
  EXPECT_EQ(reply.generation(), 0U);
  ASSERT_EQ(reply.buckets_size(), 2);  // one parameter on each owner
  for (const v1::Bucket& bucket : reply.buckets()) {
    EXPECT_EQ(bucket.owner_mpi_rank(), 10 + static_cast<int>(bucket.owner()));
    EXPECT_EQ(bucket.payload_bytes(), 64);
    ASSERT_EQ(bucket.entries_size(), 1);
    const v1::BucketEntry& entry = bucket.entries(0);
    EXPECT_EQ(entry.count(), entry.parameter() == 1 ? 6 : 4);  // 3 of 4 rows of a
    EXPECT_EQ(entry.rows(), entry.parameter() == 1 ? 4 : 2);
    EXPECT_EQ(entry.dtype(), "fp32");
  }
  EXPECT_NE(reply.buckets(0).entries(0).parameter(), reply.buckets(1).entries(0).parameter());
}

TEST_F(SessionControlTest, AttachRefusesNumbersThatDoNotFit) {
  AcknowledgeAll();
  Call outside = Attach(AttachOf(2));
  EXPECT_EQ(outside.status().code(), StatusCode::kInvalidArgument);
  ExpectNames(outside.message(), {"trainer: 2", "0 to 1"});
  ASSERT_TRUE(Attach(AttachOf(0)).ok());
  Call taken = Attach(AttachOf(0));
  EXPECT_EQ(taken.status().code(), StatusCode::kAlreadyExists);
  ExpectNames(taken.message(), {"trainer 0 (pid 100 on node)", "attached already"});
  EXPECT_EQ(session_->state(), State::kAttaching);
}

TEST_F(SessionControlTest, AttachRefusesNamesOfOtherParametersWithoutHarm) {
  AcknowledgeAll();
  v1::AttachRequest request = AttachOf(0);
  request.add_parameters("c");
  Call call = Attach(request);
  EXPECT_EQ(call.status().code(), StatusCode::kInvalidArgument);
  ExpectNames(call.message(), {"\"c\""});
  EXPECT_TRUE(Attach(AttachOf(0)).ok());
}

TEST_F(SessionControlTest, TrainersThatDoNotFitTogetherEndTheSession) {
  AcknowledgeAll();
  ASSERT_TRUE(Attach(AttachOf(0)).ok());
  Call ready = WaitReady(0);
  v1::AttachRequest replica = AttachOf(1);
  replica.set_contribution(v1::CONTRIBUTION_REPLICA);
  Call call = Attach(replica);
  EXPECT_EQ(call.status().code(), StatusCode::kInvalidArgument);
  ExpectNames(call.message(), {"parameter a", "PARTIAL on trainer 0", "REPLICA on trainer 1"});
  EXPECT_EQ(session_->state(), State::kEnded);
  EXPECT_EQ(ready.message(), call.message());  // the other one is told the same
}

TEST_F(SessionControlTest, ChannelMpiNeedsARankOfTheJob) {
  AcknowledgeAll();
  host_.trainer_ranks = {4, 5};
  v1::AttachRequest request = AttachOf(0);
  request.set_channel(v1::CHANNEL_MPI);
  request.set_mpi_rank(7);
  Call outside = Attach(request);
  EXPECT_EQ(outside.status().code(), StatusCode::kInvalidArgument);
  ExpectNames(outside.message(), {"channel mpi", "rank 7", "mpirun", "grpc"});
  request.set_mpi_rank(4);
  EXPECT_EQ(Attach(request).As<v1::AttachReply>().channel(), v1::CHANNEL_MPI);
  v1::AttachRequest same_rank = AttachOf(1);
  same_rank.set_channel(v1::CHANNEL_MPI);
  same_rank.set_mpi_rank(4);
  Call twice = Attach(same_rank);
  EXPECT_EQ(twice.status().code(), StatusCode::kInvalidArgument);
  ExpectNames(twice.message(), {"mpi_rank: 4", "trainer 0"});
}

TEST_F(SessionControlTest, ChannelAutoSaysWhatItChoseAndWhy) {
  AcknowledgeAll();
  host_.trainer_ranks = {4};
  v1::AttachRequest request = AttachOf(0);
  request.set_channel(v1::CHANNEL_AUTO);
  request.set_mpi_rank(4);
  auto in_job = Attach(request).As<v1::AttachReply>();
  EXPECT_EQ(in_job.channel(), v1::CHANNEL_MPI);
  ExpectNames(in_job.channel_reason(), {"auto", "is in the owners' MPI job"});
  request = AttachOf(1);
  request.set_channel(v1::CHANNEL_AUTO);
  auto outside = Attach(request).As<v1::AttachReply>();
  EXPECT_EQ(outside.channel(), v1::CHANNEL_GRPC);
  ExpectNames(outside.channel_reason(), {"auto", "is not in the owners' MPI job"});
}

TEST_F(SessionControlTest, ChannelsOfLaterReleasesAreRefusedByName) {
  AcknowledgeAll();
  v1::AttachRequest request = AttachOf(0);
  request.set_channel(v1::CHANNEL_SHM);
  Call call = Attach(request);
  EXPECT_EQ(call.status().code(), StatusCode::kUnimplemented);
  ExpectNames(call.message(), {"shm", "grpc or mpi"});
}

TEST_F(SessionControlTest, ReadyWhenEveryOwnerHasEveryInitialValue) {
  AcknowledgeAll();
  ASSERT_TRUE(Attach(AttachOf(0)).ok());
  ASSERT_TRUE(Attach(AttachOf(1)).ok());
  Call first = WaitReady(0);
  Call early = Begin(0, 1);
  EXPECT_EQ(early.status().code(), StatusCode::kFailedPrecondition);
  ExpectNames(early.message(), {"before the session is ready", "trainer 1 (pid 101 on node)"});
  session_->OnOwnerMessage(1, test::InitialDoneOf(1));
  session_->OnOwnerMessage(1, test::InitialDoneOf(1));
  EXPECT_EQ(first.answers(), 0);
  session_->OnOwnerMessage(0, test::InitialDoneOf(1));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first.As<v1::WaitReadyReply>().next_step(), 1U);
  EXPECT_TRUE(WaitReady(1).ok());  // late, and answered at once
  EXPECT_TRUE(Begin(0, 1).ok());
}

TEST_F(SessionControlTest, CallsOfTrainersThatAreNotAttachedAreRefused) {
  Run();
  ASSERT_TRUE(Detach(1).ok());
  for (Call call : {WaitReady(1), Begin(1, 1), Seal(1, 1), Wait(1, 1), Detach(1)}) {
    EXPECT_EQ(call.status().code(), StatusCode::kFailedPrecondition);
    ExpectNames(call.message(), {"trainer 1", "not attached"});
  }
  Call outside = Begin(5, 1);
  EXPECT_EQ(outside.status().code(), StatusCode::kInvalidArgument);
  ExpectNames(outside.message(), {"trainer: 5", "0 to 1"});
}

TEST_F(SessionControlTest, AbsentParametersAreTranslated) {
  AcknowledgeAll();
  v1::AttachRequest other_order = AttachOf(1);
  other_order.mutable_parameters()->SwapElements(0, 1);
  ASSERT_TRUE(Attach(AttachOf(0)).ok());
  ASSERT_TRUE(Attach(other_order).ok());
  for (int owner : {0, 1}) session_->OnOwnerMessage(owner, test::InitialDoneOf(1));
  ASSERT_TRUE(Begin(0, 1).ok());
  ASSERT_TRUE(Begin(1, 1).ok());
  Call wrong = Seal(0, 1, {2});
  EXPECT_EQ(wrong.status().code(), StatusCode::kInvalidArgument);
  ExpectNames(wrong.message(), {"absent", "2", "2 parameters"});
  ASSERT_TRUE(Seal(0, 1, {1}).ok());
  ASSERT_TRUE(Seal(1, 1, {0}).ok());  // both mean b
  auto sealed = host_.Take(Kind::kAllSealed);
  ASSERT_EQ(sealed.size(), 1U);
  ASSERT_EQ(sealed[0].all_sealed().absent_size(), 1);
  EXPECT_EQ(sealed[0].all_sealed().absent(0), 1U);
}

// A trainer that holds nothing of a parameter has no say in whether its gradient is absent.
TEST_F(SessionControlTest, AbsenceIsDecidedByThoseWhoHoldAPart) {
  AcknowledgeAll();
  for (uint32_t trainer : {0U, 1U}) {
    v1::AttachRequest request = AttachOf(trainer);
    request.set_contribution(v1::CONTRIBUTION_REPLICA);
    v1::Region& region = *request.add_regions();  // a: all on trainer 0, none on trainer 1
    region.set_parameter(0);
    region.add_start(trainer == 0 ? 0 : 4);
    region.add_start(0);
    region.add_extent(trainer == 0 ? 4 : 0);
    region.add_extent(2);
    Call attach = Attach(request);
    ASSERT_TRUE(attach.ok()) << attach.message();
  }
  for (int owner : {0, 1}) session_->OnOwnerMessage(owner, test::InitialDoneOf(1));
  auto absent_with = [&](uint64_t generation, const std::vector<uint32_t>& first,
                         const std::vector<uint32_t>& second) {
    host_.Take();
    EXPECT_TRUE(Begin(0, 1).ok());
    EXPECT_TRUE(Begin(1, 1).ok());
    EXPECT_TRUE(Seal(0, generation, first).ok());
    EXPECT_TRUE(Seal(1, generation, second).ok());
    auto sealed = host_.Take(Kind::kAllSealed);
    EXPECT_EQ(sealed.size(), 1U);
    std::vector<uint32_t> absent(sealed[0].all_sealed().absent().begin(),
                                 sealed[0].all_sealed().absent().end());
    v1::OwnerMessage refused;
    refused.mutable_data_error()->set_generation(generation);
    session_->OnOwnerMessage(0, refused);  // ends the attempt
    return absent;
  };
  EXPECT_EQ(absent_with(1, {0}, {}), std::vector<uint32_t>{0});
  EXPECT_EQ(absent_with(2, {0}, {0}), std::vector<uint32_t>{0});
  EXPECT_EQ(absent_with(3, {}, {0}), std::vector<uint32_t>{});
  EXPECT_EQ(absent_with(4, {1}, {}), std::vector<uint32_t>{});
  EXPECT_EQ(absent_with(5, {1}, {1}), std::vector<uint32_t>{1});
}

TEST_F(SessionControlTest, DescribesTrainersAndStep) {
  Run();
  v1::SessionStatus status = session_->Describe();
  EXPECT_EQ(status.state(), "running");
  EXPECT_EQ(status.parameters(), 2U);
  EXPECT_EQ(status.matrices(), 2U);
  EXPECT_EQ(status.plan_hash(), plan_hash_);
  EXPECT_EQ(status.waiting_for(), "");
  EXPECT_EQ(status.trainers(1).state(), "ready");
  EXPECT_EQ(status.trainers(1).pid(), 101);
  EXPECT_EQ(status.trainers(1).channel(), "grpc");
  ASSERT_TRUE(Begin(0, 1).ok());
  ASSERT_TRUE(Begin(1, 1).ok());
  ASSERT_TRUE(Seal(1, 1).ok());
  status = session_->Describe();
  EXPECT_EQ(status.trainers(0).state(), "pushing");
  EXPECT_EQ(status.trainers(1).state(), "sealed");
  ExpectNames(status.waiting_for(), {"trainer 0 (pid 100 on node) to push and seal"});
  session_->LoseTrainer(0);
  status = session_->Describe();
  EXPECT_EQ(status.trainers(0).state(), "lost");
  EXPECT_EQ(status.aborted(), 1U);
  EXPECT_EQ(status.next_step(), 1U);
}

}  // namespace
}  // namespace dmuon
