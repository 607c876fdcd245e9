#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "proto/session_spec.h"

namespace dmuon {
namespace {

TEST(NaturalLess, ComparesDigitsAsNumbers) {
  EXPECT_TRUE(NaturalLess("layer.2", "layer.10"));
  EXPECT_FALSE(NaturalLess("layer.10", "layer.2"));
  EXPECT_TRUE(NaturalLess("h.2.b", "h.2.c"));
  EXPECT_TRUE(NaturalLess("h.9.z", "h.10.a"));
  EXPECT_TRUE(NaturalLess("a", "a1"));
  EXPECT_TRUE(NaturalLess("a1", "b0"));
  EXPECT_TRUE(NaturalLess("x99999999999999999999998", "x99999999999999999999999"));
  EXPECT_FALSE(NaturalLess("same.1", "same.1"));
}

TEST(NaturalLess, BreaksTiesByPlainComparison) {
  EXPECT_TRUE(NaturalLess("a01", "a1"));
  EXPECT_FALSE(NaturalLess("a1", "a01"));
  EXPECT_TRUE(NaturalLess("a001b", "a01b"));
  EXPECT_TRUE(NaturalLess("a01b1", "a1b2"));  // the later difference counts first
}

// Sorting must give one order whatever it starts from: a strict total order on distinct strings.
TEST(NaturalLess, IsATotalOrder) {
  std::mt19937 random(1);
  std::vector<std::string> names;
  for (int i = 0; i < 300; ++i) {
    std::string name;
    for (size_t j = 0; j < 1 + random() % 4; ++j) {
      name += "01a.9"[random() % 5];
    }
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::sort(names.begin(), names.end(), NaturalLess);
  for (size_t i = 0; i < names.size(); ++i) {
    for (size_t j = 0; j < names.size(); ++j) {
      ASSERT_EQ(NaturalLess(names[i], names[j]), i < j) << names[i] << " " << names[j];
    }
  }
}

TEST(NameOf, SpellsAsTheSpecDoes) {
  EXPECT_EQ(NameOf(Rule::kMuon), "muon");
  EXPECT_EQ(NameOf(Rule::kAdamW), "adamw");
  EXPECT_EQ(NameOf(NsForm::kAuto), "auto");
  EXPECT_EQ(NameOf(NsForm::kGram), "gram");
  EXPECT_EQ(NameOf(Precision::kBf16), "bf16");
}

}  // namespace
}  // namespace dmuon
