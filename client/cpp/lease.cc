#include "client/cpp/lease.h"

#include <mutex>
#include <thread>
#include <utility>

#include "client/cpp/rpc.h"

namespace dmuon::client {

struct Lease::Impl {
  explicit Impl(Connection& opened) : connection(opened) {}

  Connection& connection;
  grpc::ClientContext hold;
  std::thread watcher;
  mutable std::mutex mutex;
  Status lost;                             // ok while held
  grpc::ClientContext* waiting = nullptr;  // cancelled when the lease is lost

  void Watch(const v1::HoldRequest& request) {
    auto stream = connection.rpc().control->Hold(&hold, request);
    v1::HoldEvent event;
    std::string last;
    while (stream->Read(&event)) {
      if (!event.message().empty()) last = event.message();
    }
    Status status =
        FromGrpc(stream->Finish(), last.empty() ? "the lease on the session broke" : last);
    if (status.ok()) {
      status = {StatusCode::kUnavailable,
                "the daemon ended the session: " +
                    (last.empty() ? "no reason given; see its log" : last)};
    }
    std::lock_guard lock(mutex);
    lost = std::move(status);
    if (waiting != nullptr) waiting->TryCancel();
  }

  Status Check(const std::string& what) const {
    std::lock_guard lock(mutex);
    return lost.ok() ? lost : Status(lost.code(), what + ": " + lost.message());
  }

  template <typename Method, typename Request, typename Reply>
  Status Wait(Method method, const Request& request, double seconds, const std::string& what,
              Reply* reply) {
    if (Status status = connection.CheckProcess(); !status.ok()) return status;
    if (Status status = Check(what); !status.ok()) return status;
    grpc::ClientContext context;
    SetDeadline(&context, seconds);
    {
      std::lock_guard lock(mutex);
      waiting = &context;
      if (!lost.ok()) context.TryCancel();
    }
    grpc::Status status = (connection.rpc().control.get()->*method)(&context, request, reply);
    {
      std::lock_guard lock(mutex);
      waiting = nullptr;
    }
    if (status.error_code() == grpc::StatusCode::CANCELLED) {
      if (Status lost_status = Check(what); !lost_status.ok()) return lost_status;
    }
    return FromGrpc(status, what);
  }
};

Lease::Lease(Connection& connection, uint64_t session, uint32_t trainer)
    : impl_(std::make_unique<Impl>(connection)) {
  v1::HoldRequest request;
  request.set_session(session);
  request.set_trainer(trainer);
  impl_->watcher = std::thread([impl = impl_.get(), request] { impl->Watch(request); });
}

Lease::~Lease() {
  impl_->hold.TryCancel();
  impl_->watcher.join();
}

Status Lease::Check(const std::string& what) const { return impl_->Check(what); }

Status Lease::WaitReady(const v1::WaitReadyRequest& request, double timeout_s,
                        v1::WaitReadyReply* reply) {
  return impl_->Wait(&v1::Control::Stub::WaitReady, request, timeout_s, "waiting for all trainers",
                     reply);
}

Status Lease::WaitStep(const v1::WaitStepRequest& request, const std::string& what,
                       v1::StepReport* reply) {
  return impl_->Wait(&v1::Control::Stub::WaitStep, request, kStepSeconds, what, reply);
}

}  // namespace dmuon::client
