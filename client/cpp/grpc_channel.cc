// Bucket messages as streamed chunks over the daemon's gRPC connection.
#include <algorithm>
#include <cstring>

#include "client/cpp/channel.h"
#include "client/cpp/rpc.h"

namespace dmuon::client {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

class GrpcChannel final : public Channel {
 public:
  GrpcChannel(Connection& connection, uint64_t session, uint32_t trainer)
      : connection_(connection), session_(session), trainer_(trainer) {}

  Status Send(const Bucket& bucket, std::span<const std::byte> message) override {
    if (Status status = connection_.CheckProcess(); !status.ok()) return status;
    grpc::ClientContext context;
    SetDeadline(&context, kTransferSeconds);
    v1::PushReply reply;
    auto writer = connection_.rpc().data->Push(&context, &reply);
    v1::Chunk chunk;
    for (size_t at = 0; at < message.size(); at += kChunkBytes) {
      chunk.set_data(message.data() + at, std::min(kChunkBytes, message.size() - at));
      if (!writer->Write(chunk)) break;  // Finish says why
    }
    writer->WritesDone();
    return FromGrpc(writer->Finish(), "push of bucket " + std::to_string(bucket.number()));
  }

  Status Receive(std::vector<Bucket>& buckets, uint64_t generation) override {
    if (Status status = connection_.CheckProcess(); !status.ok()) return status;
    v1::FetchRequest request;
    request.set_session(session_);
    request.set_trainer(trainer_);
    request.set_generation(generation);
    grpc::ClientContext context;
    SetDeadline(&context, kTransferSeconds);
    auto reader = connection_.rpc().data->Fetch(&context, request);
    Status status;
    for (Bucket& bucket : buckets) {
      if (bucket.has_payload() && status.ok()) status = ReceiveOne(*reader, bucket, generation);
    }
    v1::Chunk chunk;
    if (status.ok() && reader->Read(&chunk)) {
      status = Status::Internal("fetch: the daemon sent more buckets than it announced");
    }
    if (!status.ok()) context.TryCancel();
    const grpc::Status end = reader->Finish();
    // What ended the stream explains a message that stopped half-way.
    if (!end.ok() && end.error_code() != grpc::StatusCode::CANCELLED) {
      return FromGrpc(end, "fetch of published parameters");
    }
    return status;
  }

 private:
  Status ReceiveOne(grpc::ClientReader<v1::Chunk>& reader, Bucket& bucket, uint64_t generation) {
    const std::span<std::byte> buffer = bucket.buffer();
    size_t received = 0;
    size_t expected = sizeof(BucketHeader);
    v1::Chunk chunk;
    while (received < expected) {
      if (!reader.Read(&chunk)) {
        return Status::Internal("published bucket " + std::to_string(bucket.number()) +
                                ": the stream ended after " + std::to_string(received) + " bytes");
      }
      const std::string& data = chunk.data();
      if (data.size() > buffer.size() - received) {
        return Status::Internal("published bucket " + std::to_string(bucket.number()) +
                                ": more than its " + std::to_string(buffer.size()) + " bytes");
      }
      std::memcpy(buffer.data() + received, data.data(), data.size());
      received += data.size();
      if (expected == sizeof(BucketHeader) && received >= expected) {
        BucketHeader header;
        std::memcpy(&header, buffer.data(), sizeof(header));
        expected = static_cast<size_t>(
            BucketMessageBytes(header.entries, static_cast<int64_t>(header.payload_bytes)));
      }
    }
    return bucket.CheckPublished(static_cast<int64_t>(received), session_, generation);
  }

  Connection& connection_;
  uint64_t session_;
  uint32_t trainer_;
};

}  // namespace

std::unique_ptr<Channel> MakeGrpcChannel(Connection& connection, uint64_t session,
                                         uint32_t trainer) {
  return std::make_unique<GrpcChannel>(connection, session, trainer);
}

}  // namespace dmuon::client
