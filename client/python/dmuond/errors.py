"""What goes wrong, as exception classes. A message is one line: thing, cause, what to do."""

from __future__ import annotations


class Error(Exception):
    """Anything that this package raises on purpose."""


class InvalidArgument(Error, ValueError):
    """A value that is refused before it changes anything, by this client or by the daemon."""


class StateError(Error, RuntimeError):
    """A call that comes at the wrong time, for example a push before begin_step."""


class NotFound(Error, LookupError):
    """The daemon does not know the session or the trainer (any more)."""


class AlreadyAttached(Error):
    """The trainer number is in use, or the daemon runs another session."""


class TimedOut(Error, TimeoutError):
    """A wait that ran out; the message names who or what is missing."""


class SessionFailed(Error):
    """The session cannot go on, for example because another trainer died."""


class DaemonUnavailable(Error, ConnectionError):
    """Nobody answers at the daemon's address, or the daemon has ended."""


class ProtocolError(Error):
    """Daemon and client disagree about bytes: their versions do not fit, or data was damaged."""


class StepAborted(Error):
    """A step that did not happen: the state is as before, the same step number is repeated.

    `report` is the step's StepReport. The session stays usable: begin_step repeats the step.
    """

    def __init__(self, report):
        super().__init__(f"step {report.step} was aborted: {report.reason}")
        self.report = report
