// One bucket of this trainer: its message buffer, and what has been pushed in the current step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/bucket_message.h"
#include "proto/dtype.h"
#include "proto/region.h"
#include "proto/session_spec.h"
#include "proto/status.h"

namespace dmuon::client {

// The part of one piece that lies in this trainer's region.
struct BucketEntry {
  uint32_t parameter = 0;  // in the trainer's own order
  int64_t offset = 0;      // bytes from the start of the payload
  int64_t count = 0;       // elements
  int64_t element_bytes = 0;
  std::vector<Run> runs;  // consecutive in the payload
};

struct BucketLayout {
  uint32_t number = 0;
  int owner_mpi_rank = 0;
  int64_t payload_bytes = 0;
  std::vector<BucketEntry> entries;
};

// What every message of a step or of a session's start carries.
struct Stamp {
  uint64_t session = 0;
  uint64_t generation = 0;
  uint32_t trainer = 0;
};

// The buffer is made once: gradients are packed into it, published parameters received into it.
// Belongs to the session's thread; between a send's start and its end only the sender reads it.
class Bucket {
 public:
  // Internal error when offsets, counts and runs contradict each other.
  static Result<Bucket> Make(BucketLayout layout);

  uint32_t number() const { return layout_.number; }
  int owner_mpi_rank() const { return layout_.owner_mpi_rank; }
  bool has_payload() const { return layout_.payload_bytes > 0; }
  const std::vector<BucketEntry>& entries() const { return layout_.entries; }
  std::span<std::byte> buffer() { return {buffer_.get(), static_cast<size_t>(buffer_bytes_)}; }
  bool sent_final() const { return sent_final_; }

  void BeginStep();
  // Packs an entry, not final yet, from the region's row-major storage.
  void Stage(size_t entry, const std::byte* region, bool final);
  void DeclareAbsent(size_t entry);
  // Whether a message should go: every entry is final, or is new since the last message.
  bool Complete() const;
  // Whether no entry can be pushed again in this step.
  bool Final() const;
  // Writes header and presence. The message, a view of the buffer.
  std::span<const std::byte> Seal(BucketKind kind, bool final, const Stamp& stamp);

  // Checks the published message of `bytes` bytes that is in the buffer.
  Status CheckPublished(int64_t bytes, uint64_t session, uint64_t generation) const;
  bool IsPublished(size_t entry) const;
  // Copies a published entry into the region's row-major storage.
  void Unpack(size_t entry, std::byte* region) const;

 private:
  struct Pushed {
    bool present = false;
    bool fresh = false;  // since the last message
    bool final = false;
  };

  explicit Bucket(BucketLayout layout);
  void Mark(size_t entry, bool present, bool final);
  std::byte* presence() const { return buffer_.get() + sizeof(BucketHeader); }
  std::byte* payload() const { return buffer_.get() + body_; }

  BucketLayout layout_;
  int64_t body_ = 0;  // bytes before the payload
  int64_t buffer_bytes_ = 0;
  std::unique_ptr<std::byte[]> buffer_;
  std::vector<Pushed> pushed_;
  size_t fresh_ = 0;  // entries that are
  size_t final_ = 0;
  bool sent_final_ = false;
};

}  // namespace dmuon::client
