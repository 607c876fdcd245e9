// Where the time of a step goes, and what happened when.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/simulator/event_queue.h"

namespace dmuon::simulator {

// By precedence: an instant counts for the first of these that is under way somewhere.
enum class Part { kForward, kBackward, kOptimizer, kCommunication };
inline constexpr size_t kParts = 4;

// Counts what is under way and adds up the time for which each part had precedence.
class Activity {
 public:
  // `events` outlives this object.
  explicit Activity(const EventQueue* events) : events_(events) {}

  void Begin(Part part);
  void End(Part part);

  double seconds(Part part) const { return seconds_[static_cast<size_t>(part)]; }

 private:
  void Advance();

  const EventQueue* events_;
  double advanced_to_ = 0.0;
  std::array<int64_t, kParts> active_{};
  std::array<double, kParts> seconds_{};
};

enum class SpanKind { kForward, kBackward, kOptimizer, kCollective, kPush, kPublish, kCommit };

// One box of the timeline. Lanes: kTrainersLane, kCollectivesLane, or an owner's number.
struct Span {
  int lane = 0;
  SpanKind kind = SpanKind::kForward;
  double start_s = 0.0;
  double end_s = 0.0;
  std::string label;
};

inline constexpr int kTrainersLane = -2;
inline constexpr int kCollectivesLane = -1;

}  // namespace dmuon::simulator
