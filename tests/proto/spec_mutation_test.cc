// Broken specs must be refused as SpecError, or be whole specs: nothing else may come out.
#include <gtest/gtest.h>

#include <random>

#include "proto/session_spec.h"

namespace dmuon {
namespace {

constexpr const char* kSpec = R"({"preset": "torch", "max_grad_norm": 1.5, "reduce": "sum",
  "groups": {"muon": {"lr": 0.02, "coefficients": [[1, 2, 3], [4, 5, 6]], "restart": [1]},
             "x": {"rule": "adamw", "betas": [0.9, 0.95], "eps": 1e-8}},
  "parameters": [
    {"name": "h.0.qkv", "shape": [96, 32], "view": {"split_rows": [32, 32, 32]}},
    {"name": "w1", "shape": [4, 24, 16], "view": {"stack": true, "interleave_rows": 2}},
    {"name": "e", "shape": [500, 7], "group": "x", "dtype": "bf16", "order": 3}]})";

// Whether the spec is accepted; then it must also survive its own canonical form.
bool Accepts(const std::string& text) {
  try {
    const SessionSpec spec = ParseSessionSpec(text);
    const std::string canonical = CanonicalJson(spec);
    EXPECT_EQ(CanonicalJson(ParseSessionSpec(canonical)), canonical) << text;
    return true;
  } catch (const SpecError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return false;
  }
}

TEST(SpecMutation, EveryTruncationIsRefused) {
  const std::string text = kSpec;
  ASSERT_TRUE(Accepts(text));
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(Accepts(text.substr(0, length))) << length;
  }
}

TEST(SpecMutation, ChangedBytesNeverCrash) {
  std::mt19937 random(1);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = kSpec;
    for (unsigned i = 0; i < 1 + random() % 3; ++i) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    accepted += Accepts(text) ? 1 : 0;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 20000);
}

TEST(SpecMutation, MovedPiecesNeverCrash) {
  std::mt19937 random(2);
  const char* const tokens[] = {"{",         "}",        "[",    "]",
                                ":",         ",",        "null", "true",
                                "-1",        "1e308",    "\"\"", "18446744073709551615",
                                "\"stack\"", "\"muon\"", "9",    "0"};
  for (int round = 0; round < 20000; ++round) {
    std::string text = kSpec;
    const size_t at = random() % text.size();
    const size_t length = random() % 12;
    text.replace(at, length, tokens[random() % std::size(tokens)]);
    Accepts(text);
  }
}

}  // namespace
}  // namespace dmuon
