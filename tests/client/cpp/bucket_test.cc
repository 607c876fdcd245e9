#include "client/cpp/bucket.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace dmuon::client {
namespace {

// Two parameters in one bucket: columns 1..3 of rows 2..4 of a 6x5 fp32 parameter, of which the
// trainer holds rows 2..4; and elements 8..16 of a 40-element parameter of two bytes per element.
BucketLayout TwoEntries() {
  BucketLayout layout;
  layout.number = 7;
  layout.owner_mpi_rank = 3;
  layout.payload_bytes = 128;
  layout.entries.push_back(
      {0, 0, 9, 4, IntersectRuns({6, 5}, Region{{2, 0}, {3, 5}}, StridedMatrix{1, 6, 3, 5})});
  layout.entries.push_back(
      {1, 64, 9, 2, IntersectRuns({40}, Region{{0}, {40}}, StridedMatrix{8, 1, 9, 9})});
  return layout;
}

struct Fixture {
  Bucket bucket;
  std::vector<uint32_t> first = std::vector<uint32_t>(15);
  std::vector<uint16_t> second = std::vector<uint16_t>(40);

  Fixture() : bucket(std::move(Bucket::Make(TwoEntries()).value())) {
    std::iota(first.begin(), first.end(), 100U);
    std::iota(second.begin(), second.end(), uint16_t{1000});
    bucket.BeginStep();
  }
  void StageFirst(bool final = true) {
    bucket.Stage(0, reinterpret_cast<const std::byte*>(first.data()), final);
  }
  void StageSecond(bool final = true) {
    bucket.Stage(1, reinterpret_cast<const std::byte*>(second.data()), final);
  }
};

// Columns 1..3 of the trainer's three rows of five.
const std::vector<uint32_t> kFirstPacked = {101, 102, 103, 106, 107, 108, 111, 112, 113};

template <typename T>
std::vector<T> ReadAt(std::span<const std::byte> bytes, size_t offset, size_t count) {
  std::vector<T> values(count);
  std::memcpy(values.data(), bytes.data() + offset, count * sizeof(T));
  return values;
}

TEST(Bucket, MessageHasTheDocumentedBytes) {
  Fixture fixture;
  fixture.StageFirst();
  fixture.StageSecond();
  const auto message = fixture.bucket.Seal(BucketKind::kGradient, true, {0x1122, 0x3344, 13});
  ASSERT_EQ(message.size(), 64U + 64U + 128U);
  EXPECT_EQ(std::memcmp(message.data(), "DMUB\x01\x00\x01\x01\x22\x11\0\0\0\0\0\0\x44\x33\0", 19),
            0);
  EXPECT_EQ(ReadAt<uint32_t>(message, 24, 2), (std::vector<uint32_t>{7, 13}));
  EXPECT_EQ(ReadAt<uint64_t>(message, 32, 1), (std::vector<uint64_t>{128}));
  EXPECT_EQ(ReadAt<uint32_t>(message, 40, 6), (std::vector<uint32_t>{2, 0, 0, 0, 0, 0}));
  EXPECT_EQ(ReadAt<uint8_t>(message, 64, 2), (std::vector<uint8_t>{0b11, 0}));
  EXPECT_EQ(ReadAt<uint32_t>(message, 128, 9), kFirstPacked);
  EXPECT_EQ(ReadAt<uint16_t>(message, 192, 9),
            (std::vector<uint16_t>{1008, 1009, 1010, 1011, 1012, 1013, 1014, 1015, 1016}));
}

TEST(Bucket, AbsentEntriesHaveNoBitAndAnEmptyBucketNoPayload) {
  Fixture fixture;
  fixture.bucket.DeclareAbsent(0);
  fixture.StageSecond();
  auto message = fixture.bucket.Seal(BucketKind::kGradient, true, {1, 1, 0});
  EXPECT_EQ(ReadAt<uint8_t>(message, 64, 1), (std::vector<uint8_t>{0b10}));
  EXPECT_EQ(message.size(), 256U);

  fixture.bucket.BeginStep();
  fixture.bucket.DeclareAbsent(0);
  fixture.bucket.DeclareAbsent(1);
  message = fixture.bucket.Seal(BucketKind::kGradient, true, {1, 1, 0});
  EXPECT_EQ(message.size(), 128U);
  EXPECT_EQ(ReadAt<uint8_t>(message, 64, 1), (std::vector<uint8_t>{0}));
  EXPECT_EQ(ReadAt<uint64_t>(message, 32, 1), (std::vector<uint64_t>{0}));
}

TEST(Bucket, IsCompleteWhenAllEntriesAreNewOrFinal) {
  Fixture fixture;
  Bucket& bucket = fixture.bucket;
  fixture.StageFirst(false);
  EXPECT_FALSE(bucket.Complete());
  fixture.StageSecond(true);
  EXPECT_TRUE(bucket.Complete());
  EXPECT_FALSE(bucket.Final());
  (void)bucket.Seal(BucketKind::kGradient, bucket.Final(), {1, 1, 0});
  EXPECT_FALSE(bucket.Complete());
  EXPECT_FALSE(bucket.sent_final());
  fixture.StageFirst(true);
  EXPECT_TRUE(bucket.Complete());
  EXPECT_TRUE(bucket.Final());
  (void)bucket.Seal(BucketKind::kGradient, bucket.Final(), {1, 1, 0});
  EXPECT_TRUE(bucket.sent_final());
}

// Writes a published message into the bucket's buffer, as an owner does.
BucketHeader Publish(Bucket& bucket, uint8_t presence) {
  BucketHeader header;
  header.kind = static_cast<uint8_t>(BucketKind::kPublished);
  header.session = 11;
  header.generation = 12;
  header.bucket = 7;
  header.entries = 2;
  header.payload_bytes = 128;
  std::span<std::byte> buffer = bucket.buffer();
  std::memset(buffer.data(), 0, buffer.size());
  std::memcpy(buffer.data(), &header, sizeof(header));
  buffer[64] = std::byte{presence};
  for (uint32_t i = 0; i < 9; ++i) {
    const uint32_t wide = 500 + i;
    const auto narrow = static_cast<uint16_t>(700 + i);
    std::memcpy(buffer.data() + 128 + i * 4, &wide, 4);
    std::memcpy(buffer.data() + 192 + i * 2, &narrow, 2);
  }
  return header;
}

TEST(Bucket, UnpacksPublishedEntriesInPlace) {
  Fixture fixture;
  Publish(fixture.bucket, 0b01);
  ASSERT_TRUE(fixture.bucket.CheckPublished(256, 11, 12).ok());
  EXPECT_TRUE(fixture.bucket.IsPublished(0));
  EXPECT_FALSE(fixture.bucket.IsPublished(1));
  fixture.bucket.Unpack(0, reinterpret_cast<std::byte*>(fixture.first.data()));
  EXPECT_EQ(fixture.first, (std::vector<uint32_t>{100, 500, 501, 502, 104, 105, 503, 504, 505, 109,
                                                  110, 506, 507, 508, 114}));
  fixture.bucket.Unpack(1, reinterpret_cast<std::byte*>(fixture.second.data()));
  EXPECT_EQ(fixture.second[7], 1007);
  EXPECT_EQ(fixture.second[8], 700);
  EXPECT_EQ(fixture.second[16], 708);
  EXPECT_EQ(fixture.second[17], 1017);
}

TEST(Bucket, RefusesPublishedMessagesThatAreNotItsOwn) {
  Fixture fixture;
  Bucket& bucket = fixture.bucket;
  const BucketHeader good = Publish(bucket, 0b11);
  EXPECT_TRUE(bucket.CheckPublished(256, 11, 12).ok());
  const auto refused = [&](const BucketHeader& header, int64_t bytes, const std::string& words) {
    std::memcpy(bucket.buffer().data(), &header, sizeof(header));
    const Status status = bucket.CheckPublished(bytes, 11, 12);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  };
  BucketHeader bad = good;
  bad.generation = 13;
  refused(bad, 256, "generation 13 instead of 12");
  bad = good;
  bad.bucket = 6;
  refused(bad, 256, "bucket 6 instead of 7");
  bad = good;
  bad.kind = 1;
  refused(bad, 256, "kind 1 instead of 3");
  bad = good;
  bad.payload_bytes = 64;
  refused(bad, 256, "size 256 instead of 192");
  refused(good, 192, "size 192 instead of 256");
  refused(good, 10, "too short");
}

TEST(Bucket, RefusesALayoutThatDoesNotFit) {
  for (int64_t count : {8, 10}) {
    BucketLayout layout = TwoEntries();
    layout.entries[0].count = count;
    EXPECT_FALSE(Bucket::Make(std::move(layout)).ok());
  }
  BucketLayout layout = TwoEntries();
  layout.entries[1].offset = 128;
  const Result<Bucket> refused = Bucket::Make(std::move(layout));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("layout of parameter number 1 does not fit"),
            std::string::npos);
}

}  // namespace
}  // namespace dmuon::client
