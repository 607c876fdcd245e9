// Who is alive: owners report to owner 0 and owner 0 to everybody; silence is a lost owner.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

namespace dmuon {

// Pure bookkeeping; the engine sends and receives.
class Heartbeat {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::chrono::milliseconds kInterval{1000};

  Heartbeat(int owner, int owners, double timeout_s, Clock::time_point now)
      : owner_(owner), timeout_(timeout_s), last_heard_(owners, now), last_tick_(now) {}

  void Hear(int owner, Clock::time_point now) { last_heard_[owner] = now; }
  double AgeOf(int owner, Clock::time_point now) const {
    return owner == owner_ ? 0.0 : std::chrono::duration<double>(now - last_heard_[owner]).count();
  }

  // To be called often. Returns an owner that has been silent for too long. When this process
  // itself did not run for a while (stopped, suspended), the others get a fresh start.
  std::optional<int> FindLost(Clock::time_point now) {
    bool slept = std::chrono::duration<double>(now - last_tick_) > timeout_ / 2;
    last_tick_ = now;
    for (int other = 0; other < static_cast<int>(last_heard_.size()); ++other) {
      if (other == owner_ || (owner_ != 0 && other != 0)) continue;
      if (slept) last_heard_[other] = now;
      if (std::chrono::duration<double>(now - last_heard_[other]) > timeout_) return other;
    }
    return std::nullopt;
  }

 private:
  int owner_;
  std::chrono::duration<double> timeout_;
  std::vector<Clock::time_point> last_heard_;
  Clock::time_point last_tick_;
};

}  // namespace dmuon
