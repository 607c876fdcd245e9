"""A training job inside the daemon, as one trainer sees it."""

from __future__ import annotations

import concurrent.futures
import logging
import os
import socket
import weakref

import numpy as np

from dmuond import control, errors, message
from dmuond._generated import control_pb2
from dmuond.attach import Attachment, attach
from dmuond.parameters import load_spec, match_parameters, suggest
from dmuond.report import StepReport, report_from

_GROUP_VALUES = ("lr", "weight_decay", "momentum", "betas")
_log = logging.getLogger("dmuond")


class Session:
    """One trainer's part of a session. Use it from one thread, in the process that opened it.

    A step is begin_step, any number of push and absent, then step, which returns when the arrays
    given to `open` hold the updated values. `close` leaves the session; as a context manager, an
    exception inside the block leaves without a goodbye, so that the daemon reports the loss.
    """

    def __init__(self, connection, parameters, attachment: Attachment):
        """Use Session.open."""
        self._connection = connection
        self._parameters = parameters
        self._attachment = attachment
        self._buckets = attachment.buckets
        self._channel = attachment.channel
        self._lease = attachment.lease
        self._senders = concurrent.futures.ThreadPoolExecutor(
            self._channel.send_threads, thread_name_prefix="dmuond-sender")
        self._sending: dict[int, concurrent.futures.Future] = {}
        self._generation: int | None = None  # of the open step
        self._pushed: dict[str, bool] = {}   # in the open step: name to final
        self._absent: set[str] = set()
        self.next_step: int = attachment.next_step
        self._closer = weakref.finalize(
            self, _leave_at_exit, connection, self._lease, self._channel, self._senders,
            attachment.session, attachment.trainer)

    @classmethod
    def open(cls, spec, *, trainer: int, trainers: int, parameters: dict[str, np.ndarray],
             address: str | None = None, channel: str = "auto", contribution: str = "partial",
             regions: dict | None = None, host_id: str | None = None,
             step_timeout: float | None = None, resume: bool = False,
             connect_timeout: float = 60.0, start_timeout: float = 600.0) -> Session:
        """Opens or joins the daemon's session; returns when all `trainers` are there.

        spec: the session spec, a dict or JSON text. trainer: this one's number, 0 to trainers-1.
        parameters: name to C-contiguous array of this trainer's region (the whole parameter, or
        `regions[name] = (start, extent)` in elements). They hold the values that training starts
        from, equal on all trainers, and updated values are written into them. float32, float16, or
        uint16 bit patterns for bf16, as the spec says. contribution: "partial" (gradients are still
        to be reduced over the trainers, by the spec's `reduce`) or "replica" (all trainers push the
        same, already reduced ones). address: gRPC address of the daemon, by default this user's
        Unix socket. channel: "auto", "grpc" or "mpi". host_id: names the node for the reduction
        tree, by default the host name. resume: join a session that already runs, after this trainer
        was lost. Times are in seconds; step_timeout None is the daemon's.
        Raises a dmuond.Error; InvalidArgument before anything was sent or changed.
        """
        text, entries = load_spec(spec)
        if not 0 <= trainer < trainers:
            raise errors.InvalidArgument(
                f"trainer {trainer} of {trainers}: trainers are numbered 0 to {trainers - 1}")
        matched = match_parameters(entries, parameters, regions)
        request = control_pb2.AttachRequest(
            trainer=trainer, host_id=host_id or socket.gethostname(), pid=os.getpid(),
            channel=_enumerator("CHANNEL", channel, ("auto", "grpc", "mpi")),
            contribution=_enumerator("CONTRIBUTION", contribution, ("partial", "replica")))
        opening = control_pb2.OpenSessionRequest(
            spec_json=text, trainers=trainers, step_timeout_s=step_timeout or 0.0,
            resume=resume)
        connection, attachment = attach(
            address or control.default_address(), opening, request, matched, connect_timeout)
        session = cls(connection, matched, attachment)
        try:
            session._start(start_timeout)
        except BaseException:
            session._end(goodbye=False)
            raise
        return session

    def _start(self, start_timeout: float) -> None:
        """Gives the daemon the initial values, or takes its values when it already has some."""
        if self._attachment.resumed:
            _log.info("session %d resumes at step %d", self._attachment.session, self.next_step)
            self._receive(self._attachment.generation)
            return
        for parameter in self._parameters.values():
            bits = parameter.bits_of(parameter.array, "parameter")
            for bucket, entry in parameter.places:
                bucket.stage(entry, bits, final=True)
        for bucket in self._buckets:
            self._send(bucket, message.KIND_INITIAL, True, self._attachment.generation)
        self._drain_sends()
        request = control_pb2.WaitReadyRequest(
            session=self._attachment.session, trainer=self._attachment.trainer)
        reply = self._connection.wait(
            self._connection.control.WaitReady, request, "waiting for all trainers", self._lease,
            start_timeout)
        self.next_step = reply.next_step

    @property
    def resumed(self) -> bool:
        """Whether the daemon already had the parameters: they were read, not written, at open."""
        return self._attachment.resumed

    @property
    def channel(self) -> str:
        """The data channel in use, "grpc" or "mpi"."""
        return self._attachment.channel_name

    def begin_step(self, groups: dict[str, dict] | None = None, grad_scale: float = 1.0) -> int:
        """Starts the next step; returns its number. All trainers must pass equal values.

        groups: group name to any of lr, weight_decay, momentum, betas; others keep the spec's.
        grad_scale: pushed gradients are divided by it.
        """
        self._require_open("begin_step")
        if self._generation is not None:
            raise errors.StateError(f"step {self.next_step} is open: call step() before the next")
        if not grad_scale > 0:
            raise errors.InvalidArgument(f"grad_scale {grad_scale}: must be positive")
        request = control_pb2.BeginStepRequest(
            session=self._attachment.session, trainer=self._attachment.trainer, step=self.next_step,
            groups=[_group_values(name, values) for name, values in (groups or {}).items()],
            grad_scale=grad_scale)
        what = f"begin of step {self.next_step}"
        self._lease.check(what)
        reply = self._connection.call(self._connection.control.BeginStep, request, what)
        self._pushed, self._absent = {}, set()
        for bucket in self._buckets:
            bucket.begin_step()
        self._generation = reply.generation
        return self.next_step

    def push(self, name: str, gradient: np.ndarray, final: bool = True) -> None:
        """Hands over one parameter's gradient, of the shape and dtype of its array; it is copied.

        Buckets leave in the background as they fill up. A push that is not final (of a micro-batch)
        is replaced by the next push of the same parameter and starts no work.
        """
        self._stage(name, self._checked_bits(name, gradient), final)

    def push_all(self, gradients: dict[str, np.ndarray | None], final: bool = True) -> None:
        """push for each item, all checked before the first is sent; None: it is absent."""
        checked = {name: None if gradient is None else self._checked_bits(name, gradient)
                   for name, gradient in gradients.items()}
        for name, bits in checked.items():
            if bits is None:
                self.absent(name)
            else:
                self._stage(name, bits, final)

    def absent(self, name: str) -> None:
        """Declares that the parameter has no gradient in this step: no update, no decay."""
        parameter = self._parameter(name)
        if name in self._pushed:
            raise errors.StateError(
                f"parameter '{name}' cannot be absent: its gradient was pushed in this step")
        if name in self._absent:
            return
        self._absent.add(name)
        for bucket, entry in parameter.places:
            self._finish_send(bucket)
            bucket.declare_absent(entry)
            self._send_if_complete(bucket)

    def step(self) -> StepReport:
        """Ends the step and waits for it; then the arrays hold the updated values.

        Parameters neither pushed nor declared are absent. The last push of each counts, final or
        not. Raises StepAborted when the step did not happen; then begin_step repeats it.
        """
        self._require_step("step")
        generation, what = self._generation, f"step {self.next_step}"
        for bucket in self._buckets:
            if not bucket.sent_final:
                self._finish_send(bucket)
                self._send(bucket, message.KIND_GRADIENT, True, generation)
        self._drain_sends()
        absent = [p.index for name, p in self._parameters.items() if name not in self._pushed]
        self._connection.call(
            self._connection.control.SealStep,
            control_pb2.SealStepRequest(absent=absent, **self._ids(generation)), f"seal of {what}")
        return self._finish_step()

    def _ids(self, generation: int) -> dict[str, int]:
        return {"session": self._attachment.session, "trainer": self._attachment.trainer,
                "generation": generation}

    def _finish_step(self) -> StepReport:
        """Waits for the step's end and takes what was published. Raises StepAborted."""
        generation = self._generation
        report = report_from(self._connection.wait(
            self._connection.control.WaitStep,
            control_pb2.WaitStepRequest(**self._ids(generation)), f"step {self.next_step}",
            self._lease))
        self._generation = None
        self.next_step = report.next_step
        concurrent.futures.wait(self._sending.values())
        self._sending.clear()
        if report.committed:
            self._receive(generation)
        if report.outcome == "aborted":
            raise errors.StepAborted(report)
        return report

    def wait(self, name: str) -> np.ndarray:
        """The parameter's array, holding what the last step published."""
        self._connection.check_process()
        return self._known(name).array

    def wait_all(self) -> dict[str, np.ndarray]:
        """All arrays by name, holding what the last step published."""
        self._connection.check_process()
        return {name: parameter.array for name, parameter in self._parameters.items()}

    def close(self) -> None:
        """Leaves the session. Calling it again does nothing."""
        self._connection.check_process()
        self._end(goodbye=True)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind, value, traceback) -> None:
        self._end(goodbye=kind is None)

    def _end(self, goodbye: bool) -> None:
        finalizer = self._closer.detach()
        if finalizer:
            _leave(*finalizer[2], goodbye=goodbye)

    def _known(self, name: str):
        if name not in self._parameters:
            raise errors.InvalidArgument(
                f"'{name}' is not a parameter of this session{suggest(name, self._parameters)}")
        return self._parameters[name]

    def _parameter(self, name: str):
        """A parameter that is about to be pushed or declared absent."""
        self._require_step(f"gradient of '{name}'")
        return self._known(name)

    def _checked_bits(self, name: str, gradient) -> np.ndarray:
        parameter = self._parameter(name)
        if name in self._absent or self._pushed.get(name):
            raise errors.StateError(
                f"gradient of '{name}': already {'absent' if name in self._absent else 'final'} in "
                f"step {self.next_step}: pass final=False on all pushes but the last")
        return parameter.bits_of(gradient, "gradient of")

    def _stage(self, name: str, bits: np.ndarray, final: bool) -> None:
        self._pushed[name] = final
        for bucket, entry in self._parameters[name].places:
            self._finish_send(bucket)
            bucket.stage(entry, bits, final)
            self._send_if_complete(bucket)

    def _require_open(self, what: str) -> None:
        self._connection.check_process()
        if not self._closer.alive:
            raise errors.StateError(f"{what}: this session is closed")

    def _require_step(self, what: str) -> None:
        self._require_open(what)
        if self._generation is None:
            raise errors.StateError(f"{what}: no step is open: call begin_step first")

    def _send_if_complete(self, bucket) -> None:
        if bucket.complete():
            self._send(bucket, message.KIND_GRADIENT, bucket.final(), self._generation)

    def _send(self, bucket, kind: int, final: bool, generation: int) -> None:
        if not bucket.payload_bytes:  # this trainer holds nothing of it
            return
        data = bucket.seal(kind, final, self._attachment.session, generation,
                           self._attachment.trainer)
        self._sending[bucket.number] = self._senders.submit(self._channel.send, bucket, data)

    def _finish_send(self, bucket) -> None:
        """Waits until the bucket's buffer is free; raises what its send raised, or StepAborted."""
        future = self._sending.pop(bucket.number, None)
        if future is None:
            return
        try:
            future.result()
        except errors.SessionFailed:
            if self._generation is None:
                raise
            # The step may have ended without us: then its report says why, else this raises.
            self._finish_step()
            raise

    def _drain_sends(self) -> None:
        for bucket in self._buckets:
            self._finish_send(bucket)

    def _receive(self, generation: int) -> None:
        """Writes published values into the arrays."""
        self._channel.receive(self._buckets, generation)
        flats = [p.bits_of(p.array, "parameter") for p in self._parameters.values()]
        for bucket in self._buckets:
            if bucket.payload_bytes:
                bucket.unpack(flats)
        for parameter, flat in zip(self._parameters.values(), flats):
            parameter.write_back(flat)


def _enumerator(prefix: str, word: str, allowed) -> int:
    if word not in allowed:
        raise errors.InvalidArgument(
            f"{prefix.lower()} '{word}': must be one of {', '.join(allowed)}"
            f"{suggest(word, allowed)}")
    return getattr(control_pb2, f"{prefix}_{word.upper()}")


def _group_values(group: str, values: dict):
    for key in values:
        if key not in _GROUP_VALUES:
            raise errors.InvalidArgument(
                f"group '{group}': '{key}' cannot change between steps, only "
                f"{', '.join(_GROUP_VALUES)} can{suggest(key, _GROUP_VALUES)}")
    plain = {key: float(value) for key, value in values.items() if key != "betas"}
    if "betas" in values:
        plain["beta1"], plain["beta2"] = (float(beta) for beta in values["betas"])
    return control_pb2.GroupValues(group=group, **plain)


def _leave_at_exit(*attached) -> None:
    """When the interpreter ends (or drops the session): a goodbye, unless an exception ended it."""
    _leave(*attached, goodbye=not control.ends_by_exception())


def _leave(connection, lease, channel, senders, session: int, trainer: int,
           goodbye: bool) -> None:
    """Ends this trainer's part. Without a goodbye the daemon reports that the trainer died."""
    if connection.is_foreign():
        return
    if goodbye and not lease.broken:
        request = control_pb2.DetachRequest(session=session, trainer=trainer)
        try:
            connection.call(connection.control.Detach, request, "leaving the session", 10.0)
        except errors.Error as error:
            _log.warning("%s", error)
    lease.release()
    senders.shutdown(wait=False, cancel_futures=True)
    channel.close()
    connection.close()
