// Specs for tests, made from a few words.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace dmuon::test {

// {"name": name, "shape": [rows, cols]} and what `more` adds, like R"(, "view": "stack")".
inline std::string ParameterText(const std::string& name, const std::string& shape,
                                 const std::string& more = "") {
  return R"({"name": ")" + name + R"(", "shape": )" + shape + more + "}";
}

inline std::string SpecText(const std::vector<std::string>& parameters,
                            const std::string& more = "") {
  std::string text = "{" + more + R"("parameters": [)";
  for (size_t i = 0; i < parameters.size(); ++i) {
    text += (i == 0 ? "" : ", ") + parameters[i];
  }
  return text + "]}";
}

// A small model with every view, AdamW parameters and two shapes that repeat.
inline std::vector<std::string> MixedParameters() {
  std::vector<std::string> parameters = {
      ParameterText("wte", "[500, 300]", R"(, "rule": "adamw", "dtype": "bf16")"),
      ParameterText("conv", "[64, 32, 3, 3]", R"(, "view": "flatten")"),
      ParameterText("gate_up", "[96, 40]", R"(, "view": {"interleave_rows": 2})"),
      ParameterText("experts", "[4, 24, 16]", R"(, "view": {"stack": true, "split_cols": [8, 8]})"),
  };
  for (int layer = 0; layer < 12; ++layer) {
    const std::string prefix = "h." + std::to_string(layer) + ".";
    parameters.push_back(
        ParameterText(prefix + "qkv", "[96, 32]", R"(, "view": {"split_rows": [32, 32, 32]})"));
    parameters.push_back(ParameterText(prefix + "proj", "[32, 32]"));
    parameters.push_back(ParameterText(prefix + "ln", "[32]"));
  }
  return parameters;
}

inline std::vector<std::string> Shuffled(std::vector<std::string> parameters, unsigned seed) {
  std::shuffle(parameters.begin(), parameters.end(), std::mt19937(seed));
  return parameters;
}

}  // namespace dmuon::test
