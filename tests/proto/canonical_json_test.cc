#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "proto/session_spec.h"

namespace dmuon {
namespace {

std::vector<std::string> Entries() {
  return {R"({"name": "a", "shape": [4, 6], "view": {"split_cols": [2, 4]}})",
          R"({"name": "b.10", "shape": [4]})",
          R"({"name": "b.2", "shape": [2, 4, 6], "view": "stack", "order": 3})",
          R"({"name": "c", "shape": [8, 6], "view": {"interleave_rows": 2}, "dtype": "fp16"})",
          R"({"name": "d", "shape": [4, 2, 3], "view": "flatten", "group": "slow"})"};
}

std::string SpecOf(const std::vector<std::string>& entries, const std::string& more = "") {
  std::string text;
  for (const std::string& entry : entries) {
    text += (text.empty() ? "" : ", ") + entry;
  }
  return R"({"groups": {"slow": {"lr": 0.001, "restart": [2]}, "muon": {"eps": 1e-6}}, )" + more +
         R"("parameters": [)" + text + "]}";
}

TEST(CanonicalJson, DoesNotDependOnRegistrationOrder) {
  const std::string canonical = CanonicalJson(ParseSessionSpec(SpecOf(Entries())));
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::vector<std::string> entries = Entries();
    std::shuffle(entries.begin(), entries.end(), std::mt19937(seed));
    EXPECT_EQ(CanonicalJson(ParseSessionSpec(SpecOf(entries))), canonical);
  }
}

TEST(CanonicalJson, ParsesBackToItself) {
  for (const std::string preset : {"dmuon", "keller_jordan", "moonlight", "torch"}) {
    const SessionSpec spec = ParseSessionSpec(SpecOf(
        Entries(),
        R"("max_grad_norm": 0.1, "reduce": "sum", "model": "x", "preset": ")" + preset + R"(", )"));
    const std::string canonical = CanonicalJson(spec);
    const SessionSpec copy = ParseSessionSpec(canonical);
    EXPECT_EQ(CanonicalJson(copy), canonical);
    ASSERT_EQ(copy.groups.size(), spec.groups.size());
    for (size_t i = 0; i < spec.groups.size(); ++i) {
      EXPECT_EQ(copy.groups[i].muon.lr, spec.groups[i].muon.lr);
      EXPECT_EQ(copy.groups[i].adamw.lr, spec.groups[i].adamw.lr);
      EXPECT_EQ(copy.groups[i].muon.weight_decay, spec.groups[i].muon.weight_decay);
      EXPECT_EQ(copy.groups[i].adamw.weight_decay, spec.groups[i].adamw.weight_decay);
      EXPECT_EQ(copy.groups[i].muon.eps, spec.groups[i].muon.eps);
      EXPECT_EQ(copy.groups[i].adamw.eps, spec.groups[i].adamw.eps);
      EXPECT_EQ(copy.groups[i].muon.coefficients, spec.groups[i].muon.coefficients);
      EXPECT_EQ(copy.groups[i].muon.restart, spec.groups[i].muon.restart);
    }
    for (size_t i = 0; i < spec.parameters.size(); ++i) {
      EXPECT_EQ(copy.parameters[i].name, spec.parameters[i].name);
      if (spec.parameters[i].rule == Rule::kMuon) {
        EXPECT_EQ(MatricesOf(copy.parameters[i]), MatricesOf(spec.parameters[i]));
      }
    }
  }
}

TEST(CanonicalJson, IsEqualForTwoWaysToSayTheSame) {
  const auto canonical = [](const std::string& entry) {
    return CanonicalJson(ParseSessionSpec(R"({"parameters": [)" + entry + "]}"));
  };
  const std::string plain = canonical(R"({"name": "w", "shape": [4, 6]})");
  EXPECT_EQ(canonical(R"({"shape": [4, 6], "name": "w", "rule": "muon"})"), plain);
  EXPECT_EQ(canonical(R"({"name": "w", "shape": [4, 6], "view": "matrix", "dtype": "fp32"})"),
            plain);
  EXPECT_EQ(canonical(R"({"name": "w", "shape": [4, 6], "view": "flatten"})"), plain);
  EXPECT_EQ(canonical(R"({"name": "w", "shape": [4, 6], "view": {"split_rows": [4]}})"), plain);
  EXPECT_NE(canonical(R"({"name": "w", "shape": [4, 6], "view": {"split_rows": [2, 2]}})"), plain);
  EXPECT_NE(canonical(R"({"name": "w", "shape": [4, 6], "dtype": "bf16"})"), plain);
}

}  // namespace
}  // namespace dmuon
