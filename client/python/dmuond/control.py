"""The control plane: one gRPC connection to the daemon, deadlines, and errors in words."""

from __future__ import annotations

import os
import sys
import threading

import grpc

from dmuond import errors
from dmuond._generated import control_pb2, control_pb2_grpc, data_pb2_grpc

# Deadlines in seconds. Every call has one, except the lease, which lives as long as the session.
CALL_SECONDS = 120.0       # planning a large session included
TRANSFER_SECONDS = 600.0   # one bucket, or all published ones
STEP_SECONDS = 24 * 3600.0  # the daemon ends a step by its own timeout; the lease sees it die
POLL_SECONDS = 0.5

_ERRORS = {
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidArgument,
    grpc.StatusCode.FAILED_PRECONDITION: errors.StateError,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
    grpc.StatusCode.ALREADY_EXISTS: errors.AlreadyAttached,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.TimedOut,
    grpc.StatusCode.ABORTED: errors.SessionFailed,
    grpc.StatusCode.UNAVAILABLE: errors.DaemonUnavailable,
}

_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A connection of its own, never one that another session of this process uses.
    ("grpc.use_local_subchannel_pool", 1),
)


def default_address() -> str:
    """The socket that dmuond listens on when its configuration names no other."""
    return f"unix:/tmp/dmuond-{os.getuid()}.sock"


def ends_by_exception() -> bool:
    """Whether the interpreter is ending because nobody caught an exception; at exit only."""
    return getattr(sys, "last_type", None) is not None and not hasattr(sys, "ps1")


def error_from(rpc_error: grpc.RpcError, what: str) -> errors.Error:
    """The package's exception for a failed call; `what` says what was being done."""
    code, details = rpc_error.code(), (rpc_error.details() or "").strip()
    kind = _ERRORS.get(code, errors.Error)
    if kind is errors.DaemonUnavailable:
        return kind(f"{what}: the daemon does not answer ({details or 'connection closed'}): "
                    "see its log for why it ended")
    if kind is errors.Error:
        return kind(f"{what}: {code.name}: {details}")
    return kind(f"{what}: {details}")


class Connection:
    """A gRPC connection that belongs to the process that made it: gRPC does not survive fork."""

    def __init__(self, address: str, connect_seconds: float):
        """Waits up to `connect_seconds` for a daemon at `address`; raises DaemonUnavailable."""
        self.address = address
        self._process = os.getpid()
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        try:
            grpc.channel_ready_future(self._channel).result(timeout=connect_seconds)
        except grpc.FutureTimeoutError:
            self._channel.close()
            raise errors.DaemonUnavailable(
                f"no dmuond answers at {address} within {connect_seconds:g} s: start one "
                "(mpirun -np 1 dmuond) or pass the address that it printed as address=") from None
        self.control = control_pb2_grpc.ControlStub(self._channel)
        self.data = data_pb2_grpc.DataStub(self._channel)

    def is_foreign(self) -> bool:
        """Whether this is a fork of the process that made the connection."""
        return os.getpid() != self._process

    def check_process(self) -> None:
        if self.is_foreign():
            raise errors.StateError(
                f"this session belongs to process {self._process} and cannot be used in process "
                f"{os.getpid()}, a fork of it: open the session after forking, or use the "
                "'spawn' start method")

    def call(self, method, request, what: str, seconds: float = CALL_SECONDS):
        """One unary call. Raises an Error whose message starts with `what`."""
        self.check_process()
        try:
            return method(request, timeout=seconds)
        except grpc.RpcError as rpc_error:
            raise error_from(rpc_error, what) from None

    def wait(self, method, request, what: str, lease: Lease, seconds: float = STEP_SECONDS):
        """A call that may take long: ends with an error when the lease is lost meanwhile."""
        self.check_process()
        future = method.future(request, timeout=seconds)
        try:
            while True:
                try:
                    return future.result(timeout=POLL_SECONDS)
                except grpc.FutureTimeoutError:
                    lease.check(what)
        except grpc.RpcError as rpc_error:
            raise error_from(rpc_error, what) from None
        finally:
            future.cancel()

    def close(self) -> None:
        if not self.is_foreign():
            self._channel.close()


class Lease:
    """Holds the stream by which the daemon knows that this trainer lives, and the reverse."""

    def __init__(self, connection: Connection, session: int, trainer: int):
        self._call = connection.control.Hold(
            control_pb2.HoldRequest(session=session, trainer=trainer))
        self._lost: errors.Error | None = None
        self._released = False
        self._thread = threading.Thread(target=self._watch, name="dmuond-lease", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        last = ""
        try:
            for event in self._call:
                last = event.message or last
            lost = errors.DaemonUnavailable(
                f"the daemon ended the session: {last or 'no reason given; see its log'}")
        except grpc.RpcError as rpc_error:
            lost = error_from(rpc_error, last or "the lease on the session broke")
        if not self._released:
            self._lost = lost

    @property
    def broken(self) -> bool:
        return self._lost is not None

    def check(self, what: str) -> None:
        """Raises when the daemon has died or has given the session up. Any thread."""
        if self._lost is not None:
            raise type(self._lost)(f"{what}: {self._lost}")

    def release(self) -> None:
        self._released = True
        self._call.cancel()
        self._thread.join(timeout=5.0)
