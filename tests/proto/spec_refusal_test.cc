#include <gtest/gtest.h>

#include "proto/session_spec.h"

namespace dmuon {
namespace {

struct Refusal {
  const char* name;
  std::string spec;
  std::vector<std::string> mentions;  // what the one line must say
};

std::string OneParameter(const std::string& rest) {
  return R"({"parameters": [{"name": "w", )" + rest + "}]}";
}

std::string Muon(const std::string& options) {
  return R"({"groups": {"muon": {)" + options +
         R"(}}, "parameters": [{"name": "w", "shape": [4, 4]}]})";
}

std::string Top(const std::string& more) {
  return "{" + more + R"(, "parameters": [{"name": "w", "shape": [4, 4]}]})";
}

std::vector<Refusal> Refusals() {
  return {
      {"EmptyFile", "", {"empty"}},
      {"OnlySpaces", " \n", {"empty"}},
      {"TruncatedJson", R"({"parameters": [{"name": "w", "sha)", {"line 1", "column 35"}},
      {"NotAnObject", "[1]", {"[1]", "not an object"}},
      {"MisspeltTopKey", Top(R"("presets": "dmuon")"), {"presets", "did you mean preset"}},
      {"MisspeltGroupKey", Muon(R"("learning_rate": 0.1)"), {"groups.muon.learning_rate", "0.1"}},
      {"MisspeltParameterKey",
       OneParameter(R"("shpe": [2, 2])"),
       {"parameters[0].shpe", "did you mean shape"}},
      {"MisspeltViewKey",
       OneParameter(R"("shape": [4, 4], "view": {"split_row": [2, 2]})"),
       {"parameters[\"w\"].view.split_row", "did you mean split_rows"}},
      {"RepeatedKey", Muon(R"("lr": 1, "lr": 2)"), {"lr", "twice"}},
      {"NegativeLr",
       Muon(R"("lr": -0.1)"),
       {"groups.muon.lr: -0.1 is negative; a learning rate is >= 0"}},
      {"NanLr", Muon(R"("lr": NaN)"), {"not JSON", "line 1", "lr"}},
      {"InfiniteLr", Muon(R"("lr": 1e999)"), {"1e999"}},
      {"TextLr", Muon(R"("lr": "0.1")"), {"groups.muon.lr", "\"0.1\"", "not a number"}},
      {"NegativeDecay", Muon(R"("weight_decay": -1)"), {"groups.muon.weight_decay", "-1"}},
      {"MomentumOne", Muon(R"("momentum": 1.0)"), {"groups.muon.momentum", "1.0", "[0, 1)"}},
      {"ZeroEps", Muon(R"("eps": 0)"), {"groups.muon.eps", "0"}},
      {"BetaOne", Muon(R"("betas": [0.9, 1])"), {"groups.muon.betas[1]", "1", "[0, 1)"}},
      {"OneBeta", Muon(R"("betas": [0.9])"), {"groups.muon.betas", "[0.9]"}},
      {"UnknownPreset", Top(R"("preset": "moonlite")"), {"preset", "moonlite", "moonlight"}},
      {"UnknownScale", Muon(R"("scale": "rms")"), {"groups.muon.scale", "rms", "spectral_max"}},
      {"UnknownForm", Muon(R"("form": "cubic")"), {"groups.muon.form", "cubic", "gram"}},
      {"UnknownPrecision", Muon(R"("precision": "fp8")"), {"groups.muon.precision", "fp8"}},
      {"UnknownRule",
       OneParameter(R"("shape": [4, 4], "rule": "sgd")"),
       {"parameters[\"w\"].rule", "sgd", "adamw"}},
      {"UnknownDtype",
       OneParameter(R"("shape": [4, 4], "dtype": "float32")"),
       {"parameters[\"w\"].dtype", "float32", "fp32"}},
      {"UnknownGroup",
       OneParameter(R"("shape": [4, 4], "group": "fast")"),
       {"parameters[\"w\"].group", "fast", "muon"}},
      {"UnknownView",
       OneParameter(R"("shape": [4, 4], "view": "rows")"),
       {"parameters[\"w\"].view", "rows", "flatten"}},
      {"UnknownReduce", Top(R"("reduce": "max")"), {"reduce", "max", "mean"}},
      {"UnknownCoefficients",
       Muon(R"("coefficients": "newton")"),
       {"groups.muon.coefficients", "newton", "polar_express"}},
      {"NoCoefficients", Muon(R"("coefficients": [])"), {"groups.muon.coefficients", "[]"}},
      {"CoefficientPair",
       Muon(R"("coefficients": [[1, 2]])"),
       {"groups.muon.coefficients[0]", "[1,2]"}},
      {"RestartTooLate", Muon(R"("restart": [5])"), {"groups.muon.restart[0]", "5", "1 to 4"}},
      {"RestartAtZero", Muon(R"("restart": [0])"), {"groups.muon.restart[0]", "0"}},
      {"RestartTwice", Muon(R"("restart": [2, 2])"), {"groups.muon.restart", "[2,2]"}},
      {"MuonGroupWithAnotherRule", Muon(R"("rule": "adamw")"), {"groups.muon.rule", "adamw"}},
      {"ZeroMaxGradNorm", Top(R"("max_grad_norm": 0)"), {"max_grad_norm", "0"}},
      {"NoParameters", R"({"preset": "dmuon"})", {"parameters", "missing"}},
      {"EmptyParameters", R"({"parameters": []})", {"parameters", "[]"}},
      {"NoName", R"({"parameters": [{"shape": [2]}]})", {"parameters[0].name", "missing"}},
      {"EmptyName", R"({"parameters": [{"name": "", "shape": [2]}]})", {"parameters[0].name"}},
      {"NameWithNewline",
       R"({"parameters": [{"name": "a\nb", "shape": [2]}]})",
       {"parameters[0].name", "control character"}},
      {"DuplicateNames",
       R"({"parameters": [{"name": "w", "shape": [2]}, {"name": "w", "shape": [3]}]})",
       {"parameters[1].name", "\"w\"", "unique"}},
      {"NoShape", OneParameter(R"("dtype": "fp32")"), {"parameters[\"w\"].shape", "missing"}},
      {"EmptyShape", OneParameter(R"("shape": [])"), {"parameters[\"w\"].shape", "[]"}},
      {"ZeroExtent", OneParameter(R"("shape": [4, 0])"), {"parameters[\"w\"].shape[1]", "0"}},
      {"NegativeExtent", OneParameter(R"("shape": [-4, 4])"), {"parameters[\"w\"].shape[0]", "-4"}},
      {"FractionalExtent", OneParameter(R"("shape": [4.5, 4])"), {"shape[0]", "4.5"}},
      {"AbsurdShape",
       OneParameter(R"("shape": [1000000000, 1000000000])"),
       {"parameters[\"w\"].shape", "1000000000"}},
      {"OverflowingShape",
       OneParameter(R"("shape": [4294967296, 4294967296], "rule": "adamw")"),
       {"parameters[\"w\"].shape", "4294967296"}},
      {"ExtentBeyondInt64",
       OneParameter(R"("shape": [18446744073709551615])"),
       {"shape[0]", "18446744073709551615"}},
      {"NineDimensions",
       OneParameter(R"("shape": [1,1,1,1,1,1,1,1,1], "rule": "adamw")"),
       {"parameters[\"w\"].shape"}},
      {"MatrixTooLarge",
       OneParameter(R"("shape": [100000, 100000])"),
       {"parameters[\"w\"].shape", "100000 x 100000"}},
      {"ThreeDimensionsWithoutView",
       OneParameter(R"("shape": [2, 3, 4])"),
       {"parameters[\"w\"].view", "[2,3,4]", "flatten", "stack"}},
      {"VectorWithMuon",
       OneParameter(R"("shape": [4], "rule": "muon")"),
       {"parameters[\"w\"]", "[4]", "adamw"}},
      {"MatrixViewOfThreeDimensions",
       OneParameter(R"("shape": [2, 3, 4], "view": "matrix")"),
       {"parameters[\"w\"].view", "[2,3,4]"}},
      {"StackOfTwoDimensions",
       OneParameter(R"("shape": [2, 3], "view": "stack")"),
       {"parameters[\"w\"].view", "[2,3]", "stack"}},
      // cases.md row 13.
      {"SplitRowsDoNotAddUp",
       OneParameter(R"("shape": [4608, 8], "view": {"split_rows": [2048, 256, 256]})"),
       {"parameters[\"w\"].view.split_rows", "2560", "4608"}},
      {"SplitColsDoNotAddUp",
       OneParameter(R"("shape": [4, 8], "view": {"split_cols": [4, 5]})"),
       {"parameters[\"w\"].view.split_cols", "9", "8"}},
      {"ZeroSplit",
       OneParameter(R"("shape": [4, 8], "view": {"split_rows": [4, 0]})"),
       {"split_rows[1]", "0"}},
      {"InterleaveDoesNotDivide",
       OneParameter(R"("shape": [5, 8], "view": {"interleave_rows": 2})"),
       {"parameters[\"w\"].view.interleave_rows", "2", "5"}},
      {"InterleaveOne",
       OneParameter(R"("shape": [4, 8], "view": {"interleave_rows": 1})"),
       {"interleave_rows", "1"}},
      {"TwoCuts",
       OneParameter(R"("shape": [4, 8], "view": {"split_rows": [2, 2], "split_cols": [4, 4]})"),
       {"parameters[\"w\"].view", "cuts twice"}},
      {"NegativeOrder",
       OneParameter(R"("shape": [4], "order": -1)"),
       {"parameters[\"w\"].order", "-1"}},
      {"TooDeep", "[[[[[[[[[[1]]]]]]]]]]", {"deeper"}},
      {"InvalidUtf8", OneParameter("\"shape\": [4], \"dtype\": \"\xff\""), {"not JSON"}},
  };
}

class SpecRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(SpecRefusal, IsOneLineNamingKeyAndValue) {
  try {
    ParseSessionSpec(GetParam().spec);
    FAIL() << "accepted: " << GetParam().spec;
  } catch (const SpecError& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    for (const std::string& mention : GetParam().mentions) {
      EXPECT_NE(message.find(mention), std::string::npos) << "no " << mention << " in: " << message;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SpecRefusal, testing::ValuesIn(Refusals()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace dmuon
