// What Session refuses by itself. Sessions with a daemon:
// tests/client/python.
#include "client/cpp/session.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/cpp/attach.h"

namespace dmuon::client {
namespace {

constexpr char kSpec[] = R"({"parameters": [{"name": "w", "shape": [4, 3]},
                                            {"name": "b", "shape": [5], "dtype": "bf16"}]})";

struct Memory {
  std::vector<std::byte> w = std::vector<std::byte>(48);
  std::vector<std::byte> b = std::vector<std::byte>(10);
  std::vector<Parameter> parameters() { return {{"b", b, {}}, {"w", w, {}}}; }
};

void ExpectRefused(const Status& status, StatusCode code, const std::string& words) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
}

TEST(MatchParameters, KeepsTheGivenOrder) {
  Memory memory;
  auto matched = MatchParameters(kSpec, memory.parameters());
  ASSERT_TRUE(matched.ok()) << matched.status().message();
  ASSERT_EQ(matched.value().size(), 2U);
  EXPECT_EQ(matched.value()[0].name, "b");
  EXPECT_EQ(matched.value()[0].element_bytes, 2);
  EXPECT_EQ(matched.value()[1].region, Region::Whole({4, 3}));
}

TEST(MatchParameters, NamesWhatDoesNotFit) {
  Memory memory;
  const auto refused = [&](std::vector<Parameter> given, const std::string& words) {
    ExpectRefused(MatchParameters(kSpec, given).status(), StatusCode::kInvalidArgument, words);
  };
  refused({{"b", memory.b, {}}}, "parameter 'w' of the session spec was not given");
  refused({{"x", memory.b, {}}}, "parameter 'x' is not in the session spec");
  refused({{"b", memory.b, {}}, {"b", memory.b, {}}}, "parameter 'b' was given twice");
  refused({{"b", memory.w, {}}}, "parameter 'b': 48 bytes given");
  refused({{"w", memory.w, Region{{1, 0}, {3, 3}}}}, "36");
  refused({{"w", memory.w, Region{{2, 0}, {3, 3}}}}, "dimension 0");
  ExpectRefused(MatchParameters(R"({"parameters": [{"name": "w", "shap": [1]}]})", {}).status(),
                StatusCode::kInvalidArgument, "shap");
}

TEST(MatchParameters, TakesARegionWithItsBytes) {
  Memory memory;
  std::vector<std::byte> rows(36);
  auto matched = MatchParameters(kSpec, {{"b", memory.b, {}}, {"w", rows, Region{{1, 0}, {3, 3}}}});
  ASSERT_TRUE(matched.ok()) << matched.status().message();
}

TEST(Session, SaysThatNobodyAnswers) {
  Memory memory;
  SessionOptions options;
  options.address = "unix:/nonexistent/dmuond.sock";
  options.connect_timeout_s = 0.2;
  ExpectRefused(Session::Open(kSpec, memory.parameters(), options).status(),
                StatusCode::kUnavailable, "no dmuond answers at unix:/nonexistent/dmuond.sock");
}

TEST(Session, ChecksTrainerAndMpiBeforeConnecting) {
  Memory memory;
  SessionOptions options;
  options.trainer = 2;
  options.trainers = 2;
  ExpectRefused(Session::Open(kSpec, memory.parameters(), options).status(),
                StatusCode::kInvalidArgument, "trainer 2 of 2");
  options.trainers = 3;
  options.channel = ChannelKind::kMpi;
  ExpectRefused(Session::Open(kSpec, memory.parameters(), options).status(),
                StatusCode::kFailedPrecondition, "MPI_THREAD_MULTIPLE");
}

}  // namespace
}  // namespace dmuon::client
