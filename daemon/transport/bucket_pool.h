// Memory for bucket messages, kept from step to step: the same sizes come again in every step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "daemon/transport/bucket_buffer.h"

namespace dmuon {

// Thread-safe. Buffers return when their last reference goes, also after the pool is gone.
class BucketPool {
 public:
  // Contents are what the last user left.
  std::shared_ptr<BucketBuffer> Take(int64_t bytes) {
    std::unique_ptr<BucketBuffer> buffer;
    int64_t epoch = 0;
    {
      std::lock_guard lock(shelf_->mutex);
      epoch = shelf_->epoch;
      auto& spare = shelf_->spare[bytes];
      if (!spare.empty()) {
        buffer = std::move(spare.back());
        spare.pop_back();
      }
    }
    if (!buffer) buffer = std::make_unique<BucketBuffer>(bytes);
    return {buffer.release(), [shelf = shelf_, epoch](BucketBuffer* returned) {
              std::unique_ptr<BucketBuffer> owned(returned);
              std::lock_guard lock(shelf->mutex);
              if (epoch == shelf->epoch) shelf->spare[owned->bytes()].push_back(std::move(owned));
            }};
  }

  // The session has ended: gives memory back, also that of buffers still in use when they return.
  void Clear() {
    std::lock_guard lock(shelf_->mutex);
    shelf_->spare.clear();
    ++shelf_->epoch;
  }

 private:
  struct Shelf {
    std::mutex mutex;
    int64_t epoch = 0;
    std::map<int64_t, std::vector<std::unique_ptr<BucketBuffer>>> spare;  // by size
  };
  std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>();
};

}  // namespace dmuon
