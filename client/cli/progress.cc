#include "client/cli/progress.h"

#include <unistd.h>

#include <cstdio>

namespace dmuon::cli {
namespace {

constexpr size_t kWidth = 30;

}  // namespace

Progress::Progress(size_t total) : terminal_(isatty(STDERR_FILENO) == 1), total_(total) {}

Progress::~Progress() { Erase(); }

void Progress::Start(const std::string& part) {
  part_ = part;
  Draw();
}

void Progress::Finish(const std::string& result) {
  ++done_;
  if (!terminal_) {
    std::fprintf(stderr, "%zu/%zu %s: %s\n", done_, total_, part_.c_str(), result.c_str());
  }
  Draw();
}

void Progress::Say(const std::string& line) {
  Erase();
  std::fprintf(stderr, "%s\n", line.c_str());
  Draw();
}

void Progress::Draw() const {
  if (!terminal_) {
    return;
  }
  const size_t filled = total_ == 0 ? kWidth : kWidth * done_ / total_;
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  std::fprintf(stderr, "\r\033[K[%s] %zu/%zu %s", bar.c_str(), done_, total_, part_.c_str());
  std::fflush(stderr);
}

void Progress::Erase() const {
  if (terminal_) {
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
  }
}

}  // namespace dmuon::cli
