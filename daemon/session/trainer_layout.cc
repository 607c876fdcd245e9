#include "daemon/session/trainer_layout.h"

#include <algorithm>
#include <string>

namespace dmuon {
namespace {

std::string Describe(const BucketHeader& header) {
  return "trainer " + std::to_string(header.trainer) + " pushed bucket " +
         std::to_string(header.bucket);
}

int64_t ElementsInRegion(const ParameterSpec& parameter, const Region& region,
                         const StridedMatrix& geometry) {
  if (region == Region::Whole(parameter.shape)) return geometry.elements();
  int64_t count = 0;
  for (const Run& run : IntersectRuns(parameter.shape, region, geometry)) count += run.length;
  return count;
}

bool AnyPresent(const BucketBuffer& message, uint32_t entries) {
  const std::byte* presence = message.presence();
  return std::any_of(presence, presence + PresenceBytes(entries),
                     [](std::byte b) { return b != std::byte{0}; });
}

}  // namespace

int64_t TrainerLayout::LargestMessageBytes() const {
  int64_t largest = 0;
  for (const LayoutBucket& bucket : buckets) {
    largest = std::max(largest, BucketMessageBytes(static_cast<int64_t>(bucket.entries.size()),
                                                   bucket.payload_bytes));
  }
  return largest;
}

TrainerLayout MakeTrainerLayout(const SessionSpec& spec, const scheduler::Plan& plan,
                                const std::vector<Region>& regions) {
  TrainerLayout layout;
  layout.buckets.reserve(plan.buckets.size());
  for (const scheduler::PlanBucket& planned : plan.buckets) {
    LayoutBucket& bucket = layout.buckets.emplace_back();
    bucket.owner = planned.owner;
    for (uint32_t piece_index : planned.pieces) {
      const scheduler::Piece& piece = plan.pieces[piece_index];
      const ParameterSpec& parameter = spec.parameters[piece.parameter];
      int64_t count = ElementsInRegion(parameter, regions[piece.parameter], piece.geometry);
      bucket.entries.push_back({piece_index, bucket.payload_bytes, count});
      bucket.payload_bytes += RoundUpToAlignment(count * SizeOf(parameter.dtype));
    }
  }
  return layout;
}

Status CheckBucketHeader(const TrainerLayout& layout, const BucketHeader& header) {
  if (header.magic != kBucketMagic || header.version != kBucketVersion) {
    return Status::InvalidArgument("trainer " + std::to_string(header.trainer) +
                                   " pushed a message without the bucket header of version " +
                                   std::to_string(kBucketVersion) +
                                   ": client and daemon must be of the same release");
  }
  if (header.kind != static_cast<uint8_t>(BucketKind::kGradient) &&
      header.kind != static_cast<uint8_t>(BucketKind::kInitial)) {
    return Status::InvalidArgument(Describe(header) + " with kind " + std::to_string(header.kind) +
                                   "; trainers push gradients (1) and initial values (2)");
  }
  if (header.bucket >= layout.buckets.size()) {
    return Status::InvalidArgument(Describe(header) + ", but the plan has buckets 0 to " +
                                   std::to_string(layout.buckets.size() - 1) +
                                   ": it holds no known parameter");
  }
  const LayoutBucket& bucket = layout.buckets[header.bucket];
  if (header.entries != bucket.entries.size()) {
    return Status::InvalidArgument(Describe(header) + " with " + std::to_string(header.entries) +
                                   " entries; it has " + std::to_string(bucket.entries.size()));
  }
  if (header.payload_bytes != 0 &&
      header.payload_bytes != static_cast<uint64_t>(bucket.payload_bytes)) {
    return Status::InvalidArgument(
        Describe(header) + " with " + std::to_string(header.payload_bytes) +
        " payload bytes; its layout has " + std::to_string(bucket.payload_bytes));
  }
  return Status::Ok();
}

Status CheckBucketMessage(const TrainerLayout& layout, const BucketBuffer& message) {
  BucketHeader header = message.header();
  Status status = CheckBucketHeader(layout, header);
  if (!status.ok()) return status;
  int64_t expected = BucketMessageBytes(header.entries, static_cast<int64_t>(header.payload_bytes));
  if (message.bytes() != expected) {
    return Status::InvalidArgument(Describe(header) + " with " + std::to_string(message.bytes()) +
                                   " bytes; its header announces " + std::to_string(expected));
  }
  bool payload_needed =
      AnyPresent(message, header.entries) && layout.buckets[header.bucket].payload_bytes != 0;
  if (payload_needed != (header.payload_bytes != 0)) {
    return Status::InvalidArgument(Describe(header) + " with " +
                                   std::to_string(header.payload_bytes) +
                                   " payload bytes, which contradicts its presence bits");
  }
  return Status::Ok();
}

}  // namespace dmuon
