// Comparisons of messages for people.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace dmuon::test {

// That `text` is one line and names every one of `parts`.
inline void ExpectNames(const std::string& text, std::initializer_list<std::string> parts) {
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in: " << text;
  }
}

}  // namespace dmuon::test
