// MPI's return codes as Status, and waiting for requests without holding a core.
#pragma once

#include <mpi.h>

#include <chrono>
#include <string>
#include <thread>

#include "proto/status.h"

namespace dmuon::client {

// `call` names the MPI function, `what` the purpose.
inline Status CheckMpi(int code, const char* call, const std::string& what) {
  if (code == MPI_SUCCESS) return Status::Ok();
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return Status::Internal(what + ": " + call + ": " + text);
}

// Polls `done` (a Result<bool>) until it is true, then less and less often. `timed_out` gives the
// status of a wait that took longer than `timeout_s`.
template <typename Done, typename TimedOut>
Status PollUntil(Done done, TimedOut timed_out, double timeout_s) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(timeout_s));
  std::chrono::microseconds pause{0};
  for (;;) {
    Result<bool> state = done();
    if (!state.ok()) return state.status();
    if (state.value()) return Status::Ok();
    if (Clock::now() > deadline) return timed_out();
    std::this_thread::sleep_for(pause);
    if (pause < std::chrono::milliseconds(1)) pause += std::chrono::microseconds(10);
  }
}

// The data communicator; MPI_COMM_NULL before JoinMpiJob found owners.
MPI_Comm DataCommunicator();

}  // namespace dmuon::client
