#include "daemon/control/ingress.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <utility>

#include "tests/daemon/bucket_support.h"
#include "tests/daemon/expect_text.h"

namespace dmuon {
namespace {

bool Never() { return false; }

// Three buckets over two owners for two trainers; trainer 1 holds nothing of parameter b.
class IngressTest : public testing::Test {
 protected:
  IngressTest()
      : job_(test::MakeJob(R"({"parameters": [{"name": "a", "shape": [2, 2]},
                                              {"name": "b", "shape": [2, 2]},
                                              {"name": "c", "shape": [2, 2]}]})",
                           2, 2, 1)) {
    job_.regions[1][1].extent[0] = 0;
    for (uint32_t trainer = 0; trainer < 2; ++trainer) {
      ingress_.AddTrainer(7, trainer,
                          MakeTrainerLayout(job_.spec, job_.plan, job_.regions[trainer]), 0);
    }
  }
  std::shared_ptr<BucketBuffer> Gradient(uint32_t trainer, uint32_t bucket, uint64_t generation,
                                         bool is_final = true) {
    test::MessageOptions options{BucketKind::kGradient, is_final, 7, generation};
    return test::PackBucket(job_, trainer, bucket, values_, options);
  }
  BucketPtr Published(uint32_t trainer, uint32_t bucket, uint64_t generation,
                      uint64_t session = 7) {
    test::MessageOptions options{BucketKind::kPublished, true, session, generation};
    return test::PackBucket(job_, trainer, bucket, values_, options);
  }
  // Both looks at a push, as the service takes them; they must agree on refusals of the header.
  Status Push(const BucketBuffer& message) {
    uint32_t owner = 0;
    Status checked = ingress_.CheckPush(message.header(), &owner);
    Status accepted = ingress_.AcceptPush(message);
    EXPECT_EQ(checked.code(), accepted.code());
    EXPECT_EQ(checked.message(), accepted.message());
    return accepted;
  }

  test::Job job_;
  test::Tensors values_{{"a", {1, 2, 3, 4}}, {"b", {5, 6, 7, 8}}, {"c", {9, 1, 2, 3}}};
  Ingress ingress_;
};

TEST_F(IngressTest, PushesNeedAStep) {
  Status before = Push(*Gradient(0, 0, 1));
  EXPECT_EQ(before.code(), StatusCode::kFailedPrecondition);
  test::ExpectNames(before.message(),
                    {"trainer 0", "bucket 0", "generation 1", "current one is 0"});
  ingress_.StartStep(1);
  EXPECT_TRUE(Push(*Gradient(0, 0, 1)).ok());
}

TEST_F(IngressTest, InitialValuesNeedNoStep) {
  test::MessageOptions options{BucketKind::kInitial, true, 7, 0};
  EXPECT_TRUE(Push(*test::PackBucket(job_, 0, 0, values_, options)).ok());
}

TEST_F(IngressTest, CheckPushNamesTheOwner) {
  ingress_.StartStep(1);
  for (uint32_t bucket = 0; bucket < 3; ++bucket) {
    uint32_t owner = 99;
    ASSERT_TRUE(ingress_.CheckPush(Gradient(0, bucket, 1)->header(), &owner).ok());
    EXPECT_EQ(owner, job_.plan.buckets[bucket].owner);
  }
}

TEST_F(IngressTest, RefusesOtherGenerations) {
  ingress_.StartStep(5);
  for (uint64_t generation : {4U, 6U}) {
    Status status = Push(*Gradient(0, 2, generation));
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    test::ExpectNames(status.message(), {"trainer 0", "bucket 2",
                                         "generation " + std::to_string(generation), "is 5"});
  }
}

TEST_F(IngressTest, PushesIntoAnEndedStepAreAborted) {
  ingress_.StartStep(5);
  ingress_.FinishStep(4);  // of another one: nothing happens
  EXPECT_TRUE(Push(*Gradient(0, 0, 5)).ok());
  ingress_.FinishStep(5);
  Status status = Push(*Gradient(0, 1, 5));
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  test::ExpectNames(status.message(), {"bucket 1", "generation 5", "WaitStep"});
}

TEST_F(IngressTest, OneFinalPushOfEachBucketAndStep) {
  ingress_.StartStep(1);
  EXPECT_TRUE(Push(*Gradient(0, 0, 1, false)).ok());
  EXPECT_TRUE(Push(*Gradient(0, 0, 1, false)).ok());
  EXPECT_TRUE(ingress_.AcceptPush(*Gradient(0, 0, 1)).ok());
  Status second = Push(*Gradient(0, 0, 1));
  EXPECT_EQ(second.code(), StatusCode::kFailedPrecondition);
  test::ExpectNames(second.message(), {"trainer 0", "bucket 0", "final"});
  EXPECT_FALSE(Push(*Gradient(0, 0, 1, false)).ok());
  EXPECT_TRUE(ingress_.AcceptPush(*Gradient(0, 1, 1)).ok());
  EXPECT_TRUE(ingress_.AcceptPush(*Gradient(1, 0, 1)).ok());
  ingress_.StartStep(2);
  EXPECT_TRUE(ingress_.AcceptPush(*Gradient(0, 0, 2)).ok());
}

TEST_F(IngressTest, RefusesStrangers) {
  ingress_.StartStep(1);
  auto of_session_8 = Gradient(0, 0, 1);
  BucketHeader header = of_session_8->header();
  header.session = 8;
  of_session_8->set_header(header);
  Status status = Push(*of_session_8);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  test::ExpectNames(status.message(), {"trainer 0", "session 8"});
  ingress_.RemoveTrainer(1);
  EXPECT_EQ(Push(*Gradient(1, 0, 1)).code(), StatusCode::kNotFound);
  EXPECT_TRUE(Push(*Gradient(0, 0, 1)).ok());
}

TEST_F(IngressTest, RefusesWhatDoesNotFitTheLayout) {
  ingress_.StartStep(1);
  auto message = Gradient(0, 0, 1);
  BucketHeader header = message->header();
  header.payload_bytes = 640;
  message->set_header(header);
  Status status = Push(*message);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  test::ExpectNames(status.message(), {"bucket 0", "640", "64"});
}

TEST_F(IngressTest, ExpectsTheBucketsThatConcernTheTrainer) {
  EXPECT_EQ(ingress_.ExpectedBuckets(7, 0).value(), (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(ingress_.ExpectedBuckets(7, 1).value(), (std::vector<uint32_t>{0, 2}));
  EXPECT_EQ(ingress_.ExpectedBuckets(8, 0).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ingress_.ExpectedBuckets(7, 2).status().code(), StatusCode::kNotFound);
}

TEST_F(IngressTest, DeliversInAnyOrderOfArrival) {
  std::vector<BucketPtr> sent;
  for (uint32_t bucket : {2U, 0U, 1U}) sent.push_back(Published(0, bucket, 3));
  for (const BucketPtr& bucket : sent) ingress_.Deliver(bucket);
  EXPECT_FALSE(ingress_.Drained());
  for (uint32_t bucket : {0U, 1U, 2U}) {
    auto taken = ingress_.TakePublished(0, 3, bucket, Never);
    ASSERT_TRUE(taken.ok());
    EXPECT_EQ(taken.value()->header().bucket, bucket);
  }
  EXPECT_TRUE(ingress_.Drained());
}

TEST_F(IngressTest, TakePublishedWaitsForItsBucket) {
  std::promise<void> waiting;
  auto taken = std::async(std::launch::async, [&] {
    bool told = false;
    return ingress_.TakePublished(0, 3, 1, [&] {  // looked at before it waits
      if (!std::exchange(told, true)) waiting.set_value();
      return false;
    });
  });
  waiting.get_future().wait();
  ingress_.Deliver(Published(0, 0, 3));
  ingress_.Deliver(Published(1, 1, 3));
  BucketPtr expected = Published(0, 1, 3);
  ingress_.Deliver(expected);
  auto result = taken.get();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value(), expected);
}

TEST_F(IngressTest, TakePublishedEndsWhenCancelled) {
  auto result = ingress_.TakePublished(0, 3, 1, [] { return true; });
  EXPECT_EQ(result.status().code(), StatusCode::kCancelled);
}

TEST_F(IngressTest, TakePublishedEndsWhenTheTrainerLeaves) {
  auto taken = std::async(std::launch::async,
                          [&] { return ingress_.TakePublished(1, 3, 0, Never).status(); });
  ingress_.RemoveTrainer(1);
  Status status = taken.get();
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  test::ExpectNames(status.message(), {"trainer 1"});
}

TEST_F(IngressTest, OvertakenGenerationsAreRefused) {
  ingress_.Deliver(Published(0, 0, 3));
  ingress_.Deliver(Published(0, 1, 3));
  ingress_.Deliver(Published(0, 0, 4));  // nobody fetched generation 3
  auto old = ingress_.TakePublished(0, 3, 1, Never);
  EXPECT_EQ(old.status().code(), StatusCode::kFailedPrecondition);
  test::ExpectNames(old.status().message(), {"trainer 0", "generation 3", "generation 4"});
  EXPECT_TRUE(ingress_.TakePublished(0, 4, 0, Never).ok());
  EXPECT_TRUE(ingress_.Drained());
}

TEST_F(IngressTest, DropsWhatNobodyHereWaitsFor) {
  ingress_.Deliver(Published(0, 0, 3, 6));  // of another session
  ingress_.RemoveTrainer(1);
  ingress_.Deliver(Published(1, 0, 3));
  EXPECT_TRUE(ingress_.Drained());
}

TEST_F(IngressTest, HoldFollowsTheTrainer) {
  std::string reason;
  EXPECT_EQ(ingress_.WaitHold(7, 0, &reason), Ingress::HoldState::kHeld);
  EXPECT_EQ(ingress_.WaitHold(8, 0, &reason), Ingress::HoldState::kDetached);
  ingress_.RemoveTrainer(0);
  EXPECT_EQ(ingress_.WaitHold(7, 0, &reason), Ingress::HoldState::kDetached);
  EXPECT_EQ(ingress_.WaitHold(7, 1, &reason), Ingress::HoldState::kHeld);
  ingress_.EndSession("trainer 0 was lost");
  EXPECT_EQ(ingress_.WaitHold(7, 1, &reason), Ingress::HoldState::kEnded);
  EXPECT_EQ(reason, "trainer 0 was lost");
}

TEST_F(IngressTest, HoldOfAnEarlierSessionStillTellsWhyItEnded) {
  ingress_.EndSession("first reason");
  ingress_.AddTrainer(8, 0, MakeTrainerLayout(job_.spec, job_.plan, job_.regions[0]), 0);
  std::string reason;
  EXPECT_EQ(ingress_.WaitHold(7, 1, &reason), Ingress::HoldState::kEnded);
  EXPECT_EQ(reason, "first reason");
  EXPECT_EQ(ingress_.WaitHold(8, 0, &reason), Ingress::HoldState::kHeld);
}

// Session 8 had no trainer at this owner's socket; its end says nothing about session 7.
TEST_F(IngressTest, EndOfASessionWithoutTrainersHereKeepsTheEarlierReason) {
  ingress_.EndSession("why 7 ended");
  ingress_.EndSession("why 8 ended");
  std::string reason;
  EXPECT_EQ(ingress_.WaitHold(7, 1, &reason), Ingress::HoldState::kEnded);
  EXPECT_EQ(reason, "why 7 ended");
}

TEST_F(IngressTest, EndSessionForgetsEverything) {
  ingress_.StartStep(1);
  ingress_.Deliver(Published(0, 0, 1));
  ingress_.EndSession("over");
  EXPECT_TRUE(ingress_.Drained());
  EXPECT_EQ(Push(*Gradient(0, 0, 1)).code(), StatusCode::kNotFound);
  EXPECT_EQ(ingress_.TakePublished(0, 1, 0, Never).status().code(), StatusCode::kAborted);
}

// A trainer that resumes in the middle of a step pushes into that step.
TEST_F(IngressTest, ResumedTrainerJoinsTheStepInProgress) {
  ingress_.StartStep(4);
  EXPECT_TRUE(Push(*Gradient(1, 0, 4, false)).ok());
  ingress_.RemoveTrainer(1);
  ingress_.AddTrainer(7, 1, MakeTrainerLayout(job_.spec, job_.plan, job_.regions[1]), 4);
  EXPECT_TRUE(ingress_.AcceptPush(*Gradient(1, 0, 4)).ok());
}

// Any number of threads push and fetch while the engine goes on; every final push is taken once.
TEST_F(IngressTest, ThreadsPushEachBucketOnce) {
  ingress_.StartStep(1);
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (uint32_t trainer : {0U, 1U}) {
        for (uint32_t bucket : {0U, 2U}) {
          if (ingress_.AcceptPush(*Gradient(trainer, bucket, 1)).ok()) ++taken;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, 4);
}

}  // namespace
}  // namespace dmuon
