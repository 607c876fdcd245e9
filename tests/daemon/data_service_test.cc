// Bucket messages over the `grpc` channel, through a real server and client.
#include <future>

#include "daemon/control/services.h"
#include "tests/daemon/bucket_support.h"
#include "tests/daemon/control_support.h"
#include "tests/daemon/expect_text.h"

namespace dmuon {
namespace {

using test::ExpectNames;

class DataServiceTest : public test::ControlTest {
 protected:
  static constexpr int64_t kElements = 700 * 600;  // 1.6 MiB: more than one chunk

  void SetUp() override {
    Start();
    for (int64_t i = 0; i < kElements; ++i) values_["a"].push_back(static_cast<float>(i % 1000));
    port_.ingress().AddTrainer(3, 0, MakeTrainerLayout(job_.spec, job_.plan, job_.regions[0]), 0);
    port_.ingress().StartStep(5);
    stub_ = v1::Data::NewStub(channel_);
  }
  std::shared_ptr<BucketBuffer> Message(BucketKind kind) {
    return test::PackBucket(job_, 0, 0, values_, {kind, true, 3, 5});
  }
  // Pushes the first `bytes` bytes in chunks of the given size.
  grpc::Status Push(const std::string& bytes, size_t chunk_bytes) {
    grpc::ClientContext context;
    v1::PushReply reply;
    auto writer = stub_->Push(&context, &reply);
    for (size_t at = 0; at < bytes.size(); at += chunk_bytes) {
      v1::Chunk chunk;
      chunk.set_data(bytes.substr(at, chunk_bytes));
      if (!writer->Write(chunk)) break;
    }
    writer->WritesDone();
    return writer->Finish();
  }
  static std::string TextOf(const BucketBuffer& message) {
    return {reinterpret_cast<const char*>(message.data()), static_cast<size_t>(message.bytes())};
  }

  test::Job job_ = test::MakeJob(R"({"parameters": [{"name": "a", "shape": [700, 600]}]})", 1, 1);
  test::Tensors values_;
  std::unique_ptr<v1::Data::Stub> stub_;
};

TEST_F(DataServiceTest, PushForwardsTheMessageToItsOwner) {
  std::string bytes = TextOf(*Message(BucketKind::kGradient));
  grpc::Status status = Push(bytes, 100'000);
  EXPECT_TRUE(status.ok()) << status.error_message();
  auto forwarded = port_.forwarded();
  ASSERT_EQ(forwarded.size(), 1U);
  EXPECT_EQ(forwarded[0].owner, 0U);
  EXPECT_EQ(TextOf(*forwarded[0].bucket), bytes);
  EXPECT_EQ(Push(bytes, 100'000).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(port_.forwarded().size(), 1U);
}

TEST_F(DataServiceTest, PushOfAnotherLengthIsRefusedAsAWhole) {
  std::string bytes = TextOf(*Message(BucketKind::kGradient));
  std::string announced = std::to_string(bytes.size());
  grpc::Status shorter = Push(bytes.substr(0, bytes.size() - 4), 1 << 20);
  EXPECT_EQ(shorter.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ExpectNames(shorter.error_message(), {"trainer 0", "bucket 0", std::to_string(bytes.size() - 4),
                                        "announces " + announced});
  grpc::Status longer = Push(bytes + "abcd", 1 << 20);
  EXPECT_EQ(longer.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ExpectNames(longer.error_message(), {"trainer 0", "bucket 0", "more than the " + announced});
  EXPECT_TRUE(port_.forwarded().empty());
  EXPECT_TRUE(Push(bytes, 1 << 20).ok());  // the bucket can still be pushed
}

TEST_F(DataServiceTest, PushNeedsAHeader) {
  for (const std::string& text : {std::string(), std::string(63, 'x')}) {
    grpc::Status status = Push(text, 64);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    ExpectNames(status.error_message(), {"64-byte bucket header"});
  }
  EXPECT_EQ(Push(std::string(64, 'x'), 64).error_code(), grpc::StatusCode::NOT_FOUND);
}

// Refused before memory for what the header claims is taken.
TEST_F(DataServiceTest, PushWithAnAbsurdSizeIsRefused) {
  auto message = Message(BucketKind::kGradient);
  BucketHeader header = message->header();
  header.payload_bytes = 1ULL << 62;
  message->set_header(header);
  grpc::Status status = Push(TextOf(*message), 1 << 20);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ExpectNames(status.error_message(), {"trainer 0", "bucket 0", std::to_string(1ULL << 62)});
}

TEST_F(DataServiceTest, FetchDeliversWhatWasPublished) {
  v1::FetchRequest request;
  request.set_session(3);
  request.set_generation(5);
  grpc::ClientContext context;
  auto reader = stub_->Fetch(&context, request);
  auto published = Message(BucketKind::kPublished);
  port_.ingress().Deliver(published);
  std::string bytes;
  v1::Chunk chunk;
  int chunks = 0;
  while (reader->Read(&chunk)) {
    bytes += chunk.data();
    ++chunks;
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(chunks, 2);
  EXPECT_EQ(bytes, TextOf(*published));
  EXPECT_TRUE(port_.ingress().Drained());
}

TEST_F(DataServiceTest, FetchOfStrangersIsRefused) {
  v1::FetchRequest request;
  request.set_session(4);
  grpc::ClientContext context;
  auto reader = stub_->Fetch(&context, request);
  v1::Chunk chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  ExpectNames(status.error_message(), {"trainer 0", "session 4"});
}

TEST_F(DataServiceTest, FetchEndsWhenTheServerGoes) {
  v1::FetchRequest request;
  request.set_session(3);
  request.set_generation(5);
  grpc::ClientContext context;
  auto reader = stub_->Fetch(&context, request);
  auto finished = std::async(std::launch::async, [&] {
    v1::Chunk chunk;
    while (reader->Read(&chunk)) {
    }
    return reader->Finish();
  });
  server_.reset();
  EXPECT_FALSE(finished.get().ok());
}

}  // namespace
}  // namespace dmuon
