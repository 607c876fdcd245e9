#include "proto/spec_reader.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace dmuon::spec {
namespace {

// Edit distance, for "did you mean".
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string UnknownKey(const std::string& key, std::initializer_list<std::string_view> allowed) {
  const auto distance = [&key](std::string_view candidate) { return Distance(key, candidate); };
  if (key.size() < 32) {
    const std::string_view nearest = *std::min_element(
        allowed.begin(), allowed.end(),
        [&](std::string_view a, std::string_view b) { return distance(a) < distance(b); });
    if (distance(nearest) <= 2) {
      return "unknown key; did you mean " + std::string(nearest) + "?";
    }
  }
  std::string list;
  for (const std::string_view name : allowed) {
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  return "unknown key; known here: " + list;
}

// A key as it stands in a path: bare where that is readable.
std::string KeyText(std::string_view key) {
  const bool plain =
      !key.empty() && key.size() <= 80 &&
      std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c <= '~'; });
  return plain ? std::string(key) : Excerpt(Json(key));
}

}  // namespace

std::string KeyPath::Text() const {
  const std::string prefix = parent_ == nullptr ? "" : parent_->Text();
  if (index_ >= 0) {
    return prefix + "[" + std::to_string(index_) + "]";
  }
  if (parent_ == nullptr) {
    return std::string(title_);
  }
  return prefix.empty() ? KeyText(key_) : prefix + "." + KeyText(key_);
}

void Refuse(const KeyPath& path, const std::string& what) {
  const std::string text = path.Text();
  throw SpecError(text.empty() ? what : text + ": " + what);
}

void CheckKeys(const Json& object, const KeyPath& path,
               std::initializer_list<std::string_view> allowed) {
  if (!object.is_object()) {
    Refuse(path, Excerpt(object) + " is not an object, like {\"...\": ...}");
  }
  for (const auto& [key, value] : object.items()) {
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      Refuse(KeyPath(path, key),
             UnknownKey(key, allowed) + " (its value is " + Excerpt(value) + ")");
    }
  }
}

const Json* Find(const Json& object, std::string_view key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

double ReadNumber(const Json& value, const KeyPath& path, const NumberRange& range) {
  if (!value.is_number()) {
    Refuse(path, Excerpt(value) + " is not a number; " + std::string(range.rule));
  }
  const auto number = value.get<double>();
  const bool low = range.exclude_min ? number <= range.min : number < range.min;
  const bool high = range.exclude_max ? number >= range.max : number > range.max;
  if (low || high || !std::isfinite(number)) {
    const std::string_view cause = number < 0 ? " is negative; "
                                   : low      ? " is too small; "
                                              : " is too large; ";
    Refuse(path, Excerpt(value) + std::string(cause) + std::string(range.rule));
  }
  return number;
}

int64_t ReadInteger(const Json& value, const KeyPath& path, int64_t min, int64_t max) {
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(max)) &&
      value.get<int64_t>() >= min && value.get<int64_t>() <= max;
  if (!fits) {
    Refuse(path, Excerpt(value) + " is not an integer between " + std::to_string(min) + " and " +
                     std::to_string(max));
  }
  return value.get<int64_t>();
}

bool ReadBool(const Json& value, const KeyPath& path) {
  if (!value.is_boolean()) {
    Refuse(path, Excerpt(value) + " is neither true nor false");
  }
  return value.get<bool>();
}

std::string ReadText(const Json& value, const KeyPath& path, size_t max_bytes) {
  if (!value.is_string()) {
    Refuse(path, Excerpt(value) + " is not a string");
  }
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() > max_bytes) {
    Refuse(path, Excerpt(value) + " has " + std::to_string(text.size()) + " bytes; at most " +
                     std::to_string(max_bytes) + " are allowed");
  }
  const auto is_control = [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), is_control)) {
    Refuse(path, Excerpt(value) + " contains a control character");
  }
  return text;
}

std::vector<int64_t> ReadIntegers(const Json& value, const KeyPath& path, int64_t min, int64_t max,
                                  size_t max_count) {
  if (!value.is_array() || value.empty() || value.size() > max_count) {
    Refuse(path,
           Excerpt(value) + " is not a list of 1 to " + std::to_string(max_count) + " integers");
  }
  std::vector<int64_t> integers;
  integers.reserve(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    integers.push_back(ReadInteger(value[i], KeyPath(path, i), min, max));
  }
  return integers;
}

}  // namespace dmuon::spec
