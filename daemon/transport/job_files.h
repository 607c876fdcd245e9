// What an MPI job that ends badly would leave in /dev/shm.
#pragma once

namespace dmuon {

// Removes the files under /dev/shm that this process maps: segments through which the job's ranks
// on this host exchange messages. MPI removes them when it is finalised, and mpirun after a crash,
// but not reliably when it is ending itself. Only for a job that is being aborted.
void RemoveJobFiles();

}  // namespace dmuon
