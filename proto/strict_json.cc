#include "proto/strict_json.h"

#include <algorithm>
#include <set>
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

// The first pass, which builds nothing: refuses what the library lets pass. (Its parser callback
// would do in one pass, but takes quadratic time on long arrays.)
class StructureCheck : public nlohmann::json_sax<Json> {
 public:
  explicit StructureCheck(int max_depth) : max_depth_(static_cast<size_t>(max_depth)) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Open(); }
  bool start_array(std::size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& key) override {
    if (!keys_[depth_].insert(key).second) {
      throw SpecError("key " + Excerpt(Json(key)) +
                      " occurs twice in one object; keep one of them");
    }
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    throw SpecError("not JSON: " + Cleaned(error.what()));
  }

 private:
  bool Open() {
    if (++depth_ > max_depth_) {
      throw SpecError("nested deeper than " + std::to_string(max_depth_) +
                      " levels, which nothing in this format is");
    }
    keys_.resize(std::max(keys_.size(), depth_ + 1));
    keys_[depth_].clear();
    return true;
  }
  bool Close() {
    --depth_;
    return true;
  }

  size_t max_depth_;
  size_t depth_ = 0;
  std::vector<std::set<std::string>> keys_;  // of the open object at each depth
};

}  // namespace

Json ParseStrictJson(std::string_view text, int max_depth) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw SpecError("is empty; expected JSON");
  }
  StructureCheck check(max_depth);
  Json::sax_parse(text.begin(), text.end(), &check);
  return Json::parse(text.begin(), text.end());
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
