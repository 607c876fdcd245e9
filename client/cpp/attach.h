// Joining a session: spec and parameters matched, control connection, layout, lease, data channel.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/cpp/bucket.h"
#include "client/cpp/channel.h"
#include "client/cpp/connection.h"
#include "client/cpp/lease.h"
#include "client/cpp/session.h"

namespace dmuon::client {

// A parameter whose spec entry and region are known.
struct HeldParameter {
  std::string name;
  std::vector<int64_t> shape;
  Region region;
  int64_t element_bytes = 0;
  std::span<std::byte> data;
  std::vector<std::pair<Bucket*, size_t>> places;  // bucket and entry
};

// Pairs parameters with the spec's, in the order given. InvalidArgument naming the parameter.
Result<std::vector<HeldParameter>> MatchParameters(std::string_view spec_json,
                                                   const std::vector<Parameter>& parameters);

struct Attachment {
  std::unique_ptr<Connection> connection;
  uint64_t session = 0;
  std::unique_ptr<Lease> lease;
  std::vector<Bucket> buckets;  // in publish order
  std::unique_ptr<Channel> channel;
  ChannelKind channel_kind = ChannelKind::kGrpc;
  bool resumed = false;
  uint64_t next_step = 0;
  uint64_t generation = 0;
};

// Fills `places` of the parameters; they point into the attachment's buckets, which may move as a
// whole but not grow.
Result<Attachment> Attach(std::string_view spec_json, std::vector<HeldParameter>& parameters,
                          const SessionOptions& options);

}  // namespace dmuon::client
