// What the coordinator asks of the process around it, and how calls are answered.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dmuon/v1/owner.pb.h"
#include "kernels/options.h"
#include "proto/status.h"

namespace dmuon {

// Answers one control call, once; `bytes` is the serialised reply when the status is ok.
using Reply = std::function<void(const Status& status, const std::string& bytes)>;

template <typename Message>
void Answer(const Reply& reply, const Message& message) {
  reply(Status::Ok(), message.SerializeAsString());
}

class CoordinatorHost {
 public:
  virtual ~CoordinatorHost() = default;
  // To every owner, this one included; delivered in the order in which they were sent.
  virtual void Broadcast(const v1::OwnerMessage& message) = 0;
  virtual int owner_count() const = 0;
  virtual int world_rank_of_owner(int owner) const = 0;
  // Whether `world_rank` is a trainer of the MPI job.
  virtual bool is_trainer_rank(int world_rank) const = 0;
  virtual kernels::ElementType auto_precision() const = 0;
  // False, with the reason, when the owners' device has no arithmetic of that type.
  virtual bool supports_precision(kernels::ElementType type, std::string* why) const = 0;
  virtual std::vector<v1::OwnerStatus> owner_statuses() const = 0;
};

}  // namespace dmuon
