// One flat JSON object, written without a library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dmuon::kernels::testing {

class JsonRecord {
 public:
  void Add(std::string_view key, std::string_view text);
  void Add(std::string_view key, const char* text) { Add(key, std::string_view(text)); }
  void Add(std::string_view key, int64_t number);
  void Add(std::string_view key, double number);  // null where it is not finite
  void Add(std::string_view key, const std::vector<int>& numbers);

  std::string OneLine() const;
  std::string Lines() const;  // "key   value", for people

 private:
  std::vector<std::pair<std::string, std::string>> items_;  // values already written as JSON
};

}  // namespace dmuon::kernels::testing
