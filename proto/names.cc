#include <algorithm>
#include <string_view>

#include "proto/session_spec.h"
#include "proto/spec_names.h"

namespace dmuon {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Takes the run of digits at the front of `text` off and returns it without leading zeros.
std::string_view TakeNumber(std::string_view& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), IsDigit);
  std::string_view number = text.substr(0, static_cast<size_t>(end - text.begin()));
  text.remove_prefix(number.size());
  number.remove_prefix(std::min(number.find_first_not_of('0'), number.size()));
  return number;
}

// Below 0, 0, above 0, as for strings; 0 also for "a1" and "a01".
int NaturalCompare(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    if (IsDigit(a.front()) && IsDigit(b.front())) {
      const std::string_view left = TakeNumber(a);
      const std::string_view right = TakeNumber(b);
      if (left.size() != right.size()) {
        return left.size() < right.size() ? -1 : 1;
      }
      if (const int order = left.compare(right); order != 0) {
        return order;
      }
    } else if (a.front() != b.front()) {
      return static_cast<unsigned char>(a.front()) < static_cast<unsigned char>(b.front()) ? -1 : 1;
    } else {
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  return static_cast<int>(!a.empty()) - static_cast<int>(!b.empty());
}

}  // namespace

std::string_view NameOf(Rule rule) { return spec::NameIn(spec::kRules, rule); }
std::string_view NameOf(NsForm form) { return spec::NameIn(spec::kForms, form); }
std::string_view NameOf(Precision precision) { return spec::NameIn(spec::kPrecisions, precision); }

bool NaturalLess(std::string_view a, std::string_view b) {
  const int order = NaturalCompare(a, b);
  return order != 0 ? order < 0 : a < b;
}

}  // namespace dmuon
