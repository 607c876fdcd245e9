"""A quickstart under test, and everything that it has started."""

import os
import pathlib
import signal
import subprocess
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "deploy/quickstart.sh"
MARK = "DMUON_TEST_MARK"


class Quickstart:
    """A quickstart with its own temporary folder; finds every process that it has started."""

    def __init__(self, folder, build):
        self.out = folder / "out"
        self.scratch = pathlib.Path(f"/tmp/q-{uuid.uuid4().hex[:8]}")
        self.scratch.mkdir()
        self._mark = uuid.uuid4().hex
        self._build = build
        self._cwd = folder
        self.process = None
        self.log = folder / "stdout"

    def start(self, *options):
        environment = {**os.environ, MARK: self._mark, "TMPDIR": str(self.scratch)}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [QUICKSTART, "--skip-install", "--build", self._build, "--out", self.out, *options],
                env=environment, cwd=self._cwd, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True)

    def finish(self, seconds=240):
        """(exit code, output)"""
        code = self.process.wait(seconds)
        return code, self.log.read_text(encoding="utf-8")

    def run(self, *options, seconds=240):
        self.start(*options)
        return self.finish(seconds)

    def processes(self):
        """pid to command line, of everything that carries this test's mark."""
        found = {}
        wanted = f"{MARK}={self._mark}".encode()
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue  # it has just ended
        return found

    def wait_for_training(self, optimizer="dmuond", seconds=120):
        wait_for(lambda: f"{optimizer}  step" in self.log.read_text(encoding="utf-8"), seconds,
                 self.log)

    def assert_nothing_left(self):
        wait_for(lambda: not self.processes(), 10, self.log)
        assert list(self.scratch.iterdir()) == []

    def clean_up(self):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        subprocess.run(["rm", "-rf", self.scratch], check=True)


def wait_for(condition, seconds, log):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain:\n{log.read_text()}"
        time.sleep(0.05)
