// What the coordinator broadcasts and answers, kept for tests to look at.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/coordinator/coordinator_host.h"

namespace dmuon::test {

class RecordingHost : public CoordinatorHost {
 public:
  explicit RecordingHost(int owners) : owners_(owners) {}

  void Broadcast(const v1::OwnerMessage& message) override { sent_.push_back(message); }
  int owner_count() const override { return owners_; }
  int world_rank_of_owner(int owner) const override { return 10 + owner; }
  bool is_trainer_rank(int world_rank) const override {
    return trainer_ranks.count(world_rank) != 0;
  }
  kernels::ElementType auto_precision() const override { return kernels::ElementType::kFloat32; }
  bool supports_precision(kernels::ElementType type, std::string* why) const override {
    *why = "no arithmetic of that type";
    return type == kernels::ElementType::kFloat32;
  }
  std::vector<v1::OwnerStatus> owner_statuses() const override {
    return std::vector<v1::OwnerStatus>(owners_);
  }

  // What was sent since the last call.
  std::vector<v1::OwnerMessage> Take() { return std::exchange(sent_, {}); }
  // Those of one kind; the others of that time are dropped.
  std::vector<v1::OwnerMessage> Take(v1::OwnerMessage::KindCase kind) {
    std::vector<v1::OwnerMessage> found;
    for (v1::OwnerMessage& message : Take()) {
      if (message.kind_case() == kind) found.push_back(std::move(message));
    }
    return found;
  }

  std::set<int> trainer_ranks;

 private:
  int owners_;
  std::vector<v1::OwnerMessage> sent_;
};

// The answer to one call.
class Call {
 public:
  Reply reply() const {
    return [state = state_](const Status& status, const std::string& bytes) {
      ++state->answers;
      state->status = status;
      state->bytes = bytes;
    };
  }
  bool answered() const { return state_->answers == 1; }
  int answers() const { return state_->answers; }
  const Status& status() const { return state_->status; }
  const std::string& message() const { return state_->status.message(); }
  bool ok() const { return answered() && state_->status.ok(); }
  template <typename Message>
  Message As() const {
    Message message;
    if (!message.ParseFromString(state_->bytes)) throw std::runtime_error("reply does not parse");
    return message;
  }

 private:
  struct State {
    int answers = 0;
    Status status;
    std::string bytes;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace dmuon::test
