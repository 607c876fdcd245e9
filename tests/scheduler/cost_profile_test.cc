#include "scheduler/cost_profile.h"

#include <gtest/gtest.h>

#include <fstream>

namespace dmuon::scheduler {
namespace {

using kernels::ElementType;
using kernels::Form;

kernels::NewtonSchulzOptions Numerics(Form form, ElementType precision, int iterations = 5,
                                      std::vector<int> restart = {}) {
  kernels::NewtonSchulzOptions options;
  options.form = form;
  options.precision = precision;
  options.coefficients.resize(static_cast<size_t>(iterations));
  options.restart = std::move(restart);
  return options;
}

std::string Refusal(const std::string& json, const std::string& entry = "") {
  try {
    ParseCostProfile(json, "p.json", entry);
  } catch (const ProfileError& error) {
    return error.what();
  }
  return "not refused";
}

void ExpectNames(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << word << " is not in: " << message;
  }
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

// Rates that are easy to calculate with: fp32 1e9 flops/s, fp16 and bf16 4e9.
std::string Analytic(const std::string& more = "") {
  return R"({"format": "dmuon-profile-1", "name": "toy",
             "gemm": {"fp32": {"peak_flops_per_s": 2e9, "sustained": 0.5},
                      "bf16": {"peak_flops_per_s": 4e9}, "fp16": {"peak_flops_per_s": 4e9}},
             "memory_bytes_per_s": 1e9)" +
         more + "}";
}

TEST(AnalyticProfile, WithoutExtrasIsUsefulFlops) {
  const CostProfilePtr profile = ParseCostProfile(Analytic(), "p.json");
  for (const auto& options : {Numerics(Form::kDirect, ElementType::kFloat32),
                              Numerics(Form::kGram, ElementType::kFloat32, 5, {2}),
                              Numerics(Form::kGram, ElementType::kFloat32, 5, {1, 3})}) {
    const double flops = kernels::UsefulFlops(64, 256, options);
    EXPECT_NEAR(profile->MuonSeconds(64, 256, options, 1), flops / 1e9, 1e-12);
    EXPECT_NEAR(profile->MuonSeconds(256, 64, options, 3), 3 * flops / 1e9, 1e-12);
    EXPECT_EQ(profile->MuonSeconds(64, 256, options, 0), 0.0);
    EXPECT_EQ(profile->GuessAbout(64, 256, options), "");
  }
  EXPECT_DOUBLE_EQ(profile->ElementwiseSeconds(5e8), 0.5);
  EXPECT_EQ(profile->gemm_flops_per_s(ElementType::kFloat32), 1e9);
  EXPECT_FALSE(profile->memory_bytes());
  EXPECT_FALSE(profile->auto_precision());
}

// The mixed form, by hand: with one iteration X X^T (m^2 n) and Q X (2 m^2 n) are bf16 products,
// R^2 (m^3) an fp32 one.
TEST(AnalyticProfile, MixedFormHasSquaresInFp32) {
  const CostProfilePtr profile = ParseCostProfile(Analytic(), "p.json");
  const double seconds =
      profile->MuonSeconds(10, 30, Numerics(Form::kGram, ElementType::kBFloat16, 1), 1);
  EXPECT_NEAR(seconds, 3.0 * 10 * 10 * 30 / 4e9 + 10.0 * 10 * 10 / 1e9, 1e-15);
}

// One direct iteration is three products: three launches and three half works, whatever the batch.
TEST(AnalyticProfile, BatchesShareStarts) {
  std::string json = Analytic(R"(, "launch_s": 0.5, "muon_bytes_per_element": 100)");
  const std::string peak = "\"sustained\": 0.5";
  json.replace(json.find(peak), peak.size(), peak + ", \"half_work_flops\": 1e9");
  const CostProfilePtr profile = ParseCostProfile(json, "p.json");
  const auto options = Numerics(Form::kDirect, ElementType::kFloat32, 1);
  const double flops = 3.0 * 10 * 10 * 30 + 10.0 * 10 * 10;
  for (const int count : {1, 2, 50}) {
    EXPECT_NEAR(profile->MuonSeconds(10, 30, options, count),
                3 * 0.5 + 3 * 1.0 + count * (flops / 1e9 + 10 * 30 * 100 / 1e9), 1e-12);
  }
}

TEST(AnalyticProfile, ShippedOnesAreTheFilesAndRead) {
  EXPECT_EQ(ShippedProfiles(), (std::vector<std::string>{"a800", "b200", "h100", "h200"}));
  for (const std::string& name : ShippedProfiles()) {
    const CostProfilePtr shipped = LoadCostProfile(name);
    const CostProfilePtr file =
        LoadCostProfile(std::string(DMUON_PROFILES_DIR) + "/" + name + ".json");
    const auto options = Numerics(Form::kGram, ElementType::kFloat16, 5, {2});
    EXPECT_EQ(shipped->name(), name);
    EXPECT_EQ(shipped->MuonSeconds(512, 2048, options, 3),
              file->MuonSeconds(512, 2048, options, 3));
    EXPECT_EQ(shipped->auto_precision(), ElementType::kFloat16);
    // Small matrices gain from batching by much, large ones hardly.
    const auto gain = [&](int64_t size) {
      return 16 * shipped->MuonSeconds(size, size, options, 1) /
             shipped->MuonSeconds(size, size, options, 16);
    };
    EXPECT_GT(gain(256), 4.0);
    EXPECT_LT(gain(8192), 1.1);
  }
  EXPECT_EQ(LoadCostProfile("a800")->memory_bytes(), 80'000'000'000);
  EXPECT_EQ(LoadCostProfile("a800")->link_bytes_per_s(), 2e11);
}

TEST(AnalyticProfile, RefusesWithFileAndKey) {
  ExpectNames(Refusal(""), {"p.json", "empty"});
  ExpectNames(Refusal("[1]"), {"p.json", "[1]", "not an object"});
  ExpectNames(Refusal("{}"), {"p.json", "format"});
  ExpectNames(Refusal(R"({"format": "other"})"), {"p.json", "format", "other", "dmuon-tuning-1"});
  ExpectNames(Refusal(Analytic(R"(, "launchs": 1)")), {"p.json", "launchs", "launch_s"});
  ExpectNames(Refusal(Analytic(R"(, "launch_s": -1)")), {"p.json", "launch_s", "-1"});
  ExpectNames(Refusal(Analytic(R"(, "memory_bytes": 0)")), {"p.json", "memory_bytes", "0"});
  ExpectNames(Refusal(Analytic(R"(, "memory_sustained": 1.5)")),
              {"p.json", "memory_sustained", "1.5"});
  ExpectNames(Refusal(Analytic(R"(, "sources": "me")")), {"p.json", "sources", "me"});
  ExpectNames(Refusal(Analytic(R"(, "auto_precision": "fp64")")),
              {"p.json", "auto_precision", "fp64", "bf16"});
  ExpectNames(Refusal(Analytic(), "gpu"), {"p.json", "gpu"});
  std::string json = Analytic();
  json.replace(json.find("4e9"), 3, "\"x\"");
  ExpectNames(Refusal(json), {"p.json", "gemm.bf16.peak_flops_per_s", "\"x\""});
  json = Analytic();
  json.replace(json.find("1e9"), 3, "0");
  ExpectNames(Refusal(json), {"p.json", "memory_bytes_per_s", "0"});
}

std::string Record(int rows, int cols, int batch, double seconds,
                   const std::string& numerics = R"("form": "direct", "restart": [])") {
  return R"({"rows": )" + std::to_string(rows) + R"(, "cols": )" + std::to_string(cols) +
         R"(, "batch": )" + std::to_string(batch) + R"(, "precision": "fp32", )" + numerics +
         R"(, "iterations": 5, "choice": {"part": 1}, "median_s": )" + std::to_string(seconds) +
         "}";
}

std::string Entry(const std::string& records) {
  return R"({"device": {"kind": "cpu", "name": "c", "threads": 2, "libraries": "a 1"},
             "elementwise_bytes_per_s": 2e9, "records": [)" +
         records + "]}";
}

std::string Tuning(const std::string& entries) {
  return R"({"format": "dmuon-tuning-1", "entries": {)" + entries + "}}";
}

TEST(MeasuredProfile, InterpolatesBetweenBatches) {
  const CostProfilePtr profile = ParseCostProfile(
      Tuning("\"c\": " + Entry(Record(64, 128, 2, 0.5) + "," + Record(64, 128, 6, 0.9))), "p.json");
  const auto options = Numerics(Form::kDirect, ElementType::kFloat32);
  const auto seconds = [&](int count) { return profile->MuonSeconds(64, 128, options, count); };
  EXPECT_EQ(profile->name(), "c");
  EXPECT_EQ(seconds(0), 0.0);
  EXPECT_DOUBLE_EQ(seconds(1), 0.25);
  EXPECT_DOUBLE_EQ(seconds(2), 0.5);
  EXPECT_DOUBLE_EQ(seconds(3), 0.6);
  EXPECT_DOUBLE_EQ(seconds(6), 0.9);
  EXPECT_DOUBLE_EQ(seconds(12), 1.8);
  EXPECT_EQ(profile->GuessAbout(64, 128, options), "");
  EXPECT_DOUBLE_EQ(profile->ElementwiseSeconds(1e9), 0.5);
}

TEST(MeasuredProfile, ScalesWhatWasNotMeasuredAndSaysSo) {
  const CostProfilePtr profile = ParseCostProfile(
      Tuning("\"c\": " + Entry(Record(64, 64, 1, 0.25) + "," + Record(512, 512, 1, 64.0))),
      "p.json");
  const auto options = Numerics(Form::kDirect, ElementType::kFloat32);
  // 80^3 / 64^3 of the nearer record.
  EXPECT_NEAR(profile->MuonSeconds(80, 80, options, 1), 0.25 * 1.953125, 1e-9);
  ExpectNames(profile->GuessAbout(80, 80, options), {"80 x 80", "64 x 64", "direct"});
  // Another form of a measured shape is a guess as well.
  const auto gram = Numerics(Form::kGram, ElementType::kFloat32, 5, {2});
  EXPECT_NEAR(profile->MuonSeconds(512, 512, gram, 1),
              64.0 * kernels::UsefulFlops(512, 512, gram) / kernels::UsefulFlops(512, 512, options),
              1e-9);
  ExpectNames(profile->GuessAbout(512, 512, gram), {"512 x 512", "gram"});
}

TEST(MeasuredProfile, ChoosesADevice) {
  const std::string both =
      Tuning("\"one\": " + Entry(Record(8, 8, 1, 1)) + ", \"two\": " + Entry(Record(8, 8, 1, 2)));
  const auto options = Numerics(Form::kDirect, ElementType::kFloat32);
  EXPECT_EQ(ParseCostProfile(both, "p.json", "two")->MuonSeconds(8, 8, options, 1), 2.0);
  ExpectNames(Refusal(both), {"p.json", "entries", "\"one\"", "\"two\""});
  ExpectNames(Refusal(both, "three"), {"p.json", "\"three\"", "\"one\""});
}

TEST(MeasuredProfile, RefusesWithFileAndKey) {
  const std::string good = Record(8, 8, 1, 1);
  const auto refusal = [](const std::string& records) {
    return Refusal(Tuning("\"c\": " + Entry(records)));
  };
  ExpectNames(Refusal(Tuning("")), {"p.json", "entries"});
  ExpectNames(refusal(""), {"p.json", "entries.c.records"});
  ExpectNames(refusal(good + "," + good), {"p.json", "records[1]", "batch"});
  ExpectNames(refusal(Record(0, 8, 1, 1)), {"p.json", "records[0].rows", "0"});
  ExpectNames(refusal(Record(8, 8, 1, 0)), {"p.json", "records[0].median_s"});
  ExpectNames(refusal(Record(8, 8, 1, 1, R"("form": "gram", "restart": [7])")),
              {"p.json", "records[0].restart[0]", "7"});
  ExpectNames(refusal(Record(8, 8, 1, 1, R"("form": "newton")")),
              {"p.json", "records[0].form", "newton", "gram"});
  ExpectNames(refusal(Record(8, 8, 1, 1, R"("form": "direct", "size": 1)")),
              {"p.json", "records[0].size"});
}

TEST(CostProfile, NamesWhatCannotBeLoaded) {
  const auto refusal = [](const std::string& source) {
    try {
      LoadCostProfile(source);
    } catch (const ProfileError& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  ExpectNames(refusal("a900"), {"a900", "a800", "b200", "h100", "h200"});
  ExpectNames(refusal("/"), {"/", "regular file"});
  const std::string path = testing::TempDir() + "broken-profile.json";
  std::ofstream(path) << "{";
  ExpectNames(refusal(path), {path, "not JSON"});
}

}  // namespace
}  // namespace dmuon::scheduler
