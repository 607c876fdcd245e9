// Taking part in an MPI job together with dmuond.
//
// Each rank of MPI_COMM_WORLD exchanges a hello with each other rank, then all create one
// communicator for bucket messages. That happens once in the life of a process.
#pragma once

#include <optional>

#include "proto/status.h"

namespace dmuon::client {

// Whether this process has started MPI, in a job of several ranks. Does not start it.
bool RunningInMpiJob();

// The first call exchanges hellos and waits up to `timeout_s`; later ones return what it found:
// this process's rank in MPI_COMM_WORLD, or nothing when no rank of the job is a dmuond owner.
// Every rank of a job with dmuond in it must call it, also one that uses another channel: dmuond
// waits for it. FailedPrecondition unless MPI runs with MPI_THREAD_MULTIPLE; DeadlineExceeded names
// the ranks that stayed silent. Thread-safe.
Result<std::optional<int>> JoinMpiJob(double timeout_s = 300.0);

}  // namespace dmuon::client
