"""Owner processes for tests: started with mpirun, looked after, checked for what they leave."""

import os
import pathlib
import signal
import subprocess
import time

READY_SECONDS = 60


class Owners:
    """`mpirun -np count dmuond`, alone or with trainers in the same job."""

    def __init__(self, bin_folder, folder, count=2, options=(), program=None):
        """`program`: (ranks, argv, environment) of a second program in the job."""
        self.folder = pathlib.Path(folder)
        self.socket = self.folder / "d.sock"
        self.address = f"unix:{self.socket}"
        self.log_path = self.folder / f"owners-{len(list(self.folder.glob('*.log')))}.log"
        command = ["mpirun", "--oversubscribe", "--bind-to", "none"]
        if os.getuid() == 0:
            command.append("--allow-run-as-root")
        command += ["-np", str(count), f"{bin_folder}/dmuond", "--address", self.address,
                    "--threads", "1", *options]
        environment = dict(os.environ)
        if program:
            ranks, argv, extra = program
            command += [":", "-np", str(ranks), *argv]
            environment.update(extra)
        self.shm_before = set(os.listdir("/dev/shm"))
        self._log = self.log_path.open("ab")
        self.job = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT,
                                    env=environment, start_new_session=True)
        self._wait_until_ready()
        self.pids = self._find_owners()
        assert len(self.pids) == count, self.pids

    def _wait_until_ready(self):
        deadline = time.monotonic() + READY_SECONDS
        while "dmuond ready" not in self.log():
            assert self.job.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def _find_owners(self):
        """Process ids of the owners, by rank."""
        ranks = {}
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or os.readlink(entry / "exe").rsplit("/", 1)[1] != "dmuond":
                    continue
                if self.address.encode() not in (entry / "cmdline").read_bytes():
                    continue
                environment = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            for word in environment:
                if word.startswith(b"OMPI_COMM_WORLD_RANK="):
                    ranks[int(word.split(b"=")[1])] = int(entry.name)
        return [ranks[rank] for rank in sorted(ranks)]

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def wait(self, seconds=15):
        """The job's exit code; fails when it does not end in time."""
        try:
            return self.job.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job did not end within {seconds} s:\n{self.log()}") from None

    def check_nothing_is_left(self, socket=False):
        """No owner process, no shared memory; `socket`: whether the socket file may remain."""
        deadline = time.monotonic() + 5  # mpirun's own helpers end a moment after it
        while time.monotonic() < deadline:
            processes = self._find_owners()
            memory = set(os.listdir("/dev/shm")) - self.shm_before
            if not processes and not memory:
                break
            time.sleep(0.05)
        assert not processes, processes
        assert not memory, memory
        assert socket or not self.socket.exists()

    def stop(self):
        """Ends the job whatever state it is in."""
        if self.job.poll() is None:
            for pid in self.pids:
                try:
                    os.kill(pid, signal.SIGCONT)
                except ProcessLookupError:
                    pass
            os.killpg(self.job.pid, signal.SIGTERM)
            try:
                self.job.wait(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(self.job.pid, signal.SIGKILL)
                self.job.wait()
        self._log.close()
