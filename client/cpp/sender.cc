#include "client/cpp/sender.h"

#include <utility>

namespace dmuon::client {

Sender::Sender(Channel& channel) : channel_(channel), thread_([this] { Run(); }) {}

Sender::~Sender() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Sender::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    const Job job = queue_.front();
    queue_.pop_front();
    if (failure_.ok()) {
      lock.unlock();
      Status status = channel_.Send(*job.bucket, job.message);
      lock.lock();
      if (!status.ok()) failure_ = std::move(status);
    }
    pending_.erase(job.bucket);
    changed_.notify_all();
  }
}

void Sender::Start(const Bucket& bucket, std::span<const std::byte> message) {
  {
    std::lock_guard lock(mutex_);
    pending_.insert(&bucket);
    queue_.push_back({&bucket, message});
  }
  changed_.notify_all();
}

Status Sender::Wait(const Bucket& bucket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return pending_.count(&bucket) == 0; });
  return failure_;
}

Status Sender::WaitAll() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return pending_.empty(); });
  return failure_;
}

void Sender::Reset() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return pending_.empty(); });
  failure_ = Status::Ok();
}

}  // namespace dmuon::client
