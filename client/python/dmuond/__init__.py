"""Client of dmuond, the distributed Muon optimizer daemon. Start at Session, or at dmuond.torch."""

from dmuond.channels.mpi_channel import join_job as join_mpi_job
from dmuond.errors import (AlreadyAttached, DaemonUnavailable, Error, InvalidArgument, NotFound,
                           ProtocolError, SessionFailed, StateError, StepAborted, TimedOut)
from dmuond.report import Orthogonalised, StepReport
from dmuond.session import Session

__all__ = [
    "AlreadyAttached", "DaemonUnavailable", "Error", "InvalidArgument", "NotFound",
    "Orthogonalised", "ProtocolError", "Session", "SessionFailed", "StateError", "StepAborted",
    "StepReport", "TimedOut", "join_mpi_job",
]
