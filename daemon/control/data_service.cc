#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "daemon/control/services.h"

namespace dmuon {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;

grpc::Status Refuse(const std::string& message) {
  return {grpc::StatusCode::INVALID_ARGUMENT, message};
}

std::string NameOf(const BucketHeader& header) {
  return "trainer " + std::to_string(header.trainer) + " pushed bucket " +
         std::to_string(header.bucket);
}

}  // namespace

grpc::Status DataService::Push(grpc::ServerContext*, grpc::ServerReader<v1::Chunk>* reader,
                               v1::PushReply*) {
  v1::Chunk chunk;
  if (!reader->Read(&chunk) || chunk.data().size() < sizeof(BucketHeader)) {
    return Refuse("Push: the first chunk must hold the 64-byte bucket header");
  }
  BucketHeader header;
  std::memcpy(&header, chunk.data().data(), sizeof(header));
  Ingress& ingress = relay_.port().ingress();
  uint32_t owner = 0;
  Status status = ingress.CheckPush(header, &owner);
  if (!status.ok()) return ToGrpc(status);

  // The header fits the layout, so this is bounded by what the plan says.
  auto bucket = relay_.port().pool().Take(
      BucketMessageBytes(header.entries, static_cast<int64_t>(header.payload_bytes)));
  int64_t filled = 0;
  do {
    int64_t size = static_cast<int64_t>(chunk.data().size());
    if (filled + size > bucket->bytes()) {
      return Refuse(NameOf(header) + " with more than the " + std::to_string(bucket->bytes()) +
                    " bytes that its header announces");
    }
    std::memcpy(bucket->data() + filled, chunk.data().data(), size);
    filled += size;
  } while (reader->Read(&chunk));
  if (filled != bucket->bytes()) {
    return Refuse(NameOf(header) + " with " + std::to_string(filled) +
                  " bytes; its header announces " + std::to_string(bucket->bytes()));
  }
  status = ingress.AcceptPush(*bucket);
  if (status.ok()) relay_.port().ForwardBucket(owner, std::move(bucket));
  return ToGrpc(status);
}

grpc::Status DataService::Fetch(grpc::ServerContext* context, const v1::FetchRequest* request,
                                grpc::ServerWriter<v1::Chunk>* writer) {
  Ingress& ingress = relay_.port().ingress();
  auto expected = ingress.ExpectedBuckets(request->session(), request->trainer());
  if (!expected.ok()) return ToGrpc(expected.status());
  for (uint32_t number : expected.value()) {
    auto bucket = ingress.TakePublished(request->trainer(), request->generation(), number, [&] {
      return context->IsCancelled() || relay_.stopping();
    });
    if (!bucket.ok()) return ToGrpc(bucket.status());
    const BucketBuffer& message = *bucket.value();
    for (int64_t at = 0; at < message.bytes(); at += kChunkBytes) {
      v1::Chunk chunk;
      chunk.set_data(message.data() + at, std::min(kChunkBytes, message.bytes() - at));
      if (!writer->Write(chunk)) {
        return {grpc::StatusCode::CANCELLED, "the trainer stopped reading"};
      }
    }
  }
  return grpc::Status::OK;
}

}  // namespace dmuon
