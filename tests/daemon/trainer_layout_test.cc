#include "daemon/session/trainer_layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/daemon/bucket_support.h"
#include "tests/daemon/expect_text.h"
#include "tests/scheduler/spec_text.h"

namespace dmuon {
namespace {

Region RandomRows(const std::vector<int64_t>& shape, std::mt19937& random) {
  Region region = Region::Whole(shape);
  region.start[0] = std::uniform_int_distribution<int64_t>(0, shape[0])(random);
  region.extent[0] = std::uniform_int_distribution<int64_t>(0, shape[0] - region.start[0])(random);
  return region;
}

TEST(TrainerLayout, MatchesCountingByHand) {
  std::mt19937 random(3);
  test::Job job = test::MakeJob(test::SpecText(test::MixedParameters()), 3, 1, 4096);
  ASSERT_GT(job.plan.buckets.size(), 3U);
  for (int round = 0; round < 4; ++round) {
    std::vector<Region>& regions = job.regions[0];
    for (size_t i = 0; i < regions.size() && round > 0; ++i) {
      regions[i] = RandomRows(job.spec.parameters[i].shape, random);
    }
    TrainerLayout layout = MakeTrainerLayout(job.spec, job.plan, regions);
    ASSERT_EQ(layout.buckets.size(), job.plan.buckets.size());
    int64_t largest = 0;
    for (size_t b = 0; b < layout.buckets.size(); ++b) {
      const LayoutBucket& bucket = layout.buckets[b];
      EXPECT_EQ(bucket.owner, job.plan.buckets[b].owner);
      ASSERT_EQ(bucket.entries.size(), job.plan.buckets[b].pieces.size());
      int64_t end = 0;
      for (size_t e = 0; e < bucket.entries.size(); ++e) {
        const LayoutEntry& entry = bucket.entries[e];
        const scheduler::Piece& piece = job.plan.pieces[entry.piece];
        const ParameterSpec& parameter = job.spec.parameters[piece.parameter];
        EXPECT_EQ(entry.piece, job.plan.buckets[b].pieces[e]);
        auto elements =
            test::PackedElements(parameter.shape, regions[piece.parameter], piece.geometry);
        EXPECT_EQ(entry.count, static_cast<int64_t>(elements.size()));
        EXPECT_EQ(entry.offset, end);
        EXPECT_EQ(entry.offset % 64, 0);
        end += (entry.count * (parameter.dtype == DType::kBFloat16 ? 2 : 4) + 63) / 64 * 64;
      }
      EXPECT_EQ(bucket.payload_bytes, end);
      int64_t presence = (static_cast<int64_t>(bucket.entries.size()) + 511) / 512 * 64;
      largest = std::max(largest, 64 + presence + end);
    }
    EXPECT_EQ(layout.LargestMessageBytes(), largest);
  }
}

class CheckBucket : public testing::Test {
 protected:
  // Two parameters of 4 and 6 fp32 elements: 64 + 64 payload bytes in one bucket.
  test::Job job_ = test::MakeJob(R"({"parameters": [{"name": "a", "shape": [2, 2]},
                                                    {"name": "b", "shape": [2, 3]}]})",
                                 1, 1);
  TrainerLayout layout_ = MakeTrainerLayout(job_.spec, job_.plan, job_.regions[0]);
  test::Tensors both_{{"a", {1, 2, 3, 4}}, {"b", {1, 2, 3, 4, 5, 6}}};

  std::shared_ptr<BucketBuffer> Message(const test::Tensors& tensors,
                                        const test::MessageOptions& options = {}) {
    return test::PackBucket(job_, 0, 0, tensors, options);
  }
  // A message with one field of its header changed.
  template <typename Change>
  Status AfterChange(Change change) {
    auto message = Message(both_);
    BucketHeader header = message->header();
    change(header);
    message->set_header(header);
    return CheckBucketMessage(layout_, *message);
  }
  static void ExpectRefused(const Status& status, std::initializer_list<std::string> parts) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    test::ExpectNames(status.message(), parts);
  }
};

TEST_F(CheckBucket, TakesWhatFits) {
  EXPECT_TRUE(CheckBucketMessage(layout_, *Message(both_)).ok());
  EXPECT_TRUE(CheckBucketMessage(layout_, *Message({{"b", both_["b"]}})).ok());
  auto absent = Message({});
  EXPECT_EQ(absent->bytes(), 128);  // header and presence, no payload
  EXPECT_TRUE(CheckBucketMessage(layout_, *absent).ok());
  test::MessageOptions initial;
  initial.kind = BucketKind::kInitial;
  EXPECT_TRUE(CheckBucketMessage(layout_, *Message(both_, initial)).ok());
}

TEST_F(CheckBucket, RefusesAnotherFormat) {
  ExpectRefused(AfterChange([](BucketHeader& h) { h.magic = 1; }), {"trainer 0", "header"});
  ExpectRefused(AfterChange([](BucketHeader& h) { h.version = 2; }), {"version 1"});
}

TEST_F(CheckBucket, RefusesKindsThatTrainersDoNotPush) {
  for (int kind : {0, 3, 9}) {
    ExpectRefused(AfterChange([&](BucketHeader& h) { h.kind = static_cast<uint8_t>(kind); }),
                  {"trainer 0", "bucket 0", "kind " + std::to_string(kind)});
  }
}

TEST_F(CheckBucket, RefusesUnknownBuckets) {
  ExpectRefused(AfterChange([](BucketHeader& h) { h.bucket = 1; }),
                {"trainer 0", "bucket 1", "buckets 0 to 0"});
  ExpectRefused(AfterChange([](BucketHeader& h) { h.bucket = UINT32_MAX; }), {"4294967295"});
}

TEST_F(CheckBucket, RefusesOtherEntryCounts) {
  ExpectRefused(AfterChange([](BucketHeader& h) { h.entries = 3; }),
                {"trainer 0", "bucket 0", "3 entries", "has 2"});
}

TEST_F(CheckBucket, RefusesOtherPayloadSizes) {
  ExpectRefused(AfterChange([](BucketHeader& h) { h.payload_bytes = 192; }),
                {"trainer 0", "bucket 0", "192 payload bytes", "has 128"});
  ExpectRefused(AfterChange([](BucketHeader& h) { h.payload_bytes = UINT64_MAX; }),
                {"18446744073709551615", "has 128"});
}

TEST_F(CheckBucket, RefusesMessagesThatAreNotAsLongAsTheySay) {
  auto whole = Message(both_);
  for (int64_t bytes : {whole->bytes() - 64, whole->bytes() + 64}) {
    BucketBuffer other(bytes);
    std::memset(other.data(), 0, bytes);
    std::memcpy(other.data(), whole->data(), std::min(bytes, whole->bytes()));
    ExpectRefused(CheckBucketMessage(layout_, other),
                  {"trainer 0", "bucket 0", std::to_string(bytes) + " bytes", "announces 256"});
  }
}

TEST_F(CheckBucket, RefusesPayloadThatContradictsPresence) {
  auto nothing_present = Message(both_);
  std::memset(nothing_present->presence(), 0, 64);
  ExpectRefused(CheckBucketMessage(layout_, *nothing_present),
                {"trainer 0", "bucket 0", "128 payload bytes", "presence"});

  auto no_payload = Message({});
  SetPresent(no_payload->presence(), 1);
  ExpectRefused(CheckBucketMessage(layout_, *no_payload),
                {"trainer 0", "bucket 0", "0 payload bytes", "presence"});
}

// A trainer that holds nothing of a bucket may say that it has gradients: there is nothing to send.
TEST_F(CheckBucket, EmptyRegionsNeedNoPayload) {
  for (Region& region : job_.regions[0]) region.extent[0] = 0;
  layout_ = MakeTrainerLayout(job_.spec, job_.plan, job_.regions[0]);
  EXPECT_EQ(layout_.buckets[0].payload_bytes, 0);
  EXPECT_TRUE(CheckBucketMessage(layout_, *Message(both_)).ok());
}

}  // namespace
}  // namespace dmuon
