#include "scheduler/simulator/network.h"

#include <gtest/gtest.h>

#include "tests/scheduler/simulator/support.h"

namespace dmuon::simulator {
namespace {

using test::SmallCluster;

// One network and the times at which things are done.
class NetworkTest : public ::testing::Test {
 protected:
  Network& Make(Cluster cluster, Load load = Load::kCollectivesAndBuckets) {
    cluster_ = std::move(cluster);
    network_ = std::make_unique<Network>(
        cluster_, Placement{cluster_.nodes, cluster_.gpus_per_node}, load, &events_, &activity_);
    return *network_;
  }
  Action Note() {
    done_.push_back(-1.0);
    return [this, i = done_.size() - 1] { done_[i] = events_.now(); };
  }

  Cluster cluster_;
  EventQueue events_;
  Activity activity_{&events_};
  std::unique_ptr<Network> network_;
  std::vector<double> done_;
};

TEST_F(NetworkTest, OneMessageTakesLatencyAndBytesOverBandwidth) {
  Make(SmallCluster(2, 1)).SendToNode({0, 1, 0, 5e7}, nullptr, Note());
  events_.Run();
  EXPECT_DOUBLE_EQ(done_[0], 1e-4 + 0.5);
  EXPECT_EQ(network_->bytes().nic, 5e7);
  EXPECT_EQ(network_->bytes().intra_node, 0.0);
  EXPECT_DOUBLE_EQ(activity_.seconds(Part::kCommunication), 1e-4 + 0.5);
}

TEST_F(NetworkTest, TwoMessagesShareTheReceiversCard) {
  Network& network = Make(SmallCluster(3, 1));
  network.SendToNode({0, 2, 0, 5e7}, nullptr, Note());
  network.SendToNode({1, 2, 0, 5e7}, nullptr, Note());
  events_.Run();
  EXPECT_DOUBLE_EQ(done_[0], 1e-4 + 0.5);
  EXPECT_DOUBLE_EQ(done_[1], 1e-4 + 1.0);
  EXPECT_EQ(network.bytes().busiest_nic_in, 1e8);
  EXPECT_EQ(network.bytes().busiest_nic_out, 5e7);
}

TEST_F(NetworkTest, DevicesShareACardWhereThereAreFewer) {
  Cluster cluster = SmallCluster(2, 2);
  cluster.nics_per_node = 1;
  Network& network = Make(cluster);
  network.SendToNode({0, 1, 0, 5e7}, nullptr, Note());
  network.SendToNode({0, 1, 1, 5e7}, nullptr, Note());
  events_.Run();
  EXPECT_DOUBLE_EQ(done_[1], 1e-4 + 1.0);
}

TEST_F(NetworkTest, AFabricLimitsAllNodesTogether) {
  Cluster cluster = SmallCluster(4, 1);
  cluster.fabric_bytes_per_s = 1e8;
  Network& network = Make(cluster);
  network.SendToNode({0, 1, 0, 5e7}, nullptr, Note());
  network.SendToNode({2, 3, 0, 5e7}, nullptr, Note());
  events_.Run();
  EXPECT_DOUBLE_EQ(done_[1], 1e-4 + 1.0);
}

TEST_F(NetworkTest, HostLinksAreThreeHopsInsteadOfOne) {
  Cluster cluster = SmallCluster(2, 1);
  cluster.host_link = LinkSpeed{2e8, 1e-3};
  Make(cluster).SendToNode({0, 1, 0, 5e7}, nullptr, Note());
  events_.Run();
  EXPECT_DOUBLE_EQ(done_[0], (1e-3 + 0.25) + (1e-4 + 0.5) + (1e-3 + 0.25));
  EXPECT_EQ(network_->bytes().host, 1e8);
}

TEST_F(NetworkTest, GatheringInANodeIsLimitedByTheReceiver) {
  Make(SmallCluster(1, 4)).GatherInNode(0, 2, 3e8, Note());
  events_.Run();
  EXPECT_DOUBLE_EQ(done_[0], 0.3 + 1e-5);
  EXPECT_EQ(network_->bytes().intra_node, 3e8);
}

// On a ring of 4, every rank receives 3/4 of the result: 3 results in all.
TEST_F(NetworkTest, AllGatherOfOneNodeMovesWhatARingMoves) {
  Make(SmallCluster(1, 4)).GatherOrScatter(4e8, Note());
  events_.Run();
  EXPECT_DOUBLE_EQ(network_->bytes().intra_node, 3 * 4e8);
  EXPECT_EQ(network_->bytes().nic, 0.0);
  EXPECT_DOUBLE_EQ(done_[0], 0.3 + 3 * 1e-5);  // 3/4 of the result, 3 hops
}

// Two nodes of two: each node must receive the half that it lacks, in all one result; each device
// then receives the half that its neighbour has, in all two results: 3 as on a ring of 4.
TEST_F(NetworkTest, AllGatherOfTwoNodesSendsHalfToEach) {
  Make(SmallCluster(2, 2)).GatherOrScatter(4e8, Note());
  events_.Run();
  EXPECT_DOUBLE_EQ(network_->bytes().nic, 4e8);
  EXPECT_DOUBLE_EQ(network_->bytes().intra_node, 2 * 4e8);
  EXPECT_DOUBLE_EQ(network_->bytes().busiest_nic_in, 1e8);  // half a result over two cards
  EXPECT_DOUBLE_EQ(done_[0], 1.0 + 1e-4 + 1e-5);            // the cards' time; one hop of each kind
}

// As above, without a link for each device.
TEST_F(NetworkTest, OneLinkStandsForAllOfACollective) {
  Make(SmallCluster(2, 2), Load::kCollectives).GatherOrScatter(4e8, Note());
  events_.Run();
  EXPECT_DOUBLE_EQ(network_->bytes().nic, 4e8);
  EXPECT_DOUBLE_EQ(network_->bytes().intra_node, 2 * 4e8);
  EXPECT_DOUBLE_EQ(network_->bytes().busiest_nic_in, 1e8);
  EXPECT_DOUBLE_EQ(done_[0], 1.0 + 1e-4 + 1e-5);
}

TEST_F(NetworkTest, AllReduceIsBothHalves) {
  Make(SmallCluster(1, 4)).AllReduce(4e8, Note());
  events_.Run();
  EXPECT_DOUBLE_EQ(network_->bytes().intra_node, 6 * 4e8);
  EXPECT_DOUBLE_EQ(done_[0], 2 * (0.3 + 3 * 1e-5));
}

TEST_F(NetworkTest, OneRankHasNothingToGatherOrToAgreeOn) {
  Network& network = Make(SmallCluster(1, 1));
  network.GatherOrScatter(4e8, Note());
  network.Agree(1.0, Note());
  events_.Run();
  EXPECT_EQ(done_[0], 0.0);
  EXPECT_EQ(done_[1], 0.0);
  EXPECT_EQ(network.bytes().intra_node, 0.0);
}

TEST_F(NetworkTest, AgreementIsOneMessageFromAndToEachOtherOwner) {
  Make(SmallCluster(3, 1)).Agree(1e-3, Note());
  events_.Run();
  EXPECT_DOUBLE_EQ(done_[0], 2 * 1e-4 + 4 * (1e-3 + 64.0 / 1e8));
}

}  // namespace
}  // namespace dmuon::simulator
