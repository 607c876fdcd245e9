// What the C interface refuses by itself. A whole program in C: client/cpp/example.c.
#include <gtest/gtest.h>

#include "client/cpp/dmuon_client.h"

namespace {

constexpr char kSpec[] = R"({"parameters": [{"name": "w", "shape": [4, 3]}]})";

TEST(CInterface, ReportsErrorsByCodeAndText) {
  dmuon_options options;
  dmuon_options_init(&options);
  EXPECT_EQ(options.trainers, 1U);
  EXPECT_GT(options.start_timeout, 0);
  auto* session = reinterpret_cast<dmuon_session*>(1);
  EXPECT_EQ(dmuon_open(nullptr, nullptr, 0, &options, &session), DMUON_INVALID_ARGUMENT);
  EXPECT_STREQ(dmuon_last_error(), "spec_json is NULL: give a valid pointer");
  EXPECT_EQ(session, nullptr);
  EXPECT_EQ(dmuon_open("{", nullptr, 0, &options, &session), DMUON_INVALID_ARGUMENT);
  EXPECT_STRNE(dmuon_last_error(), "");
  const int64_t start[] = {0};
  const dmuon_parameter parameter = {"w", nullptr, 0, start, nullptr, 1};
  EXPECT_EQ(dmuon_open(kSpec, &parameter, 1, &options, &session), DMUON_INVALID_ARGUMENT);
  EXPECT_STREQ(dmuon_last_error(),
               "parameter 'w': give both region_start and region_extent, or neither");
  EXPECT_EQ(dmuon_step(nullptr, nullptr), DMUON_INVALID_ARGUMENT);
  EXPECT_EQ(dmuon_push(nullptr, "w", nullptr, 0, 1), DMUON_INVALID_ARGUMENT);
  EXPECT_EQ(dmuon_join_mpi_job(1.0), DMUON_FAILED_PRECONDITION);
  EXPECT_EQ(dmuon_close(nullptr), DMUON_OK);
  EXPECT_STREQ(dmuon_last_error(), "");
  dmuon_abandon(nullptr);
}

}  // namespace
