#include "kernels/reduction_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace dmuon::kernels::testing {
namespace {

// Sums written out, so that the tree can be read.
struct Text {
  int most_slots = 0;
  std::vector<std::string> slots = std::vector<std::string>(40);

  void Load(int slot, const void* source) {
    slots[slot] = *static_cast<const std::string*>(source);
    most_slots = std::max(most_slots, slot + 1);
  }
  void Add(int slot, int other) { slots[slot] = "(" + slots[slot] + slots[other] + ")"; }
  void Copy(int slot, int other) { slots[slot] = slots[other]; }
};

// One letter per source, '.' for an absent one.
std::string TreeOf(const std::string& sources) {
  Text text;
  ReductionTree<Text> tree(text);
  std::vector<std::string> names;
  for (const char c : sources) {
    names.emplace_back(1, c);
  }
  for (const std::string& name : names) {
    tree.Push(name == "." ? nullptr : &name);
  }
  const bool present = tree.Finish();
  EXPECT_LE(text.most_slots, ReductionTree<Text>::SlotsFor(std::ssize(names)));
  return present ? text.slots[0] : "";
}

TEST(ReductionTree, IsBalancedNeighboursFirst) {
  EXPECT_EQ(TreeOf(""), "");
  EXPECT_EQ(TreeOf("a"), "a");
  EXPECT_EQ(TreeOf("ab"), "(ab)");
  EXPECT_EQ(TreeOf("abc"), "((ab)c)");
  EXPECT_EQ(TreeOf("abcde"), "(((ab)(cd))e)");
  EXPECT_EQ(TreeOf("abcdef"), "(((ab)(cd))(ef))");
  EXPECT_EQ(TreeOf("abcdefg"), "(((ab)(cd))((ef)g))");
}

TEST(ReductionTree, AbsentSourcesKeepTheOthersPlaces) {
  EXPECT_EQ(TreeOf("..."), "");
  EXPECT_EQ(TreeOf("a.c"), "(ac)");
  EXPECT_EQ(TreeOf(".bcd"), "(b(cd))");
  EXPECT_EQ(TreeOf("a..d"), "(ad)");
  EXPECT_EQ(TreeOf("....e"), "e");
  EXPECT_EQ(TreeOf("ab..e.g."), "((ab)(eg))");
}

}  // namespace
}  // namespace dmuon::kernels::testing
