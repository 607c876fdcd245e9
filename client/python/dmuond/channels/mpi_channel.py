"""Bucket messages point to point between ranks of one MPI job, on a communicator of our own.

Trainers and owners are programs of one MPMD job. Before anything else, each rank of MPI_COMM_WORLD
exchanges a hello with each other rank; then all create the data communicator together. That happens
once in the life of a process: at its first session on this channel, or when it calls join_job.
"""

from __future__ import annotations

import atexit
import functools
import os
import socket
import struct
import sys
import time

import numpy as np

from dmuond import control, errors

HELLO_TAG = 17488   # 0x4450
CREATE_TAG = 17489
TO_OWNER_TAG = 1
TO_TRAINER_TAG = 2
HELLO_SECONDS = 300.0
ROLE_OWNER = 1
ROLE_TRAINER = 2

_HELLO = struct.Struct("<IIIIq40s")  # magic, version, role, reserved, pid, host
_MAGIC = 0x4F4C4C48  # "HLLO"
_VERSION = 1
_LARGEST_COUNT = 2**31 - 1
_UNIT_BYTES = 64  # every bucket message is a multiple of this


def load_mpi():
    """mpi4py's MPI module, initialised with MPI_THREAD_MULTIPLE. Raises Error."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise errors.Error(
            f"channel mpi needs mpi4py ({error}): install python3-mpi4py, or use another channel"
        ) from None
    if not MPI.Is_initialized() or MPI.Is_finalized():
        raise errors.StateError(
            "channel mpi: MPI is not running in this process: leave mpi4py's automatic "
            "initialisation on, or call MPI.Init_thread(MPI.THREAD_MULTIPLE) before the session")
    if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
        raise errors.StateError(
            "channel mpi needs MPI_THREAD_MULTIPLE, which this process did not ask for or get: "
            "leave mpi4py.rc.thread_level at 'multiple'")
    return MPI


def _hello(role: int) -> np.ndarray:
    host = socket.gethostname().encode()[:39]
    packed = _HELLO.pack(_MAGIC, _VERSION, role, 0, os.getpid(), host)
    return np.frombuffer(packed, np.uint8).copy()


def _wait(done, what, seconds: float, check=lambda: None) -> None:
    """Polls until `done()`. Yields the core for longer the longer it takes."""
    deadline = time.monotonic() + seconds
    pause = 0.0
    while not done():
        check()
        if time.monotonic() > deadline:
            raise errors.TimedOut(what())
        time.sleep(pause)
        pause = min(pause + 2e-5, 1e-3)


def running_in_job() -> bool:
    """Whether the program has started MPI, in a job of several ranks. Does not start it."""
    module = sys.modules.get("mpi4py.MPI")
    return (module is not None and module.Is_initialized() and not module.Is_finalized()
            and module.COMM_WORLD.size > 1)


# MPI_COMM_WORLD exists once in a process, and so does the communicator that all its ranks create
# from it: every session of the process shares this one.
@functools.lru_cache(maxsize=None)
def join_job(seconds: float = HELLO_SECONDS):
    """Exchanges hellos with all ranks of the MPI job; the first call does, later ones return.

    Returns the data communicator, or None when no rank is a dmuond owner. Every rank of a job with
    dmuond in it must come here, also one that uses another channel: dmuond waits for it. Raises
    Error, naming the ranks that stayed silent for `seconds`.
    """
    MPI = load_mpi()
    world = MPI.COMM_WORLD
    others = [rank for rank in range(world.size) if rank != world.rank]
    mine = _hello(ROLE_TRAINER)
    theirs = {rank: np.zeros(_HELLO.size, np.uint8) for rank in others}
    receives = {rank: world.Irecv([theirs[rank], MPI.BYTE], rank, HELLO_TAG) for rank in others}
    sends = [world.Isend([mine, MPI.BYTE], rank, HELLO_TAG) for rank in others]

    def silent() -> str:
        ranks = [str(rank) for rank in others if not receives[rank].Test()]
        return (f"channel mpi: no hello from rank(s) {', '.join(ranks) or 'none'} of the MPI job "
                f"within {seconds:g} s: every program of the job must be dmuond or a trainer that "
                "opens a session on channel mpi or calls dmuond.join_mpi_job()")

    # Test every request each time: MPI makes progress inside these calls only.
    requests = [*receives.values(), *sends]
    _wait(lambda: all([request.Test() for request in requests]), silent, seconds)
    if not _has_owner(theirs):
        return None
    communicator = world.Create_group(world.Get_group(), CREATE_TAG)
    atexit.register(_end_job_after_exception, communicator)
    return communicator


def data_communicator():
    """The communicator that bucket messages travel on. Raises Error when there are no owners."""
    communicator = join_job()
    if communicator is None:
        raise errors.Error(
            "channel mpi: no rank of this MPI job is a dmuond owner: start both in one mpirun "
            "(mpirun -np 2 dmuond : -np 2 python3 train.py), or use another channel")
    return communicator


def _end_job_after_exception(communicator) -> None:
    """Without it, MPI_Finalize would wait for ever for the ranks that go on."""
    if control.ends_by_exception():
        print(f"dmuond: MPI rank {communicator.rank} ends with an unhandled exception: "
              "ending the MPI job", file=sys.stderr, flush=True)
        communicator.Abort(1)


def _has_owner(theirs) -> bool:
    roles = set()
    for rank, data in theirs.items():
        magic, version, role, _, _, _ = _HELLO.unpack(data.tobytes())
        if magic != _MAGIC or version != _VERSION:
            raise errors.ProtocolError(
                f"channel mpi: rank {rank} answered with magic {magic:#x}, version {version} "
                f"instead of {_MAGIC:#x}, {_VERSION}: it is another program, or of another version")
        roles.add(role)
    return ROLE_OWNER in roles


class MpiChannel:
    send_threads = 1

    def __init__(self, session: int, lease, seconds: float):
        """`seconds`: how long a transfer may take before it is given up."""
        self._mpi = load_mpi()
        self._communicator = data_communicator()
        self._unit = self._mpi.BYTE.Create_contiguous(_UNIT_BYTES).Commit()
        self._session = session
        self._lease = lease
        self._seconds = seconds

    def _message(self, data: np.ndarray):
        if len(data) <= _LARGEST_COUNT:
            return [data, len(data), self._mpi.BYTE]
        return [data, len(data) // _UNIT_BYTES, self._unit]

    def _finish(self, request, what: str) -> int:
        """Waits for the request; returns the bytes received."""
        status = self._mpi.Status()
        _wait(lambda: request.Test(status),
              lambda: f"{what}: not done within {self._seconds:g} s: see the daemon's log",
              self._seconds, lambda: self._lease.check(what))
        return status.Get_elements(self._mpi.BYTE)

    def send(self, bucket, data: np.ndarray) -> None:
        request = self._communicator.Isend(
            self._message(data), bucket.owner_mpi_rank, TO_OWNER_TAG)
        self._finish(request, f"push of bucket {bucket.number}")

    def receive(self, buckets, generation: int) -> None:
        # All receives are posted first; messages of one owner arrive in publish order.
        requests = [
            (bucket, self._communicator.Irecv(
                self._message(bucket.buffer), bucket.owner_mpi_rank, TO_TRAINER_TAG))
            for bucket in buckets if bucket.payload_bytes]
        for bucket, request in requests:
            size = self._finish(request, f"published bucket {bucket.number}")
            bucket.check_published(size, self._session, generation)

    def close(self) -> None:
        self._unit.Free()
