#include "daemon/signals.h"

#include <pthread.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

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

// Runs on a thread that does not block the signals: blocks them there once the handler returns, and
// sends the signal again, until it meets the thread that waits for it. Async-signal-safe.
void PassOn(int signal, siginfo_t*, void* context) {
  auto* interrupted = static_cast<ucontext_t*>(context);
  for (int waited : {SIGTERM, SIGINT, SIGUSR1, kStop}) {
    sigaddset(&interrupted->uc_sigmask, waited);
  }
  kill(getpid(), signal);
}

}  // namespace

void BlockSignals() {
  sigset_t set = WaitedFor();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  // OpenBLAS starts threads when it is loaded; a signal that one of them took would end the
  // process.
  struct sigaction action = {};
  action.sa_sigaction = PassOn;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&action.sa_mask);
  for (int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaction(signal, &action, nullptr);
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
