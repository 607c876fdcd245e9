// The MPI handles behind MpiWorld; for the transport only.
#pragma once

#include <mpi.h>

#include "daemon/transport/mpi_world.h"

namespace dmuon {

struct MpiWorld::Communicators {
  MPI_Comm owners = MPI_COMM_NULL;  // owners only
  MPI_Comm data = MPI_COMM_NULL;    // all ranks of the job
};

}  // namespace dmuon
