#include "proto/strict_json.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "proto/session_spec.h"

namespace dmuon {
namespace {

constexpr size_t kExcerptLength = 80;

// The library's message without its own prefix, with nothing in it that would break a line.
std::string Cleaned(std::string_view message) {
  if (const size_t prefix = message.find("] "); prefix != std::string_view::npos) {
    message.remove_prefix(prefix + 2);
  }
  std::string cleaned(message);
  std::replace_if(
      cleaned.begin(), cleaned.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return cleaned;
}

// Watches the parser's events for what the library lets pass.
class StructureCheck {
 public:
  explicit StructureCheck(int max_depth) : max_depth_(max_depth) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) {
      if (depth >= max_depth_) {
        throw SpecError("nested deeper than " + std::to_string(max_depth_) +
                        " levels, which nothing in this format is");
      }
      keys_.resize(std::max(keys_.size(), static_cast<size_t>(depth) + 2));
      keys_[static_cast<size_t>(depth) + 1].clear();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys_[static_cast<size_t>(depth)].insert(key).second) {
        throw SpecError("key " + Excerpt(value) + " occurs twice in one object; keep one of them");
      }
    }
    return true;
  }

 private:
  int max_depth_;
  std::vector<std::unordered_set<std::string>> keys_;  // of the open object at each depth
};

}  // namespace

Json ParseStrictJson(std::string_view text, int max_depth) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw SpecError("is empty; expected JSON");
  }
  StructureCheck check(max_depth);
  try {
    return Json::parse(text.begin(), text.end(), std::ref(check));
  } catch (const Json::exception& error) {
    throw SpecError("not JSON: " + Cleaned(error.what()));
  }
}

std::string Excerpt(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kExcerptLength) {
    text.resize(kExcerptLength);
    text += "...";
  }
  return text;
}

}  // namespace dmuon
