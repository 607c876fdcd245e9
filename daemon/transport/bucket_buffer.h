// A whole bucket message in memory; its bytes are described in proto/bucket_message.h.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>

#include "proto/bucket_message.h"

namespace dmuon {

// Shared between the thread that received or packed it and those that read it; immutable then.
class BucketBuffer {
 public:
  explicit BucketBuffer(int64_t bytes)
      : data_(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}))),
        bytes_(bytes) {}
  ~BucketBuffer() { ::operator delete (data_, std::align_val_t{64}); }
  BucketBuffer(const BucketBuffer&) = delete;
  BucketBuffer& operator=(const BucketBuffer&) = delete;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  BucketHeader header() const {
    BucketHeader header;
    std::memcpy(&header, data_, sizeof(header));
    return header;
  }
  void set_header(const BucketHeader& header) { std::memcpy(data_, &header, sizeof(header)); }

  std::byte* presence() { return data_ + sizeof(BucketHeader); }
  const std::byte* presence() const { return data_ + sizeof(BucketHeader); }
  std::byte* payload(int64_t entries) { return presence() + PresenceBytes(entries); }
  const std::byte* payload(int64_t entries) const { return presence() + PresenceBytes(entries); }

 private:
  std::byte* data_;
  int64_t bytes_;
};

using BucketPtr = std::shared_ptr<const BucketBuffer>;

}  // namespace dmuon
