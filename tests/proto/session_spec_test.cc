#include "proto/session_spec.h"

#include <gtest/gtest.h>

#include <chrono>

namespace dmuon {
namespace {

// The example of the format's description.
constexpr const char* kExample = R"({"preset": "dmuon",
     "groups": {"muon":  {"lr": 0.02, "weight_decay": 0.0, "scale": "match_rms_adamw"},
                "adamw": {"lr": 0.001},
                "embed": {"rule": "adamw", "lr": 0.003, "betas": [0.9, 0.95]}},
     "max_grad_norm": null,
     "reduce": "mean",
     "parameters": [
       {"name": "h.0.attn.qkv", "shape": [2304, 768], "view": {"split_rows": [768, 768, 768]}},
       {"name": "experts.w1",   "shape": [64, 1408, 2048], "view": "stack"},
       {"name": "experts.w13",  "shape": [64, 2816, 2048],
        "view": {"stack": true, "split_rows": [1408, 1408]}},
       {"name": "conv1",        "shape": [64, 32, 3, 3],   "view": "flatten"},
       {"name": "gate_up",      "shape": [2816, 1024],     "view": {"interleave_rows": 2}},
       {"name": "wte", "shape": [50257, 768], "group": "embed", "dtype": "bf16", "order": 0}]})";

const GroupSpec& GroupOf(const SessionSpec& spec, size_t parameter) {
  return spec.groups.at(static_cast<size_t>(spec.parameters.at(parameter).group));
}

TEST(SessionSpec, ReadsTheExample) {
  const SessionSpec spec = ParseSessionSpec(kExample);
  EXPECT_FALSE(spec.max_grad_norm);
  EXPECT_EQ(spec.reduce, Reduce::kMean);
  std::vector<std::string> names;
  for (const ParameterSpec& parameter : spec.parameters) {
    names.push_back(parameter.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"wte", "conv1", "experts.w1", "experts.w13", "gate_up",
                                             "h.0.attn.qkv"}));
  EXPECT_EQ(spec.parameters[0].dtype, DType::kBFloat16);
  EXPECT_EQ(spec.parameters[0].rule, Rule::kAdamW);
  EXPECT_EQ(GroupOf(spec, 0).name, "embed");
  EXPECT_EQ(GroupOf(spec, 0).adamw.lr, 0.003);
  EXPECT_EQ(GroupOf(spec, 0).adamw.beta2, 0.95);
  EXPECT_EQ(GroupOf(spec, 0).adamw.weight_decay, 0.01);
  EXPECT_EQ(GroupOf(spec, 1).name, "muon");
  EXPECT_TRUE(spec.parameters[1].view.flatten);
  EXPECT_EQ(spec.parameters[3].view.split_rows, (std::vector<int64_t>{1408, 1408}));
  EXPECT_EQ(spec.parameters[5].elements(), 2304 * 768);
}

std::string Parameters(const std::string& entries, const std::string& more = "") {
  return "{" + more + R"("parameters": [)" + entries + "]}";
}

TEST(SessionSpec, RuleFollowsDimensionsGroupAndParameter) {
  const SessionSpec spec = ParseSessionSpec(
      Parameters(R"({"name": "a", "shape": [4, 4]}, {"name": "b", "shape": [4]},
                    {"name": "c", "shape": [4, 4], "rule": "adamw"},
                    {"name": "d", "shape": [4, 4], "group": "elementwise"},
                    {"name": "e", "shape": [4, 4], "group": "elementwise", "rule": "muon"},
                    {"name": "f", "shape": [4, 4], "group": "plain"},
                    {"name": "g", "shape": [4], "group": "plain"})",
                 R"("groups": {"elementwise": {"rule": "adamw"}, "plain": {}}, )"));
  const auto rule = [&](size_t i) { return spec.parameters[i].rule; };
  EXPECT_EQ(rule(0), Rule::kMuon);
  EXPECT_EQ(rule(1), Rule::kAdamW);
  EXPECT_EQ(rule(2), Rule::kAdamW);
  EXPECT_EQ(rule(3), Rule::kAdamW);
  EXPECT_EQ(rule(4), Rule::kMuon);
  EXPECT_EQ(rule(5), Rule::kMuon);
  EXPECT_EQ(rule(6), Rule::kAdamW);
  EXPECT_EQ(GroupOf(spec, 0).name, "muon");
  EXPECT_EQ(GroupOf(spec, 1).name, "adamw");
  EXPECT_EQ(GroupOf(spec, 2).name, "adamw");
  EXPECT_EQ(GroupOf(spec, 4).name, "elementwise");
}

TEST(SessionSpec, WhatAGroupStatesAppliesToBothRules) {
  const SessionSpec spec = ParseSessionSpec(
      Parameters(R"({"name": "a", "shape": [4, 4]})",
                 R"("preset": "moonlight", "groups": {"x": {"lr": 0.5, "eps": 1e-3}, "y": {}}, )"));
  ASSERT_EQ(spec.groups.size(), 4U);  // adamw, muon, x, y
  EXPECT_EQ(spec.groups[2].muon.lr, 0.5);
  EXPECT_EQ(spec.groups[2].adamw.lr, 0.5);
  EXPECT_EQ(spec.groups[2].muon.eps, 1e-3);
  EXPECT_EQ(spec.groups[2].adamw.eps, 1e-3);
  EXPECT_EQ(spec.groups[3].muon.weight_decay, 0.1);  // the preset's
  EXPECT_EQ(spec.groups[3].adamw.weight_decay, 0.01);
  EXPECT_EQ(spec.groups[3].adamw.eps, 1e-8);
}

TEST(SessionSpec, ReadsEveryOption) {
  const SessionSpec spec = ParseSessionSpec(Parameters(
      R"({"name": "a", "shape": [4, 4], "dtype": "fp16"})",
      R"("model": "m", "source": "s", "max_grad_norm": 1, "reduce": "sum", "groups": {"muon": {
         "momentum": 0.5, "momentum_dtype": "bf16", "nesterov": false, "momentum_form": "ema",
         "normalize": "eps_max", "coefficients": [[1, 2, 3], [4.5, 5, 6], [7, 8, 9]],
         "form": "gram", "restart": [1, 2], "precision": "fp32", "betas": [0.5, 0.75]}}, )"));
  const GroupSpec& group = GroupOf(spec, 0);
  EXPECT_EQ(group.muon.momentum, 0.5);
  EXPECT_EQ(group.muon.momentum_dtype, DType::kBFloat16);
  EXPECT_FALSE(group.muon.nesterov);
  EXPECT_EQ(group.muon.coefficients[1], (std::array<double, 3>{4.5, 5, 6}));
  EXPECT_EQ(group.muon.form, NsForm::kGram);
  EXPECT_EQ(group.muon.restart, (std::vector<int>{1, 2}));
  EXPECT_EQ(group.muon.precision, Precision::kFp32);
  EXPECT_EQ(group.adamw.beta1, 0.5);
  EXPECT_EQ(spec.max_grad_norm, 1.0);
  EXPECT_EQ(spec.reduce, Reduce::kSum);
  EXPECT_EQ(spec.model, "m");
  EXPECT_EQ(spec.source, "s");
  EXPECT_EQ(spec.parameters[0].dtype, DType::kFloat16);
}

// cases.md row 13, the half that is accepted.
TEST(SessionSpec, AcceptsSplitsThatAddUp) {
  const SessionSpec spec = ParseSessionSpec(Parameters(
      R"({"name": "qkv", "shape": [4608, 64], "view": {"split_rows": [2048, 2048, 256, 256]}})"));
  EXPECT_EQ(MatricesOf(spec.parameters[0]).size(), 4U);
}

TEST(SessionSpec, ReadsFiftyThousandParametersQuickly) {
  std::string entries;
  for (int i = 0; i < 50000; ++i) {
    entries += std::string(i == 0 ? "" : ", ") + R"({"name": "model.layers.)" + std::to_string(i) +
               R"(.mlp.gate_proj.weight", "shape": [1024, 4096], "dtype": "bf16"})";
  }
  const auto start = std::chrono::steady_clock::now();
  const SessionSpec spec = ParseSessionSpec(Parameters(entries));
  const std::string canonical = CanonicalJson(spec);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(spec.parameters.size(), 50000U);
  EXPECT_EQ(spec.parameters[10].name, "model.layers.10.mlp.gate_proj.weight");
#ifndef DMUON_SANITIZED
  EXPECT_LT(took.count(), 3.0);  // 0.3 s where this was written
#endif
}

}  // namespace
}  // namespace dmuon
