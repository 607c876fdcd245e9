#include "daemon/coordinator/attach_checks.h"

#include <gtest/gtest.h>

#include "tests/daemon/expect_text.h"

namespace dmuon {
namespace {

using Numbers = std::vector<uint32_t>;
using Regions = std::vector<v1::Region>;

v1::Region Box(uint32_t parameter, std::vector<int64_t> start, std::vector<int64_t> extent,
               v1::Contribution contribution = v1::CONTRIBUTION_UNSPECIFIED) {
  v1::Region region;
  region.set_parameter(parameter);
  for (int64_t value : start) region.add_start(value);
  for (int64_t value : extent) region.add_extent(value);
  region.set_contribution(contribution);
  return region;
}

// Canonical order: a, b, c.
class AttachChecks : public testing::Test {
 protected:
  AttachChecks() {
    request_.set_contribution(v1::CONTRIBUTION_PARTIAL);
    for (const char* name : {"c", "a", "b"}) request_.add_parameters(name);
  }
  Status Map() { return MapParameterNames(spec_, request_, &canonical_, &own_); }
  Status Collect() {
    Status status = Map();
    return status.ok() ? CollectRegions(spec_, request_, canonical_, &regions_) : status;
  }
  static void ExpectRefused(const Status& status, std::initializer_list<std::string> parts) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    test::ExpectNames(status.message(), parts);
  }

  SessionSpec spec_ = ParseSessionSpec(R"({"parameters": [{"name": "b", "shape": [6, 4]},
    {"name": "c", "shape": [5]}, {"name": "a", "shape": [2, 2]}]})");
  v1::AttachRequest request_;
  Numbers canonical_;
  Numbers own_;
  Regions regions_;
};

TEST_F(AttachChecks, MapsNamesBothWays) {
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(canonical_, (Numbers{2, 0, 1}));
  EXPECT_EQ(own_, (Numbers{1, 2, 0}));
}

TEST_F(AttachChecks, NamesMustBeThoseOfTheSession) {
  request_.add_parameters("d");
  ExpectRefused(Map(), {"no parameter \"d\""});
  request_.mutable_parameters()->RemoveLast();
  request_.add_parameters("a");
  ExpectRefused(Map(), {"\"a\" is listed twice"});
  request_.mutable_parameters()->RemoveLast();
  request_.mutable_parameters()->RemoveLast();
  ExpectRefused(Map(), {"\"b\"", "not listed"});
}

TEST_F(AttachChecks, WithoutRegionsEverythingIsWhole) {
  ASSERT_TRUE(Collect().ok());
  ASSERT_EQ(regions_.size(), 3U);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(regions_[i].parameter(), i);
    EXPECT_EQ(RegionOf(regions_[i]), Region::Whole(spec_.parameters[i].shape));
    EXPECT_EQ(regions_[i].contribution(), v1::CONTRIBUTION_PARTIAL);
  }
}

// Region.parameter counts in the trainer's own order.
TEST_F(AttachChecks, RegionsAreRenumbered) {
  *request_.add_regions() = Box(2, {1, 0}, {3, 4}, v1::CONTRIBUTION_REPLICA);
  ASSERT_TRUE(Collect().ok());
  EXPECT_EQ(RegionOf(regions_[1]), (Region{{1, 0}, {3, 4}}));
  EXPECT_EQ(regions_[1].contribution(), v1::CONTRIBUTION_REPLICA);
  EXPECT_EQ(RegionOf(regions_[0]), Region::Whole({2, 2}));
}

TEST_F(AttachChecks, RefusesBadRegions) {
  *request_.add_regions() = Box(3, {0}, {5});
  ExpectRefused(Collect(), {"regions", "number 3", "3 are listed"});
  *request_.mutable_regions(0) = Box(2, {4, 0}, {3, 4});
  ExpectRefused(Collect(), {"'b'", "4", "3", "6"});
  *request_.mutable_regions(0) = Box(2, {0}, {3});
  ExpectRefused(Collect(), {"'b'", "dimensions"});
  *request_.mutable_regions(0) = Box(2, {0, 0}, {3, 4});
  *request_.add_regions() = Box(2, {3, 0}, {3, 4});
  ExpectRefused(Collect(), {"b has two regions"});
}

TEST_F(AttachChecks, ContributionMustBeSaid) {
  request_.set_contribution(v1::CONTRIBUTION_UNSPECIFIED);
  *request_.add_regions() = Box(1, {0, 0}, {2, 2}, v1::CONTRIBUTION_PARTIAL);
  ExpectRefused(Collect(), {"contribution", "parameter b", "PARTIAL", "REPLICA"});
}

// The regions of a trainer that holds rows [start, start + extent) of b and the rest whole.
class RegionsTogether : public AttachChecks {
 protected:
  Regions Rows(int64_t start, int64_t extent,
               v1::Contribution contribution = v1::CONTRIBUTION_PARTIAL) {
    request_.clear_regions();
    *request_.add_regions() = Box(2, {start, 0}, {extent, 4}, contribution);
    EXPECT_TRUE(Collect().ok());
    return regions_;
  }
};

TEST_F(RegionsTogether, EvenCoverageIsAccepted) {
  Regions first = Rows(0, 2);
  Regions second = Rows(2, 4);
  EXPECT_TRUE(CheckRegionsTogether(spec_, {&first, &second}).ok());
  EXPECT_TRUE(CheckRegionsTogether(spec_, {&first, &second, &first, &second}).ok());
}

TEST_F(RegionsTogether, UnevenCoverageIsNamed) {
  Regions first = Rows(0, 2);
  Regions second = Rows(1, 5);
  Status status = CheckRegionsTogether(spec_, {&first, &second});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  test::ExpectNames(status.message(), {"b", "row"});
}

// What is still missing may come with the trainers that are.
TEST_F(RegionsTogether, CoverageIsCheckedWhenAllAreThere) {
  Regions first = Rows(0, 2);
  EXPECT_TRUE(CheckRegionsTogether(spec_, {&first, nullptr}).ok());
  EXPECT_TRUE(CheckRegionsTogether(spec_, {nullptr, &first, nullptr}).ok());
  EXPECT_FALSE(CheckRegionsTogether(spec_, {&first}).ok());
}

TEST_F(RegionsTogether, ContributionsMustAgreeAsSoonAsTwoAreThere) {
  Regions partial = Rows(0, 6, v1::CONTRIBUTION_PARTIAL);
  Regions replica = Rows(0, 6, v1::CONTRIBUTION_REPLICA);
  Status status = CheckRegionsTogether(spec_, {nullptr, &partial, nullptr, &replica});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  test::ExpectNames(status.message(),
                    {"parameter b", "PARTIAL on trainer 1", "REPLICA on trainer 3"});
}

TEST_F(RegionsTogether, SameRegionsComparesBoxesAndContributions) {
  Regions first = Rows(0, 2);
  EXPECT_TRUE(SameRegions(first, Rows(0, 2)));
  EXPECT_FALSE(SameRegions(first, Rows(0, 3)));
  EXPECT_FALSE(SameRegions(first, Rows(0, 2, v1::CONTRIBUTION_REPLICA)));
  EXPECT_FALSE(SameRegions(first, {}));
}

TEST(ChannelName, SaysWhatUsersWrite) {
  EXPECT_EQ(ChannelName(v1::CHANNEL_AUTO), "auto");
  EXPECT_EQ(ChannelName(v1::CHANNEL_GRPC), "grpc");
  EXPECT_EQ(ChannelName(v1::CHANNEL_MPI), "mpi");
  EXPECT_EQ(ChannelName(v1::CHANNEL_SHM), "shm");
  EXPECT_EQ(ChannelName(v1::CHANNEL_CUDA_IPC), "cuda_ipc");
}

}  // namespace
}  // namespace dmuon
