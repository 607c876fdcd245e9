#include "daemon/signals.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace dmuon {
namespace {

constexpr int kStop = SIGUSR2;  // how the destructor wakes the thread

sigset_t WaitedFor() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGTERM, SIGINT, SIGUSR1, kStop}) sigaddset(&set, signal);
  return set;
}

}  // namespace

void BlockSignals() {
  sigset_t set = WaitedFor();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

SignalThread::SignalThread(std::function<void()> drain, std::function<void(int)> abort)
    : thread_([drain = std::move(drain), abort = std::move(abort)] {
        sigset_t set = WaitedFor();
        for (;;) {
          int signal = 0;
          if (sigwait(&set, &signal) != 0) continue;
          if (signal == kStop) return;
          if (signal == SIGUSR1) {
            drain();
          } else {
            abort(signal);
          }
        }
      }) {}

SignalThread::~SignalThread() {
  pthread_kill(thread_.native_handle(), kStop);
  thread_.join();
}

}  // namespace dmuon
