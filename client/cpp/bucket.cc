#include "client/cpp/bucket.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace dmuon::client {

Result<Bucket> Bucket::Make(BucketLayout layout) {
  for (const BucketEntry& entry : layout.entries) {
    const int64_t in_runs =
        entry.runs.empty() ? 0 : entry.runs.back().packed + entry.runs.back().length;
    const int64_t end = entry.offset + entry.count * entry.element_bytes;
    if (in_runs != entry.count || entry.offset < 0 || end > layout.payload_bytes) {
      return Status::Internal(
          "the daemon's layout of parameter number " + std::to_string(entry.parameter) +
          " does not fit: " + std::to_string(entry.count) + " elements at byte " +
          std::to_string(entry.offset) + " of " + std::to_string(layout.payload_bytes) +
          ", expected " + std::to_string(in_runs) +
          " elements; use the client library of the daemon's version");
    }
  }
  return Bucket(std::move(layout));
}

Bucket::Bucket(BucketLayout layout) : layout_(std::move(layout)), pushed_(layout_.entries.size()) {
  const auto count = static_cast<int64_t>(layout_.entries.size());
  body_ = BucketMessageBytes(count, 0);
  buffer_bytes_ = body_ + layout_.payload_bytes;
  buffer_ = std::make_unique<std::byte[]>(buffer_bytes_);
}

void Bucket::BeginStep() {
  std::fill(pushed_.begin(), pushed_.end(), Pushed{});
  fresh_ = 0;
  final_ = 0;
  sent_final_ = false;
}

void Bucket::Stage(size_t entry, const std::byte* region, bool final) {
  const BucketEntry& to = layout_.entries[entry];
  std::byte* packed = payload() + to.offset;
  for (const Run& run : to.runs) {
    std::memcpy(packed + run.packed * to.element_bytes, region + run.region * to.element_bytes,
                run.length * to.element_bytes);
  }
  Mark(entry, true, final);
}

void Bucket::DeclareAbsent(size_t entry) { Mark(entry, false, true); }

void Bucket::Mark(size_t entry, bool present, bool final) {
  fresh_ += pushed_[entry].fresh ? 0 : 1;
  final_ += final && !pushed_[entry].final ? 1 : 0;
  pushed_[entry] = {present, true, final};
}

bool Bucket::Complete() const { return Final() || fresh_ == pushed_.size(); }

bool Bucket::Final() const { return final_ == pushed_.size(); }

std::span<const std::byte> Bucket::Seal(BucketKind kind, bool final, const Stamp& stamp) {
  std::memset(presence(), 0, body_ - sizeof(BucketHeader));
  bool any = false;
  for (size_t entry = 0; entry < pushed_.size(); ++entry) {
    if (pushed_[entry].present) {
      SetPresent(presence(), static_cast<int64_t>(entry));
      any = true;
    }
    pushed_[entry].fresh = false;
  }
  fresh_ = 0;
  BucketHeader header;
  header.kind = static_cast<uint8_t>(kind);
  header.flags = final ? kBucketFinal : 0;
  header.session = stamp.session;
  header.generation = stamp.generation;
  header.bucket = layout_.number;
  header.trainer = stamp.trainer;
  header.payload_bytes = any ? layout_.payload_bytes : 0;
  header.entries = static_cast<uint32_t>(layout_.entries.size());
  std::memcpy(buffer_.get(), &header, sizeof(header));
  sent_final_ = final;
  return {buffer_.get(), static_cast<size_t>(body_) + header.payload_bytes};
}

Status Bucket::CheckPublished(int64_t bytes, uint64_t session, uint64_t generation) const {
  const std::string subject = "published bucket " + std::to_string(layout_.number);
  if (bytes < body_) {
    return Status::Internal(subject + ": " + std::to_string(bytes) +
                            " bytes, too short for its header; see the daemon's log");
  }
  BucketHeader header;
  std::memcpy(&header, buffer_.get(), sizeof(header));
  const struct {
    const char* name;
    uint64_t got;
    uint64_t expected;
  } fields[] = {
      {"magic", header.magic, kBucketMagic},
      {"version", header.version, kBucketVersion},
      {"kind", header.kind, static_cast<uint64_t>(BucketKind::kPublished)},
      {"bucket", header.bucket, layout_.number},
      {"session", header.session, session},
      {"generation", header.generation, generation},
      {"entries", header.entries, layout_.entries.size()},
      {"size", static_cast<uint64_t>(bytes), body_ + header.payload_bytes},
  };
  for (const auto& field : fields) {
    if (field.got != field.expected) {
      return Status::Internal(subject + " is not what was expected: " + field.name + " " +
                              std::to_string(field.got) + " instead of " +
                              std::to_string(field.expected) + "; see the daemon's log");
    }
  }
  return Status::Ok();
}

bool Bucket::IsPublished(size_t entry) const {
  return IsPresent(presence(), static_cast<int64_t>(entry));
}

void Bucket::Unpack(size_t entry, std::byte* region) const {
  const BucketEntry& from = layout_.entries[entry];
  const std::byte* packed = payload() + from.offset;
  for (const Run& run : from.runs) {
    std::memcpy(region + run.region * from.element_bytes, packed + run.packed * from.element_bytes,
                run.length * from.element_bytes);
  }
}

}  // namespace dmuon::client
