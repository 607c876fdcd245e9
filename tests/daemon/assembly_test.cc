#include "daemon/owner/assembly.h"

#include <gtest/gtest.h>

#include "tests/daemon/bucket_support.h"
#include "tests/daemon/expect_text.h"

namespace dmuon {
namespace {

using Pieces = std::vector<uint32_t>;

// Parameters a and b in one bucket each, on one owner, from two trainers.
class AssemblyTest : public testing::Test {
 protected:
  AssemblyTest() : AssemblyTest(2) {}
  explicit AssemblyTest(uint32_t trainers)
      : job_(test::MakeJob(R"({"parameters": [{"name": "a", "shape": [2, 2]},
                                              {"name": "b", "shape": [2, 3]}]})",
                           1, trainers, 1)) {}

  void Start() { assembly_.emplace(test::TrainerSetOf(job_, 0), job_.plan); }
  BucketPtr Message(uint32_t trainer, const std::string& parameter, bool present = true,
                    bool is_final = true) {
    test::MessageOptions options;
    options.is_final = is_final;
    test::Tensors tensors;
    if (present)
      tensors[parameter] = parameter == "a" ? std::vector<float>(4, 1) : std::vector<float>(6, 2);
    return test::PackBucket(job_, trainer, job_.ParameterNamed(parameter), tensors, options);
  }
  // The pieces that this message completes.
  Pieces Take(BucketPtr message) {
    Pieces complete;
    Status status = assembly_->Take(std::move(message), &complete);
    EXPECT_TRUE(status.ok()) << status.message();
    return complete;
  }
  Pieces Seal(const std::set<uint32_t>& absent) {
    Pieces complete;
    assembly_->Seal(absent, &complete);
    return complete;
  }

  test::Job job_;
  std::optional<Assembly> assembly_;
};

TEST_F(AssemblyTest, PlanHasOnePieceAndBucketForEachParameter) {
  ASSERT_EQ(job_.plan.buckets.size(), 2U);
  ASSERT_EQ(job_.plan.buckets[0].pieces, Pieces{0});
  ASSERT_EQ(job_.plan.buckets[1].pieces, Pieces{1});
}

TEST_F(AssemblyTest, PieceIsCompleteWithItsLastContribution) {
  Start();
  EXPECT_EQ(Take(Message(0, "b")), Pieces{});
  EXPECT_EQ(Take(Message(0, "a")), Pieces{});
  BucketPtr second = Message(1, "b");
  EXPECT_EQ(Take(second), Pieces{1});
  EXPECT_TRUE(assembly_->HasGradient(1));
  Contributions contributions = assembly_->ContributionsOf(1);
  ASSERT_EQ(contributions.size(), 2U);
  EXPECT_NE(contributions[0], nullptr);
  EXPECT_EQ(contributions[1], second);
  EXPECT_EQ(Take(Message(1, "a")), Pieces{0});
  EXPECT_EQ(Seal({}), Pieces{});
}

TEST_F(AssemblyTest, NonFinalPushesAreReplacedAndCompleteNothing) {
  Start();
  EXPECT_EQ(Take(Message(0, "a", true, false)), Pieces{});
  EXPECT_EQ(Take(Message(1, "a")), Pieces{});
  EXPECT_EQ(Take(Message(0, "a", true, false)), Pieces{});
  BucketPtr last = Message(0, "a");
  EXPECT_EQ(Take(last), Pieces{0});
  EXPECT_EQ(assembly_->ContributionsOf(0)[0], last);
}

TEST_F(AssemblyTest, RefusesPushesAfterTheFinalOne) {
  Start();
  BucketPtr first = Message(0, "b");
  Take(first);
  for (bool is_final : {true, false}) {
    Pieces complete;
    Status status = assembly_->Take(Message(0, "b", true, is_final), &complete);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    test::ExpectNames(status.message(), {"trainer 0", "bucket 1", "final"});
    EXPECT_EQ(complete, Pieces{});
  }
  // Neither replaces what was there, nor counts twice.
  BucketPtr other = Message(1, "b");
  EXPECT_EQ(Take(other), Pieces{1});
  EXPECT_EQ(assembly_->ContributionsOf(1)[0], first);
}

TEST_F(AssemblyTest, AbsentEverywhereIsDecidedBySeal) {
  Start();
  EXPECT_EQ(Take(Message(0, "a", false)), Pieces{});
  EXPECT_EQ(Take(Message(1, "a", false)), Pieces{});
  EXPECT_EQ(Seal({0}), Pieces{0});
  EXPECT_FALSE(assembly_->HasGradient(0));
}

// Sealed first, over a channel that is quicker than the data.
TEST_F(AssemblyTest, AbsentEverywhereIsCompleteWithTheLastMessageAfterSeal) {
  Start();
  EXPECT_EQ(Take(Message(0, "a", false)), Pieces{});
  EXPECT_EQ(Seal({0}), Pieces{});
  EXPECT_EQ(Take(Message(1, "a", false)), Pieces{0});
  EXPECT_FALSE(assembly_->HasGradient(0));
}

TEST_F(AssemblyTest, AbsentOnSomeIsAGradient) {
  Start();
  Take(Message(0, "a", false));
  EXPECT_EQ(Take(Message(1, "a")), Pieces{0});
  EXPECT_TRUE(assembly_->HasGradient(0));
  EXPECT_EQ(assembly_->ContributionsOf(0)[0], nullptr);
  EXPECT_NE(assembly_->ContributionsOf(0)[1], nullptr);
  EXPECT_EQ(Seal({}), Pieces{});
}

// Nobody here has a gradient for this piece, but somebody has one for another piece of the
// parameter on another owner: an update with zeros.
TEST_F(AssemblyTest, WithoutGradientButNotAbsentCountsAsZeros) {
  Start();
  Take(Message(0, "a", false));
  Take(Message(1, "a", false));
  EXPECT_EQ(Seal({1}), Pieces{0});
  EXPECT_TRUE(assembly_->HasGradient(0));
  EXPECT_EQ(assembly_->ContributionsOf(0), Contributions(2));
}

TEST_F(AssemblyTest, SealDoesNotCompleteWhatIsStillMissing) {
  Start();
  Take(Message(0, "a"));
  EXPECT_EQ(Seal({}), Pieces{});
  EXPECT_EQ(Take(Message(1, "a")), Pieces{0});
}

TEST_F(AssemblyTest, MissingFromNamesParametersWithoutFinalPush) {
  Start();
  EXPECT_EQ(assembly_->MissingFrom(0), (std::set<uint32_t>{0, 1}));
  Take(Message(0, "b"));
  Take(Message(1, "a", true, false));
  EXPECT_EQ(assembly_->MissingFrom(0), std::set<uint32_t>{0});
  EXPECT_EQ(assembly_->MissingFrom(1), (std::set<uint32_t>{0, 1}));
  Take(Message(0, "a", false));  // declared absent: that too is an answer
  EXPECT_EQ(assembly_->MissingFrom(0), std::set<uint32_t>{});
}

// 2 rows of a over 3 trainers: the one with nothing is not waited for.
class ShardedAssembly : public AssemblyTest {
 protected:
  ShardedAssembly() : AssemblyTest(3) {
    job_.regions[0][0] = {{0, 0}, {1, 2}};
    job_.regions[1][0] = {{1, 0}, {1, 2}};
    job_.regions[2][0] = {{2, 0}, {0, 2}};
    Start();
  }
};

TEST_F(ShardedAssembly, EmptyRegionsAreNotWaitedFor) {
  EXPECT_EQ(assembly_->MissingFrom(2), std::set<uint32_t>{1});
  EXPECT_EQ(Take(Message(0, "a")), Pieces{});
  EXPECT_EQ(Take(Message(1, "a")), Pieces{0});
  EXPECT_EQ(assembly_->ContributionsOf(0)[2], nullptr);
}

TEST_F(ShardedAssembly, MessagesWithoutContentAreIgnored) {
  EXPECT_EQ(Take(Message(2, "a")), Pieces{});
  Take(Message(0, "a"));
  EXPECT_EQ(Take(Message(2, "a")), Pieces{});
  EXPECT_EQ(Take(Message(1, "a")), Pieces{0});
}

}  // namespace
}  // namespace dmuon
