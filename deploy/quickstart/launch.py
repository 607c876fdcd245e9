"""Starts the processes of one training run, waits for them, and leaves none behind."""

import ctypes
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PYTHON = "/usr/bin/python3"  # Debian's: the packages belong to it
READY_SECONDS = 60
LEAVE_SECONDS = 30
PR_SET_PDEATHSIG = 1


class RunFailed(Exception):
    """A process of the run failed. The text names it and its log."""


@dataclasses.dataclass(frozen=True)
class Options:
    steps: int
    out: pathlib.Path
    owners: int = 2
    trainers: int = 2
    channel: str = "grpc"
    build: pathlib.Path = ROOT / "build/release"
    training: tuple = ()  # further arguments for train.py


def run(optimizer, options):
    """Trains once with `optimizer` ("dmuond" or "adamw"); records and logs go to options.out.

    Raises RunFailed. Whatever happens, the run's processes, socket and temporary files are gone
    when this returns.
    """
    options.out.mkdir(parents=True, exist_ok=True)
    for old in options.out.glob("trainer-*.jsonl"):  # an earlier run may have had more trainers
        old.unlink()
    scratch = _scratch_folder()
    try:
        with _Processes(options.out, _environment(options, scratch)) as processes:
            if optimizer == "adamw":
                _run_adamw(processes, options, scratch)
            elif options.channel == "mpi":
                _run_in_one_mpi_job(processes, options, scratch)
            else:
                _run_beside_owners(processes, options, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _scratch_folder():
    """A new folder for sockets and MPI's files; its path leaves room for a socket's 107 bytes."""
    parent = tempfile.gettempdir()
    if len(parent) > 60:
        parent = "/tmp"
    return pathlib.Path(tempfile.mkdtemp(prefix="dmuon-", dir=parent))


def _run_adamw(processes, options, scratch):
    for trainer in range(options.trainers):
        processes.start(f"trainer-{trainer}",
                        _trainer_command("adamw", options, "--trainer", str(trainer),
                                         "--rendezvous", str(scratch / "rendezvous")))
    processes.wait_for_all()


def _run_beside_owners(processes, options, scratch):
    socket = scratch / "dmuond.sock"
    owners = processes.start("owners", _mpirun(scratch) + _owner_command(options, socket))
    processes.wait_for_line(owners, "dmuond ready")
    for trainer in range(options.trainers):
        processes.start(f"trainer-{trainer}",
                        _trainer_command("dmuond", options, "--trainer", str(trainer),
                                         "--address", f"unix:{socket}", "--channel", "grpc"))
    processes.wait_for_all()


def _run_in_one_mpi_job(processes, options, scratch):
    socket = scratch / "dmuond.sock"
    job = _mpirun(scratch) + _owner_command(options, socket)
    for trainer in range(options.trainers):
        job += [":", "-np", "1", *_trainer_command(
            "dmuond", options, "--trainer", str(trainer), "--address", f"unix:{socket}",
            "--channel", "mpi")]
    processes.start("job", job)
    processes.wait_for_all()


def _mpirun(scratch):
    # More ranks than cores is normal here, and owners and trainers take turns on the cores. Shared
    # memory lies in the scratch folder, which is removed also when mpirun is killed.
    command = ["mpirun", "--oversubscribe", "--bind-to", "none",
               "--mca", "btl_vader_backing_directory", str(scratch)]
    return command + ["--allow-run-as-root"] if os.geteuid() == 0 else command


def _owner_command(options, socket):
    threads = max(1, _cores() // options.owners)
    return ["-np", str(options.owners), str(options.build / "bin/dmuond"),
            "--config", str(HERE.parent / "dmuond.toml"), "--address", f"unix:{socket}",
            "--threads", str(threads), "--exit-after-session"]


def _trainer_command(optimizer, options, *more):
    threads = max(1, _cores() // options.trainers)
    return [PYTHON, str(HERE / "train.py"), "--optimizer", optimizer, "--out", str(options.out),
            "--trainers", str(options.trainers), "--steps", str(options.steps),
            "--threads", str(threads), *options.training, *more]


def _environment(options, scratch):
    threads = str(max(1, _cores() // options.trainers))
    search = [str(options.build / "python")] + os.environ.get("PYTHONPATH", "").split(":")
    # Gloo's interface: all trainers are on this machine.
    return {"GLOO_SOCKET_IFNAME": "lo", **os.environ,
            "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads,
            "PYTHONPATH": ":".join(filter(None, search)), "TMPDIR": str(scratch)}


def _cores():
    return len(os.sched_getaffinity(0))


class _Process:
    def __init__(self, name, command, log, environment):
        self.name = name
        self.log = log
        self.lines = []
        self.seen = threading.Condition()
        # A session of its own: mpirun exits without cleaning up when a second signal follows the
        # first, so that only the launcher may send one, not the terminal too.
        self.popen = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      errors="replace", start_new_session=True,
                                      preexec_fn=_die_with_parent)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        with open(self.log, "w", encoding="utf-8", buffering=1) as log:
            for line in self.popen.stdout:
                log.write(line)
                if line.startswith(("dmuond", "adamw")):  # meant for people
                    print(line, end="", flush=True)
                with self.seen:
                    self.lines = self.lines[-19:] + [line]
                    self.seen.notify_all()
        with self.seen:
            self.seen.notify_all()

    def failure(self, what):
        self._reader.join(timeout=2)
        last = "".join(self.lines)
        return RunFailed(f"{last}{self.name} {what}; its log: {self.log}")


def _die_with_parent():
    """In the child: SIGTERM when the launcher dies, however it dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class _Processes:
    """The processes of a run; leaving the context ends those that still run."""

    def __init__(self, logs, environment):
        self._logs = logs
        self._environment = environment
        self._processes = []

    def __enter__(self):
        return self

    def start(self, name, command):
        process = _Process(name, command, self._logs / f"{name}.log", self._environment)
        self._processes.append(process)
        return process

    def wait_for_line(self, process, text):
        deadline = time.monotonic() + READY_SECONDS
        with process.seen:
            while not any(text in line for line in process.lines):
                if process.popen.poll() is not None:
                    break
                if time.monotonic() > deadline:
                    raise process.failure(f"did not say '{text}' within {READY_SECONDS} s")
                process.seen.wait(0.2)
            else:
                return
        raise process.failure(f"ended with {process.popen.returncode} before '{text}'")

    def wait_for_all(self):
        """Returns when all have ended with 0. Once one has ended, the others have little time."""
        deadline = None
        while True:
            codes = [process.popen.poll() for process in self._processes]
            for process, code in zip(self._processes, codes):
                if code:
                    raise process.failure(_describe(code))
            if all(code == 0 for code in codes):
                return
            if any(code == 0 for code in codes):
                deadline = deadline or time.monotonic() + LEAVE_SECONDS
                if time.monotonic() > deadline:
                    left = next(p for p, code in zip(self._processes, codes) if code is None)
                    raise left.failure(f"still runs {LEAVE_SECONDS} s after another process of "
                                       "the run had finished")
            time.sleep(0.05)

    def __exit__(self, *exception):
        for process in self._processes:
            if process.popen.poll() is None:
                process.popen.terminate()
        deadline = time.monotonic() + 10
        for process in self._processes:
            try:
                process.popen.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.popen.kill()
                process.popen.wait()


def _describe(code):
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def stop_on_signals():
    """Makes SIGTERM, SIGINT and SIGHUP leave through every `with` and `finally`."""

    def leave(number, _frame):
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, leave)
