#include "tests/bench/json_record.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace dmuon::kernels::testing {
namespace {

std::string Quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> escape;
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
      result += escape.data();
    } else {
      result += c;
    }
  }
  return result + '"';
}

}  // namespace

void JsonRecord::Add(std::string_view key, std::string_view text) {
  items_.emplace_back(key, Quoted(text));
}

void JsonRecord::Add(std::string_view key, int64_t number) {
  items_.emplace_back(key, std::to_string(number));
}

void JsonRecord::Add(std::string_view key, double number) {
  if (!std::isfinite(number)) {
    items_.emplace_back(key, "null");
    return;
  }
  std::array<char, 32> digits;
  const auto result = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  items_.emplace_back(key, std::string(digits.data(), result.ptr));
}

void JsonRecord::Add(std::string_view key, const std::vector<int>& numbers) {
  std::string list = "[";
  for (const int number : numbers) {
    list.append(list.size() > 1 ? "," : "").append(std::to_string(number));
  }
  items_.emplace_back(key, list + "]");
}

std::string JsonRecord::OneLine() const {
  std::string object = "{";
  for (const auto& [key, value] : items_) {
    object.append(object.size() > 1 ? "," : "").append(Quoted(key)).append(":").append(value);
  }
  return object + "}";
}

std::string JsonRecord::Lines() const {
  constexpr std::size_t kKeyWidth = 21;
  std::string lines;
  for (const auto& [key, value] : items_) {
    lines.append(key).append(key.size() < kKeyWidth ? kKeyWidth - key.size() : 1, ' ');
    lines.append(value).append("\n");
  }
  return lines;
}

}  // namespace dmuon::kernels::testing
