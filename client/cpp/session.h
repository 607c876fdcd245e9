// A training job inside the daemon, as one trainer sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/region.h"
#include "proto/status.h"

namespace dmuon::client {

enum class ChannelKind { kAuto, kGrpc, kMpi };

// A parameter of this trainer. `data` holds the elements of its region, row-major, in the spec's
// dtype: the values that training starts from, equal on all trainers. Published values are written
// there. The memory belongs to the caller and must outlive the session.
struct Parameter {
  std::string name;
  std::span<std::byte> data;
  std::optional<Region> region;  // unset: the whole parameter
};

struct SessionOptions {
  std::string address;  // gRPC address of the daemon; empty: this user's Unix socket
  uint32_t trainer = 0;
  uint32_t trainers = 1;
  ChannelKind channel = ChannelKind::kAuto;
  Contribution contribution = Contribution::kPartial;
  std::string host_id;        // names the node in the reduction tree; empty: the host name
  double step_timeout_s = 0;  // 0: the daemon's
  double connect_timeout_s = 60;
  double start_timeout_s = 600;  // until all trainers have attached
  bool resume = false;           // join a session that already runs, after this trainer was lost
};

// Values of one group in one step; what is not set keeps the spec's.
struct GroupValues {
  std::string group;
  std::optional<double> lr;
  std::optional<double> weight_decay;
  std::optional<double> momentum;
  std::optional<double> beta1;
  std::optional<double> beta2;
};

enum class StepOutcome {
  kCommitted = 1,
  kSkipped = 2,  // something was not finite; nothing changed, the step's number is used up
  kAborted = 3,  // state as before; BeginStep repeats the same step
};

// The result of one step, the same for every trainer. Times in seconds.
struct StepReport {
  uint64_t step = 0;
  StepOutcome outcome = StepOutcome::kCommitted;
  std::string reason;     // empty when committed
  std::string parameter;  // the one that was not finite
  double grad_norm = 0;   // after grad_scale and reduction, before clipping
  double clip_factor = 1;
  uint64_t matrices = 0;  // orthogonalised
  double optimizer_s = 0;
  double busiest_owner_s = 0;
  std::vector<double> owner_compute_s;  // of every owner, by rank
  uint64_t next_step = 0;
  uint32_t absent_parameters = 0;
};

// One trainer's part of a session. Used by one thread, in the process that opened it. A step is
// BeginStep, any number of Push and Absent, then Step.
class Session {
 public:
  // Opens or joins the daemon's session; returns when all trainers are there. `spec_json` is the
  // session spec (proto/README.md); `parameters` are all of its parameters, in any order.
  // InvalidArgument before anything was sent or changed.
  static Result<std::unique_ptr<Session>> Open(std::string_view spec_json,
                                               const std::vector<Parameter>& parameters,
                                               const SessionOptions& options);
  // Without Close, the daemon reports that the trainer died.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Starts the next step and returns its number. All trainers must give equal values. Pushed
  // gradients are divided by `grad_scale`.
  Result<uint64_t> BeginStep(const std::vector<GroupValues>& groups = {}, double grad_scale = 1.0);

  // Hands over a gradient with the size and dtype of the parameter's data; it is copied, and leaves
  // in the background when its bucket is full. A push that is not final is replaced by the next
  // push of the same parameter and starts no work. Aborted: the step has ended without this
  // trainer; Step returns its report.
  Status Push(std::string_view name, std::span<const std::byte> gradient, bool final = true);

  // Declares that a parameter has no gradient in this step: no update, no decay.
  Status Absent(std::string_view name);

  // Ends the step and waits for it. When it was committed, the parameters hold the new values.
  // Parameters neither pushed nor declared are absent; the last push of each counts, final or not.
  Result<StepReport> Step();

  // Leaves the session. No other call may follow.
  Status Close();

  bool resumed() const;  // whether Open read the daemon's values instead of giving it ours
  uint64_t next_step() const;
  ChannelKind channel() const;

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dmuon::client
