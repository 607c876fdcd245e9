#include "daemon/coordinator/step_control.h"

#include <cmath>
#include <functional>

#include "tests/daemon/step_support.h"

namespace dmuon {
namespace {

using StepControlTest = test::StepTest;
using test::Call;
using test::ExpectNames;

std::vector<double> ComputeSeconds(const v1::StepReport& report) {
  return {report.owner_compute_s().begin(), report.owner_compute_s().end()};
}

class ClippedStepTest : public test::StepTest {
 protected:
  ClippedStepTest() : StepTest(R"("max_grad_norm": 1.0, )") {}
};

TEST_F(StepControlTest, FirstBeginStartsTheStepOnOwners) {
  Call first = Begin(0, 1, {{"muon", 0.5}}, 4.0);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first.As<v1::BeginStepReply>().generation(), 1U);
  auto sent = host_.Take();
  ASSERT_EQ(sent.size(), 1U);
  const v1::StartStep& start = sent[0].start_step();
  EXPECT_EQ(start.session(), 9U);
  EXPECT_EQ(start.step(), 1U);
  EXPECT_EQ(start.generation(), 1U);
  EXPECT_EQ(start.grad_scale(), 4.0);
  ASSERT_EQ(start.groups_size(), 1);
  EXPECT_EQ(start.groups(0).group(), "muon");
  EXPECT_EQ(start.groups(0).lr(), 0.5);

  Call second = Begin(1, 1, {{"muon", 0.5}}, 4.0);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second.As<v1::BeginStepReply>().generation(), 1U);
  EXPECT_TRUE(host_.Take().empty());  // it has started already
}

TEST_F(StepControlTest, GradScaleZeroMeansOne) {
  ASSERT_TRUE(Begin(0, 1).ok());
  EXPECT_EQ(host_.Take()[0].start_step().grad_scale(), 1.0);
  EXPECT_TRUE(Begin(1, 1, {}, 1.0).ok());
}

TEST_F(StepControlTest, TrainersMustSendEqualValues) {
  ASSERT_TRUE(Begin(0, 1, {{"muon", 0.5}}).ok());
  Call other = Begin(1, 1, {{"muon", 0.25}});
  EXPECT_EQ(other.status().code(), StatusCode::kInvalidArgument);
  ExpectNames(other.message(), {"step 1", "trainer 1", "muon.lr", "0.25", "trainer 0", "0.5"});
  Call without = Begin(1, 1);
  ExpectNames(without.message(), {"muon.lr = nothing", "0.5"});
  Call more = Begin(1, 1, {{"muon", 0.5}, {"adamw", 0.125}});
  ExpectNames(more.message(), {"adamw.lr = 0.125", "sent nothing"});
  Call scale = Begin(1, 1, {{"muon", 0.5}}, 8.0);
  ExpectNames(scale.message(), {"grad_scale = 8", "sent 1"});
  EXPECT_TRUE(Begin(1, 1, {{"muon", 0.5}}).ok());  // what was refused left nothing behind
}

TEST_F(StepControlTest, ValuesAreCheckedBeforeAnythingStarts) {
  Call unknown = Begin(0, 1, {{"embed", 0.5}});
  EXPECT_EQ(unknown.status().code(), StatusCode::kInvalidArgument);
  ExpectNames(unknown.message(), {"embed"});
  Call negative = Begin(0, 1, {{"muon", -0.5}});
  ExpectNames(negative.message(), {"muon", "-0.5"});
  Call scale = Begin(0, 1, {}, -1.0);
  ExpectNames(scale.message(), {"grad_scale", "-1"});
  EXPECT_FALSE(steps_.active());
  EXPECT_TRUE(host_.Take().empty());
}

TEST_F(StepControlTest, StepsAreNumberedFromOne) {
  for (uint64_t wrong : {0U, 2U}) {
    Call call = Begin(1, wrong);
    EXPECT_EQ(call.status().code(), StatusCode::kFailedPrecondition);
    ExpectNames(call.message(), {"trainer 1", "step " + std::to_string(wrong), "at step 1"});
  }
  Commit(1);
  EXPECT_FALSE(Begin(0, 1).ok());
  EXPECT_TRUE(Begin(0, 2).ok());
}

TEST_F(StepControlTest, ATrainerBeginsOnce) {
  ASSERT_TRUE(Begin(0, 1).ok());
  Call again = Begin(0, 1);
  EXPECT_EQ(again.status().code(), StatusCode::kFailedPrecondition);
  ExpectNames(again.message(), {"trainer 0", "already begun", "step 1"});
}

TEST_F(StepControlTest, ATrainerSealsOnce) {
  uint64_t generation = BeginBoth(1);
  ASSERT_TRUE(Seal(0, generation).ok());
  Call again = Seal(0, generation);
  EXPECT_EQ(again.status().code(), StatusCode::kFailedPrecondition);
  ExpectNames(again.message(), {"trainer 0", "already sealed", "step 1"});
  EXPECT_TRUE(host_.Take(Kind::kAllSealed).empty());
}

TEST_F(StepControlTest, SealAndWaitNeedABegunStep) {
  Call early = Seal(0, 1);
  EXPECT_EQ(early.status().code(), StatusCode::kFailedPrecondition);
  ExpectNames(early.message(), {"SealStep", "trainer 0", "generation 1", "generation is 0"});
  ASSERT_TRUE(Begin(0, 1).ok());
  EXPECT_FALSE(Seal(1, 1).ok());
  Call wait = Wait(1, 1);
  EXPECT_EQ(wait.status().code(), StatusCode::kFailedPrecondition);
  ExpectNames(wait.message(), {"WaitStep", "trainer 1", "generation 1"});
  EXPECT_FALSE(Seal(0, 7).ok());
}

// Absent is what is absent on every trainer.
TEST_F(StepControlTest, AllSealedNamesWhatIsAbsentEverywhere) {
  uint64_t generation = BeginBoth(1);
  ASSERT_TRUE(Seal(0, generation, {0, 2}).ok());
  EXPECT_TRUE(host_.Take(Kind::kAllSealed).empty());
  ASSERT_TRUE(Seal(1, generation, {1, 2}).ok());
  auto sealed = host_.Take(Kind::kAllSealed);
  ASSERT_EQ(sealed.size(), 1U);
  ASSERT_EQ(sealed[0].all_sealed().absent_size(), 1);
  EXPECT_EQ(sealed[0].all_sealed().absent(0), 2U);
  EXPECT_EQ(sealed[0].all_sealed().generation(), generation);
}

TEST_F(StepControlTest, CommitNeedsEverySealAndEveryOwner) {
  uint64_t generation = BeginBoth(1);
  Call waiting = Wait(0, generation);
  std::vector<std::function<void()>> needed = {[&] { ASSERT_TRUE(Seal(0, generation).ok()); },
                                               [&] { Reduced(0, generation); },
                                               [&] { Ready(0, generation); },
                                               [&] { Reduced(1, generation); },
                                               [&] { ASSERT_TRUE(Seal(1, generation).ok()); },
                                               [&] { Ready(1, generation); }};
  for (const auto& one : needed) {
    EXPECT_TRUE(steps_.active());
    EXPECT_EQ(waiting.answers(), 0);
    EXPECT_TRUE(host_.Take(Kind::kFinishStep).empty());
    one();
  }
  EXPECT_FALSE(steps_.active());
  EXPECT_EQ(Finished(), v1::STEP_OUTCOME_COMMITTED);
  ASSERT_TRUE(waiting.ok());
  EXPECT_EQ(waiting.As<v1::StepReport>().next_step(), 2U);
  EXPECT_EQ(steps_.count(v1::STEP_OUTCOME_COMMITTED), 1U);
}

TEST_F(StepControlTest, MessagesOfOtherGenerationsAreIgnored) {
  uint64_t generation = SealBoth(1);
  for (int owner : {0, 1}) {
    Reduced(owner, generation + 1, {}, 0);
    Ready(owner, generation + 1);
    Reduced(owner, generation - 1, {}, 0);
    Ready(owner, generation - 1);
  }
  EXPECT_TRUE(steps_.active());
  for (int owner : {0, 1}) {
    Reduced(owner, generation);
    Ready(owner, generation);
  }
  EXPECT_EQ(Finished(), v1::STEP_OUTCOME_COMMITTED);
}

TEST_F(StepControlTest, ReportsAddUpOwners) {
  uint64_t generation = SealBoth(1, {2});
  Reduced(1, generation, {{1, 16.0}});
  Reduced(0, generation, {{0, 9.0}});
  Ready(0, generation, 3, 3, -1, 0.25);
  Ready(1, generation, 4, 4, -1, 0.75);
  v1::StepReport report = Report(generation);
  EXPECT_EQ(report.step(), 1U);
  EXPECT_EQ(report.generation(), generation);
  EXPECT_EQ(report.outcome(), v1::STEP_OUTCOME_COMMITTED);
  EXPECT_EQ(report.reason(), "");
  EXPECT_EQ(report.grad_norm(), 5.0);
  EXPECT_EQ(report.clip_factor(), 1.0);
  EXPECT_EQ(report.busiest_owner_s(), 0.75);
  EXPECT_EQ(ComputeSeconds(report), (std::vector<double>{0.25, 0.75}));
  EXPECT_EQ(report.absent_parameters(), 1U);
  ASSERT_EQ(report.orthogonalised_size(), 1);
  EXPECT_EQ(report.orthogonalised(0).matrices(), 7U);
  EXPECT_EQ(report.orthogonalised(0).form(), "direct");
}

TEST_F(StepControlTest, ComputeTimesAreInRankOrderAndOfOneStep) {
  uint64_t generation = SealBoth(1);
  for (int owner : {1, 0}) Reduced(owner, generation);
  Ready(1, generation, 1, 1, -1, 0.125);
  Ready(0, generation, 1, 1, -1, 0.5);
  EXPECT_EQ(ComputeSeconds(Report(generation)), (std::vector<double>{0.5, 0.125}));

  uint64_t aborted = SealBoth(2);
  for (int owner : {0, 1}) Reduced(owner, aborted);
  Ready(1, aborted, 1, 1, -1, 0.25);
  steps_.Abort("a trainer was lost");
  v1::StepReport report = Report(aborted);
  EXPECT_EQ(ComputeSeconds(report), (std::vector<double>{0.0, 0.25}));  // owner 0 had not finished
  EXPECT_EQ(report.busiest_owner_s(), 0.25);
}

// The sum over pieces runs in plan order, whoever reports first: 1 + 8 * 2^-53 is 1 in fp64 from
// the left, and 1 + 2^-50 from the right.
TEST_F(StepControlTest, NormAddsPiecesInPlanOrder) {
  std::map<uint32_t, double> small;
  for (uint32_t piece = 1; piece <= 8; ++piece) small[piece] = 0x1p-53;
  for (bool small_first : {false, true}) {
    uint64_t generation = SealBoth(steps_.next_step());
    Reduced(0, generation, small_first ? small : std::map<uint32_t, double>{{0, 1.0}});
    Reduced(1, generation, small_first ? std::map<uint32_t, double>{{0, 1.0}} : small);
    Ready(0, generation);
    Ready(1, generation);
    EXPECT_EQ(Report(generation).grad_norm(), 1.0);
  }
  EXPECT_NE(std::sqrt(0x1p-50 + 1.0), 1.0);  // what another order would give
}

TEST_F(StepControlTest, NotFiniteIsSkippedAndUsesUpTheNumber) {
  uint64_t generation = SealBoth(1);
  Reduced(0, generation, {}, 1);
  Reduced(1, generation);
  EXPECT_TRUE(steps_.active());  // owners are not done yet
  Ready(0, generation, 0, 0, 1);
  Ready(1, generation);
  EXPECT_EQ(Finished(), v1::STEP_OUTCOME_SKIPPED);
  v1::StepReport report = Report(generation);
  EXPECT_EQ(report.outcome(), v1::STEP_OUTCOME_SKIPPED);
  EXPECT_EQ(report.parameter(), "b");
  ExpectNames(report.reason(), {"b", "not finite"});
  EXPECT_EQ(report.next_step(), 2U);
  EXPECT_EQ(steps_.count(v1::STEP_OUTCOME_SKIPPED), 1U);
  EXPECT_TRUE(Begin(0, 2).ok());
}

TEST_F(StepControlTest, SkipNamesTheFirstParameterInCanonicalOrder) {
  for (int first_owner : {0, 1}) {
    uint64_t generation = SealBoth(steps_.next_step());
    Reduced(first_owner, generation, {}, first_owner == 0 ? 2 : 1);
    Reduced(1 - first_owner, generation, {}, first_owner == 0 ? 1 : 2);
    Ready(0, generation, 0, 0);
    Ready(1, generation, 0, 0, 0);  // a result, not an input
    EXPECT_EQ(Report(generation).parameter(), "a");
  }
}

TEST_F(StepControlTest, MatricesThatWereNotOrthogonalisedAbortTheStep) {
  uint64_t generation = SealBoth(1);
  Reduced(0, generation);
  Reduced(1, generation);
  Ready(0, generation, 0, 2);
  Ready(1, generation, 1, 1);
  EXPECT_EQ(Finished(), v1::STEP_OUTCOME_ABORTED);
  v1::StepReport report = Report(generation);
  ExpectNames(report.reason(), {"1 matrices of 3"});
  EXPECT_EQ(report.next_step(), 1U);
}

TEST_F(ClippedStepTest, OwnersGetTheFactorWhenAllHaveReduced) {
  uint64_t generation = SealBoth(1);
  host_.Take();
  Reduced(0, generation, {{0, 9.0}});
  EXPECT_TRUE(host_.Take(Kind::kClipFactor).empty());
  Reduced(1, generation, {{1, 16.0}});
  auto sent = host_.Take(Kind::kClipFactor);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_DOUBLE_EQ(sent[0].clip_factor().factor(), 0.2);
  EXPECT_EQ(sent[0].clip_factor().generation(), generation);
  Ready(0, generation);
  Ready(1, generation);
  v1::StepReport report = Report(generation);
  EXPECT_EQ(report.outcome(), v1::STEP_OUTCOME_COMMITTED);
  EXPECT_EQ(report.grad_norm(), 5.0);
  EXPECT_DOUBLE_EQ(report.clip_factor(), 0.2);
}

// The norm may be known before the last trainer has sealed: that changes nothing.
TEST_F(ClippedStepTest, AgreementDoesNotWaitForSeals) {
  uint64_t generation = BeginBoth(1);
  Reduced(0, generation, {{0, 0.25}});
  Reduced(1, generation);
  EXPECT_EQ(host_.Take(Kind::kClipFactor).at(0).clip_factor().factor(), 1.0);  // short enough
  Ready(0, generation);
  Ready(1, generation);
  EXPECT_TRUE(steps_.active());
  ASSERT_TRUE(Seal(0, generation).ok());
  ASSERT_TRUE(Seal(1, generation).ok());
  EXPECT_EQ(Finished(), v1::STEP_OUTCOME_COMMITTED);
}

// Owners would wait for a factor for ever.
TEST_F(ClippedStepTest, NotFiniteIsSkippedWithoutAFactor) {
  uint64_t generation = SealBoth(1);
  Reduced(0, generation, {}, 1);
  EXPECT_TRUE(steps_.active());
  Reduced(1, generation, {{0, 4.0}});
  auto sent = host_.Take();
  ASSERT_FALSE(sent.empty());
  EXPECT_EQ(sent.back().finish_step().outcome(), v1::STEP_OUTCOME_SKIPPED);
  for (const v1::OwnerMessage& message : sent) EXPECT_FALSE(message.has_clip_factor());
  EXPECT_EQ(Report(generation).parameter(), "b");
}

// What is not finite only after the update: the name may not depend on who is faster.
TEST_F(ClippedStepTest, SkipNamesTheFirstParameterWhoeverIsReadyFirst) {
  for (int first_owner : {0, 1}) {
    uint64_t generation = SealBoth(steps_.next_step());
    Reduced(0, generation, {{0, 4.0}});
    Reduced(1, generation, {{1, 4.0}});
    Ready(first_owner, generation, 1, 1, first_owner == 0 ? 0 : 1);
    Ready(1 - first_owner, generation, 1, 1, first_owner == 0 ? 1 : 0);
    EXPECT_EQ(Report(generation).parameter(), "a") << "owner " << first_owner << " first";
  }
}

TEST_F(StepControlTest, ReportsAreKeptForTrainersThatAskLate) {
  Commit(1);
  Commit(2);
  Commit(3);
  EXPECT_EQ(Report(1).step(), 1U);
  EXPECT_EQ(Report(3).step(), 3U);
  Call sealed_late = Seal(1, 2);  // of a step that ended meanwhile
  EXPECT_TRUE(sealed_late.ok());
  EXPECT_FALSE(Wait(0, 4).ok());
}

TEST_F(StepControlTest, EveryoneWhoWaitsIsAnsweredOnce) {
  uint64_t generation = SealBoth(1);
  Call first = Wait(0, generation);
  Call second = Wait(1, generation);
  for (int owner : {0, 1}) {
    Reduced(owner, generation);
    Ready(owner, generation);
  }
  EXPECT_TRUE(first.ok());
  EXPECT_TRUE(second.ok());
  Commit(2);
  EXPECT_EQ(first.answers(), 1);
}

TEST_F(StepControlTest, AbortedStepsAreRepeatedUnderANewGeneration) {
  uint64_t generation = BeginBoth(1);
  Call waiting = Wait(1, generation);
  steps_.Abort("trainer 0 was lost");
  EXPECT_EQ(Finished(), v1::STEP_OUTCOME_ABORTED);
  ASSERT_TRUE(waiting.ok());
  v1::StepReport report = waiting.As<v1::StepReport>();
  EXPECT_EQ(report.outcome(), v1::STEP_OUTCOME_ABORTED);
  EXPECT_EQ(report.reason(), "trainer 0 was lost");
  EXPECT_EQ(report.next_step(), 1U);
  EXPECT_EQ(BeginBoth(1), generation + 1);
  EXPECT_EQ(steps_.count(v1::STEP_OUTCOME_ABORTED), 1U);
  steps_.Abort("again");
  steps_.Abort("and without a step");  // nothing to abort
  EXPECT_EQ(steps_.count(v1::STEP_OUTCOME_ABORTED), 2U);
}

TEST_F(StepControlTest, CloseAnswersWhoWaits) {
  uint64_t generation = BeginBoth(1);
  Call waiting = Wait(0, generation);
  steps_.Close({StatusCode::kAborted, "the session ended"});
  EXPECT_TRUE(waiting.answered());
  EXPECT_EQ(waiting.status().code(), StatusCode::kAborted);
  EXPECT_EQ(waiting.message(), "the session ended");
  EXPECT_FALSE(steps_.active());
}

TEST_F(StepControlTest, WaitingForNamesTrainersThenOwners) {
  EXPECT_EQ(steps_.WaitingFor(), "");
  steps_.NameTrainer(1, "trainer 1 (pid 4711 on gpu-07)");
  ASSERT_TRUE(Begin(0, 1).ok());
  ExpectNames(steps_.WaitingFor(),
              {"trainer 0 to push and seal", "trainer 1 (pid 4711 on gpu-07) to begin", "owner 0"});
  ASSERT_TRUE(Begin(1, 1).ok());
  ASSERT_TRUE(Seal(0, 1).ok());
  ASSERT_TRUE(Seal(1, 1).ok());
  Reduced(0, 1);
  Ready(0, 1);
  EXPECT_EQ(steps_.WaitingFor(), "owner 1");
}

}  // namespace
}  // namespace dmuon
