// One owner message by message: when things arrive, from whom, and who gets what back.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/daemon/expect_text.h"
#include "tests/daemon/owner_session_support.h"

namespace dmuon {
namespace {

using test::ExpectNames;
using test::Job;
using test::MessageOptions;
using test::Tensors;
using test::TestOwner;
using Kind = v1::OwnerMessage;

// Two 2x2 matrices a and b in a bucket each, from two trainers.
std::string TwoMatrices(const std::string& top = "") {
  return "{" + top + R"("groups": {"muon": {"precision": "fp32", "form": "direct"}},
    "parameters": [{"name": "a", "shape": [2, 2]}, {"name": "b", "shape": [2, 2]}]})";
}

class OneOwnerTest : public testing::Test {
 protected:
  explicit OneOwnerTest(const std::string& top = "")
      : job_(test::MakeJob(TwoMatrices(top), 1, 2, 1)), owner_(job_, 0) {}

  BucketPtr Message(uint32_t trainer, const std::string& parameter, const MessageOptions& options,
                    const std::vector<float>& values) {
    return test::PackBucket(job_, trainer, job_.ParameterNamed(parameter), {{parameter, values}},
                            options);
  }
  BucketPtr Initial(uint32_t trainer, const std::string& parameter,
                    const std::vector<float>& values = {1, 0, 0, 1}) {
    return Message(trainer, parameter, {BucketKind::kInitial, true, 1, 0}, values);
  }
  BucketPtr Gradient(uint32_t trainer, const std::string& parameter, uint64_t generation,
                     bool is_final = true, const std::vector<float>& values = {3, 0, 0, 4}) {
    return Message(trainer, parameter, {BucketKind::kGradient, is_final, 1, generation}, values);
  }
  void Run() {
    for (uint32_t trainer : {0U, 1U}) owner_.AddTrainer(trainer);
    for (uint32_t trainer : {0U, 1U}) {
      for (const char* name : {"a", "b"}) owner_.Take(Initial(trainer, name));
    }
    EXPECT_EQ(owner_.Next(Kind::kInitialValuesDone).initial_values_done().error(), "");
  }
  void PushAll(uint64_t generation, const std::vector<float>& values = {3, 0, 0, 4}) {
    for (uint32_t trainer : {0U, 1U}) {
      for (const char* name : {"a", "b"})
        owner_.Take(Gradient(trainer, name, generation, true, values));
    }
  }
  // A step that commits. Returns what is published to each trainer.
  std::map<uint32_t, Tensors> Step(uint64_t generation) {
    owner_.StartStep(generation);
    PushAll(generation);
    return Complete(generation);
  }
  std::map<uint32_t, Tensors> Complete(uint64_t generation) {
    owner_.Seal(generation);
    owner_.Next(Kind::kReduced);
    EXPECT_EQ(owner_.Next(Kind::kStepReady).step_ready().muon_matrices_expected(), 2U);
    owner_.Finish(generation);
    return Published(generation);
  }
  std::map<uint32_t, Tensors> Published(uint64_t generation) {
    std::map<uint32_t, Tensors> values;
    for (const BucketPtr& bucket : owner_.TakePublished()) {
      EXPECT_EQ(bucket->header().generation, generation);
      test::UnpackBucket(job_, *bucket, &values[bucket->header().trainer]);
    }
    return values;
  }

  Job job_;
  TestOwner owner_;
};

class ClippingOwnerTest : public OneOwnerTest {
 protected:
  ClippingOwnerTest() : OneOwnerTest(R"("max_grad_norm": 1.0, )") {}
};

TEST_F(OneOwnerTest, InitialValuesMayComeBeforeTheOtherTrainers) {
  owner_.AddTrainer(1);
  owner_.Take(Initial(1, "a"));
  owner_.Take(Initial(1, "b"));
  owner_.AddTrainer(0);
  owner_.Take(Initial(0, "b"));
  owner_.Settle();
  EXPECT_FALSE(owner_.Sent(Kind::kInitialValuesDone));
  owner_.Take(Initial(0, "a"));
  EXPECT_EQ(owner_.Next(Kind::kInitialValuesDone).initial_values_done().error(), "");
}

TEST_F(OneOwnerTest, DifferingInitialValuesAreReportedOnce) {
  for (uint32_t trainer : {0U, 1U}) owner_.AddTrainer(trainer);
  for (uint32_t trainer : {0U, 1U}) {
    std::vector<float> values{1, 0, 0, static_cast<float>(trainer)};
    for (const char* name : {"a", "b"}) owner_.Take(Initial(trainer, name, values));
  }
  ExpectNames(owner_.Next(Kind::kInitialValuesDone).initial_values_done().error(),
              {"differs between trainers 0 and 1"});
}

// A client that marks its initial values as absent is told, instead of being waited for.
TEST_F(OneOwnerTest, InitialValuesThatNobodySendsAreReported) {
  for (uint32_t trainer : {0U, 1U}) owner_.AddTrainer(trainer);
  for (uint32_t trainer : {0U, 1U}) {
    owner_.Take(test::PackBucket(job_, trainer, 0, {}, {BucketKind::kInitial, true, 1, 0}));
    owner_.Take(Initial(trainer, "b"));
  }
  ExpectNames(owner_.Next(Kind::kInitialValuesDone).initial_values_done().error(), {"parameter a"});
}

TEST_F(OneOwnerTest, AnOwnerWithoutPiecesKeepsUp) {
  Job job = test::MakeJob(R"({"parameters": [{"name": "a", "shape": [2, 2]}]})", 2, 1);
  ASSERT_EQ(job.plan.buckets.at(0).owner, 0U);
  TestOwner idle(job, 1);
  idle.AddTrainer(0);
  EXPECT_EQ(idle.Next(Kind::kInitialValuesDone).initial_values_done().error(), "");
  idle.StartStep(1);
  EXPECT_EQ(idle.Next(Kind::kReduced).reduced().norms_size(), 0);
  EXPECT_EQ(idle.Next(Kind::kStepReady).step_ready().muon_matrices_expected(), 0U);
  idle.Seal(1);
  idle.Finish(1);
  EXPECT_TRUE(idle.TakePublished().empty());
  idle.StartStep(2);
  idle.Next(Kind::kReduced);
  idle.Next(Kind::kStepReady);
}

TEST_F(OneOwnerTest, ReportsNormsAndMatrices) {
  Run();
  owner_.StartStep(1);
  PushAll(1);
  v1::Reduced reduced = owner_.Next(Kind::kReduced).reduced();
  ASSERT_EQ(reduced.norms_size(), 2);
  for (const v1::PieceNorm& norm : reduced.norms()) EXPECT_EQ(norm.squared_sum(), 25.0);
  v1::StepReady ready = owner_.Next(Kind::kStepReady).step_ready();
  ASSERT_EQ(ready.orthogonalised_size(), 1);
  EXPECT_EQ(ready.orthogonalised(0).rule(), "muon");
  EXPECT_EQ(ready.orthogonalised(0).form(), "direct");
  EXPECT_EQ(ready.orthogonalised(0).precision(), "fp32");
  EXPECT_EQ(ready.orthogonalised(0).matrices(), 2U);
  EXPECT_EQ(ready.muon_matrices_expected(), 2U);
  EXPECT_GT(ready.busy_s(), 0);
  EXPECT_TRUE(owner_.TakePublished().empty());  // not before the commit
}

TEST_F(OneOwnerTest, PublishesToEveryTrainerAfterTheCommit) {
  Run();
  auto values = Step(1);
  ASSERT_EQ(values.size(), 2U);
  EXPECT_EQ(values[0], values[1]);
  // p = I, lr .02, scale .2 * sqrt(2): minus .0056569 * diag(1.105790, 1.123382).
  EXPECT_NEAR(values[0]["a"][0], 1 - 0.00565685 * 1.105790, 1e-6);
  EXPECT_NEAR(values[0]["a"][3], 1 - 0.00565685 * 1.123382, 1e-6);
}

TEST_F(OneOwnerTest, MicroBatchesAreOneUpdate) {
  Run();
  auto expected = Step(1);
  Job other = job_;
  TestOwner second(other, 0);
  for (uint32_t trainer : {0U, 1U}) second.AddTrainer(trainer);
  for (uint32_t trainer : {0U, 1U}) {
    for (const char* name : {"a", "b"}) second.Take(Initial(trainer, name));
  }
  second.Next(Kind::kInitialValuesDone);
  second.StartStep(1);
  for (float part : {1.0F, 2.0F, 3.0F}) {
    for (uint32_t trainer : {0U, 1U}) {
      for (const char* name : {"a", "b"}) {
        second.Take(Gradient(trainer, name, 1, false, {part, part, part, part}));
      }
    }
    second.Settle();
    EXPECT_FALSE(second.Sent(Kind::kReduced));  // no work was started
  }
  for (uint32_t trainer : {0U, 1U}) {
    for (const char* name : {"a", "b"}) second.Take(Gradient(trainer, name, 1));
  }
  second.Seal(1);
  v1::StepReady ready = second.Next(Kind::kStepReady).step_ready();
  EXPECT_EQ(ready.orthogonalised(0).matrices(), 2U);
  second.Finish(1);
  Tensors values;
  for (const BucketPtr& bucket : second.TakePublished()) {
    if (bucket->header().trainer == 0) test::UnpackBucket(job_, *bucket, &values);
  }
  EXPECT_EQ(values, expected[0]);
}

TEST_F(OneOwnerTest, PushesOfTheNextGenerationWaitForItsStart) {
  Run();
  PushAll(1);  // trainers heard of the step before this owner did
  owner_.Settle();
  EXPECT_FALSE(owner_.Sent(Kind::kReduced));
  owner_.StartStep(1);
  EXPECT_EQ(Complete(1).size(), 2U);
}

TEST_F(OneOwnerTest, RefusalsOfEarlyPushesAreReported) {
  Run();
  owner_.Take(Gradient(0, "a", 1));
  owner_.Take(Gradient(0, "a", 1));  // a second final push, kept for the step
  owner_.StartStep(1);
  v1::DataError error = owner_.Next(Kind::kDataError).data_error();
  EXPECT_EQ(error.trainer(), 0U);
  EXPECT_EQ(error.generation(), 1U);
  EXPECT_FALSE(error.stale());
  ExpectNames(error.message(), {"trainer 0", "bucket 0", "final"});
}

TEST_F(OneOwnerTest, PushesAfterAnAbortAreStale) {
  Run();
  owner_.StartStep(1);
  owner_.Finish(1, v1::STEP_OUTCOME_ABORTED);
  ExpectNames(owner_.Refusal(Gradient(0, "a", 1)), {"stale: ", "trainer 0", "generation 1"});
  Step(2);
  EXPECT_EQ(owner_.Refusal(Gradient(0, "a", 2)).find("stale"), std::string::npos);
}

TEST_F(OneOwnerTest, PushesOfOtherGenerationsAreRefused) {
  Run();
  Step(1);
  Step(2);
  owner_.StartStep(3);
  ExpectNames(owner_.Refusal(Gradient(1, "b", 2)),
              {"stale: ", "trainer 1", "bucket 1", "generation 2", "current one is 3"});
  std::string future = owner_.Refusal(Gradient(0, "a", 5));
  ExpectNames(future, {"trainer 0", "bucket 0", "generation 5", "current one is 3"});
  EXPECT_EQ(future.find("stale"), std::string::npos);
  PushAll(3);
  EXPECT_EQ(Complete(3).size(), 2U);  // they changed nothing
}

TEST_F(OneOwnerTest, PushesAfterTheStepAreRefused) {
  Run();
  Step(1);
  ExpectNames(owner_.Refusal(Gradient(0, "a", 1)), {"trainer 0", "generation 1", "no step"});
  ExpectNames(owner_.Refusal(Initial(0, "a")), {"trainer 0", "bucket 0", "no step"});
}

TEST_F(OneOwnerTest, PushesOfStrangersAreRefused) {
  owner_.AddTrainer(0);
  ExpectNames(owner_.Refusal(Initial(1, "a")), {"trainer 1", "not attached"});
  auto message = test::PackBucket(job_, 0, 0, {{"a", {1, 2, 3, 4}}}, {});
  BucketHeader header = message->header();
  header.trainer = 77;
  message->set_header(header);
  ExpectNames(owner_.Refusal(message), {"trainer 77", "not attached"});
  header.trainer = 0;
  header.entries = 5;
  message->set_header(header);
  ExpectNames(owner_.Refusal(message), {"trainer 0", "bucket 0", "5 entries"});
}

TEST_F(OneOwnerTest, SecondFinalPushesAreRefused) {
  Run();
  owner_.StartStep(1);
  owner_.Take(Gradient(0, "a", 1));
  std::string refusal = owner_.Refusal(Gradient(0, "a", 1));
  ExpectNames(refusal, {"trainer 0", "bucket 0", "final"});
  EXPECT_EQ(refusal.find("stale"), std::string::npos);
}

TEST_F(OneOwnerTest, MissingNamesTrainersAndParameters) {
  EXPECT_TRUE(owner_.session().Missing().empty());
  for (uint32_t trainer : {0U, 1U}) owner_.AddTrainer(trainer);
  for (const char* name : {"a", "b"}) owner_.Take(Initial(0, name));
  auto initial = owner_.session().Missing();
  ASSERT_EQ(initial.size(), 1U);
  EXPECT_EQ(initial[0].trainer(), 1U);
  EXPECT_EQ(initial[0].parameters(), 2U);
  for (const char* name : {"a", "b"}) owner_.Take(Initial(1, name));
  owner_.Next(Kind::kInitialValuesDone);
  owner_.StartStep(1);
  owner_.Take(Gradient(0, "a", 1));
  owner_.Take(Gradient(1, "a", 1));
  owner_.Take(Gradient(1, "b", 1, false));
  auto missing = owner_.session().Missing();
  ASSERT_EQ(missing.size(), 2U);
  EXPECT_EQ(missing[0].trainer(), 0U);
  EXPECT_EQ(missing[1].trainer(), 1U);
  for (const v1::MissingFromTrainer& entry : missing) {
    EXPECT_EQ(entry.parameters(), 1U);
    ASSERT_EQ(entry.examples_size(), 1);
    EXPECT_EQ(entry.examples(0), "b");
  }
}

// An aborted step is repeated under the next generation, as if nothing had happened; what the first
// attempt still computes is ignored.
TEST_F(OneOwnerTest, AbortedStepsChangeNothing) {
  Run();
  owner_.StartStep(1);
  PushAll(1, {7, 1, 2, 5});
  owner_.Finish(1, v1::STEP_OUTCOME_ABORTED);  // while the worker is still at it
  owner_.StartStep(2);
  owner_.Settle();
  EXPECT_FALSE(owner_.Sent(Kind::kReduced));
  EXPECT_FALSE(owner_.Sent(Kind::kStepReady));
  PushAll(2);
  auto values = Complete(2);

  Job other = job_;
  TestOwner never(other, 0);
  for (uint32_t trainer : {0U, 1U}) never.AddTrainer(trainer);
  for (uint32_t trainer : {0U, 1U}) {
    for (const char* name : {"a", "b"}) never.Take(Initial(trainer, name));
  }
  never.Next(Kind::kInitialValuesDone);
  never.StartStep(1);
  for (uint32_t trainer : {1U, 0U}) {
    for (const char* name : {"b", "a"}) never.Take(Gradient(trainer, name, 1));
  }
  never.Seal(1);
  never.Next(Kind::kStepReady);
  never.Finish(1);
  Tensors expected;
  for (const BucketPtr& bucket : never.TakePublished()) {
    test::UnpackBucket(job_, *bucket, &expected);
  }
  EXPECT_EQ(values[0], expected);
}

TEST_F(OneOwnerTest, MessagesOfOtherGenerationsAreIgnored) {
  Run();
  owner_.StartStep(1);
  owner_.Seal(9, {0, 1});
  owner_.Clip(9, 0.5);
  owner_.Finish(9);
  PushAll(1);
  EXPECT_EQ(Complete(1).size(), 2U);
}

TEST_F(ClippingOwnerTest, UpdatesWaitForTheFactor) {
  Run();
  owner_.StartStep(1);
  PushAll(1);
  owner_.Seal(1);
  owner_.Next(Kind::kReduced);
  EXPECT_FALSE(owner_.Sent(Kind::kStepReady));
  owner_.Clip(1, 0.125);
  EXPECT_EQ(owner_.Next(Kind::kStepReady).step_ready().muon_matrices_expected(), 2U);
  owner_.Finish(1);
  EXPECT_EQ(Published(1).size(), 2U);
}

TEST_F(ClippingOwnerTest, AStepMayEndWithoutAFactor) {
  Run();
  owner_.StartStep(1);
  PushAll(1, {3, 0, 0, NAN});
  owner_.Seal(1);
  v1::Reduced reduced = owner_.Next(Kind::kReduced).reduced();
  EXPECT_EQ(reduced.not_finite(), "a");
  EXPECT_EQ(reduced.not_finite_parameter(), 0U);
  owner_.Finish(1, v1::STEP_OUTCOME_SKIPPED);
  owner_.StartStep(2);
  PushAll(2);
  owner_.Next(Kind::kReduced);
  owner_.Clip(2, 1.0);
  owner_.Next(Kind::kStepReady);
  owner_.Finish(2);
  EXPECT_EQ(Published(2).size(), 2U);
}

TEST_F(OneOwnerTest, TrainersThatLeftGetNothing) {
  Run();
  owner_.session().RemoveTrainer(1);
  owner_.StartStep(1);
  ExpectNames(owner_.Refusal(Gradient(1, "a", 1)), {"trainer 1", "not attached"});
  owner_.Finish(1, v1::STEP_OUTCOME_COMMITTED);
  auto values = Published(1);
  EXPECT_EQ(values.size(), 1U);
  EXPECT_EQ(values.count(0), 1U);
}

TEST_F(OneOwnerTest, AResumedTrainerGetsTheParameters) {
  Run();
  auto trained = Step(1);
  owner_.session().RemoveTrainer(1);
  owner_.AddTrainer(1, true);
  auto values = Published(1);
  ASSERT_EQ(values.size(), 1U);
  EXPECT_EQ(values[1], trained[1]);
  EXPECT_FALSE(owner_.Sent(Kind::kInitialValuesDone));  // none are asked for again
  EXPECT_EQ(Step(2).size(), 2U);
}

// Whoever comes back first needs its parameters as well.
TEST_F(OneOwnerTest, EveryResumedTrainerGetsTheParameters) {
  Run();
  auto trained = Step(1);
  owner_.session().RemoveTrainer(0);
  owner_.session().RemoveTrainer(1);
  owner_.AddTrainer(1, true);
  owner_.AddTrainer(0, true);
  auto values = Published(1);
  EXPECT_EQ(values[0], trained[0]);
  EXPECT_EQ(values[1], trained[1]);
}

}  // namespace
}  // namespace dmuon
