#include "tests/bench/copy_rate.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace dmuon::kernels::testing {
namespace {

constexpr int64_t kLine = 64;            // ranges start and end at lines
constexpr int64_t kBlock = 256LL << 10;  // handed out to threads as they come

void CopyLibrary(char* to, const char* from, int64_t bytes) { std::memcpy(to, from, bytes); }

void CopyLoop(char* __restrict to, const char* __restrict from, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += kLine) {
    uint64_t words[kLine / 8];
    std::memcpy(words, from + line, kLine);
    std::memcpy(to + line, words, kLine);
  }
}

struct Way {
  const char* name;
  bool slices;  // one range per thread instead of blocks
  void (*copy)(char* to, const char* from, int64_t bytes);
};

#if defined(__SSE2__)
void CopyAroundCaches(char* to, const char* from, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += kLine) {
    for (int64_t i = line; i < line + kLine; i += sizeof(__m128i)) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
    }
  }
  _mm_sfence();
}

constexpr std::array kWays = {Way{"memcpy, a slice per thread", true, CopyLibrary},
                              Way{"memcpy, blocks", false, CopyLibrary},
                              Way{"loop, blocks", false, CopyLoop},
                              Way{"non-temporal, a slice per thread", true, CopyAroundCaches},
                              Way{"non-temporal, blocks", false, CopyAroundCaches}};
#else
constexpr std::array kWays = {Way{"memcpy, a slice per thread", true, CopyLibrary},
                              Way{"memcpy, blocks", false, CopyLibrary},
                              Way{"loop, blocks", false, CopyLoop}};
#endif

}  // namespace

double TimeOnce_s(Clock clock, int threads, const std::function<void()>& run) {
  const auto now_s = [clock] {
    timespec now{};
    clock_gettime(clock == Clock::kCpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  const double begin_s = now_s();
  run();
  return (now_s() - begin_s) / (clock == Clock::kCpu ? threads : 1);
}

double RunTimes::median_s() const {
  std::vector<double> sorted = times_;
  std::nth_element(sorted.begin(), sorted.begin() + std::ssize(sorted) / 2, sorted.end());
  return sorted[sorted.size() / 2];
}

double RunTimes::fastest_s() const { return *std::min_element(times_.begin(), times_.end()); }

CopyRate::CopyRate(Device& device, int threads, int64_t array_bytes, Clock clock)
    : pool_(threads),
      clock_(clock),
      from_(device.Allocate(array_bytes / kLine * kLine)),
      to_(device.Allocate(from_.bytes())),
      times_(kWays.size()) {}

void CopyRate::Run(int way) {
  const int64_t lines = from_.bytes() / kLine;
  const int64_t range =
      kWays[way].slices ? (lines + pool_.threads() - 1) / pool_.threads() * kLine : kBlock;
  pool_.ParallelFor((from_.bytes() + range - 1) / range, [&](int64_t index, int) {
    const int64_t begin = index * range;
    kWays[way].copy(static_cast<char*>(to_.data()) + begin,
                    static_cast<const char*>(from_.data()) + begin,
                    std::min(range, from_.bytes() - begin));
  });
}

void CopyRate::RunRound() {
  for (int way = 0; way < std::ssize(kWays); ++way) {
    times_[way].Add(TimeOnce_s(clock_, pool_.threads(), [&] { Run(way); }));
  }
}

CopyRate::Rate CopyRate::Best() const {
  Rate best;
  const double gigabytes = 2.0 * static_cast<double>(from_.bytes()) / 1e9;
  for (int way = 0; way < std::ssize(kWays); ++way) {
    if (times_[way].empty()) {
      continue;
    }
    best.fastest_gb_s = std::max(best.fastest_gb_s, gigabytes / times_[way].fastest_s());
    const double median_gb_s = gigabytes / times_[way].median_s();
    if (median_gb_s > best.median_gb_s) {
      best.median_gb_s = median_gb_s;
      best.how = kWays[way].name;
    }
  }
  return best;
}

}  // namespace dmuon::kernels::testing
