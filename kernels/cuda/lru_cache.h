// A bounded cache that forgets what was used longest ago.
#pragma once

#include <algorithm>
#include <cstddef>
#include <list>
#include <utility>

namespace dmuon::kernels::cuda {

// Few entries, each expensive: look-up compares keys one after the other.
template <typename Key, typename Value>
class LruCache {
 public:
  // At least one entry.
  explicit LruCache(std::size_t capacity) : capacity_(std::max<std::size_t>(capacity, 1)) {}

  // The value whose key equals `wanted`, null if there is none. Valid until the entry is evicted;
  // use makes it the youngest. Allocates nothing.
  template <typename Wanted>
  Value* Find(const Wanted& wanted) {
    const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const auto& each) { return each.first == wanted; });
    if (entry == entries_.end()) {
      return nullptr;
    }
    entries_.splice(entries_.begin(), entries_, entry);
    return &entries_.front().second;
  }

  // `key` must be absent. Evicts the oldest entry of a full cache first, so that there are never
  // more than `capacity` values.
  Value& Insert(Key key, Value value) {
    while (entries_.size() >= capacity_) {
      entries_.pop_back();
    }
    entries_.emplace_front(std::move(key), std::move(value));
    return entries_.front().second;
  }

  void Clear() { entries_.clear(); }
  std::size_t size() const { return entries_.size(); }

 private:
  std::size_t capacity_;
  std::list<std::pair<Key, Value>> entries_;  // youngest first
};

}  // namespace dmuon::kernels::cuda
