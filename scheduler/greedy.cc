#include "scheduler/greedy.h"

#include <algorithm>
#include <numeric>
#include <queue>

namespace dmuon::scheduler {
namespace {

struct Owner {
  double key = 0.0;  // seconds, or bytes
  uint32_t index = 0;

  bool operator>(const Owner& other) const {
    return key != other.key ? key > other.key : index > other.index;
  }
};
using LeastFirst = std::priority_queue<Owner, std::vector<Owner>, std::greater<>>;

std::vector<size_t> KindsBy(const BalanceProblem& problem, auto key) {
  std::vector<size_t> order(problem.kinds.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return key(problem.kinds[a]) > key(problem.kinds[b]);
  });
  return order;
}

// Takes the first owner of `queue` that has room for a matrix of `kind`, or owner UINT32_MAX.
uint32_t TakeOwnerWithRoom(const BalanceProblem& problem, size_t kind,
                           const std::vector<int64_t>& bytes, LeastFirst* queue) {
  std::vector<Owner> full;
  uint32_t found = UINT32_MAX;
  while (!queue->empty() && found == UINT32_MAX) {
    const Owner owner = queue->top();
    queue->pop();
    if (problem.memory_limit == 0 ||
        bytes[owner.index] + problem.kinds[kind].bytes <= problem.memory_limit) {
      found = owner.index;
    } else {
      full.push_back(owner);
    }
  }
  for (const Owner& owner : full) {
    queue->push(owner);
  }
  return found;
}

std::vector<Pattern> Deal(const BalanceProblem& problem, const std::vector<size_t>& order,
                          bool by_seconds) {
  std::vector<Pattern> patterns(problem.owners, Pattern(problem.kinds.size(), 0));
  std::vector<int64_t> bytes(problem.owners, 0);
  LeastFirst queue;
  for (uint32_t owner = 0; owner < problem.owners; ++owner) {
    queue.push({0.0, owner});
  }
  for (const size_t kind : order) {
    for (uint32_t i = 0; i < problem.kinds[kind].count; ++i) {
      const uint32_t owner = TakeOwnerWithRoom(problem, kind, bytes, &queue);
      if (owner == UINT32_MAX) {
        return {};
      }
      ++patterns[owner][kind];
      bytes[owner] += problem.kinds[kind].bytes;
      queue.push(
          {by_seconds ? SecondsOf(problem, patterns[owner]) : static_cast<double>(bytes[owner]),
           owner});
    }
  }
  return patterns;
}

}  // namespace

std::vector<Pattern> LongestFirst(const BalanceProblem& problem) {
  return Deal(problem, KindsBy(problem, [](const MatrixKind& kind) { return kind.seconds[1]; }),
              /*by_seconds=*/true);
}

std::vector<Pattern> LargestFirst(const BalanceProblem& problem) {
  return Deal(problem, KindsBy(problem, [](const MatrixKind& kind) { return kind.bytes; }),
              /*by_seconds=*/false);
}

}  // namespace dmuon::scheduler
