// Typed reads of JSON values that know where they are, so that every refusal names key and value.
// Internal to proto/, scheduler/ and the command line tool.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "proto/spec_names.h"
#include "proto/strict_json.h"

namespace dmuon::spec {

// A key with the path that leads to it; lives on the stack, text is made only for a message.
class KeyPath {
 public:
  KeyPath() = default;
  KeyPath(const KeyPath& parent, std::string_view key) : parent_(&parent), key_(key) {}
  KeyPath(const KeyPath& parent, size_t index)
      : parent_(&parent), index_(static_cast<int64_t>(index)) {}

  // A path that starts with `title` as it stands; `title` outlives it.
  static KeyPath Titled(std::string_view title) {
    KeyPath path;
    path.title_ = title;
    return path;
  }

  // groups.muon.lr, parameters[3].shape
  std::string Text() const;

 private:
  const KeyPath* parent_ = nullptr;
  std::string_view title_;
  std::string_view key_;
  int64_t index_ = -1;
};

// Throws SpecError with the path in front: "groups.muon.lr: -0.1 is negative; ...".
[[noreturn]] void Refuse(const KeyPath& path, const std::string& what);

// Refuses what is not an object and every key that is not in `allowed`.
void CheckKeys(const Json& object, const KeyPath& path,
               std::initializer_list<std::string_view> allowed);

// The value under `key`, or null.
const Json* Find(const Json& object, std::string_view key);

struct NumberRange {
  double min = 0.0;
  double max = std::numeric_limits<double>::max();
  bool exclude_min = false;
  bool exclude_max = false;
  std::string_view rule;  // "a learning rate is >= 0": what the message says is right
};

double ReadNumber(const Json& value, const KeyPath& path, const NumberRange& range);
int64_t ReadInteger(const Json& value, const KeyPath& path, int64_t min, int64_t max);
bool ReadBool(const Json& value, const KeyPath& path);
// Valid UTF-8 without control characters, at most `max_bytes` long.
std::string ReadText(const Json& value, const KeyPath& path, size_t max_bytes);
// A list of integers between `min` and `max` with 1 to `max_count` entries.
std::vector<int64_t> ReadIntegers(const Json& value, const KeyPath& path, int64_t min, int64_t max,
                                  size_t max_count);

template <typename E, size_t N>
E ReadEnum(const Json& value, const KeyPath& path, const EnumName<E> (&table)[N]) {
  if (value.is_string()) {
    for (const EnumName<E>& entry : table) {
      if (value.get_ref<const std::string&>() == entry.name) {
        return entry.value;
      }
    }
  }
  Refuse(path, Excerpt(value) + " is not one of " + ListNames(table));
}

}  // namespace dmuon::spec
