"""A real daemon for the tests that need one: `--build` says where its programs are."""

import os
import pathlib
import subprocess
import time

import pytest

READY_SECONDS = 60
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
MPIRUN = ["mpirun", "--oversubscribe", "--mca", "btl_vader_single_copy_mechanism", "none"]


def pytest_addoption(parser):
    parser.addoption("--build", default=None, help="the build folder whose programs are tested")


def wait_for(condition, what, seconds=READY_SECONDS):
    """Polls until `condition()` is true; its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.02)
    return value


class Daemon:
    """`mpirun -np owners dmuond` on a socket of its own."""

    def __init__(self, build, folder, owners, *flags):
        self.address = f"unix:{folder}/dmuond.sock"
        self.log = folder / "dmuond.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*MPIRUN, "-np", str(owners), build / "bin/dmuond", "--address", self.address,
                 *flags], stdout=log, stderr=subprocess.STDOUT, env=ENVIRONMENT)
        wait_for(lambda: self.says("dmuond ready"), "dmuond ready")

    def says(self, text):
        assert self.process.poll() is None or text in self.log.read_text(), self.log.read_text()
        return text in self.log.read_text()

    def owner_pids(self):
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)


@pytest.fixture(scope="session")
def build(request):
    folder = request.config.getoption("--build")
    if folder is None:
        pytest.skip("no --build: which dmuond should be tested?")
    return pathlib.Path(folder)


@pytest.fixture(scope="module")
def daemon(build, tmp_path_factory):
    """Two owners, shared by the tests of a file."""
    one = Daemon(build, tmp_path_factory.mktemp("daemon"), 2)
    yield one
    one.stop()


@pytest.fixture
def own_daemon(build, tmp_path):
    """Two owners for one test, which may harm them."""
    one = Daemon(build, tmp_path, 2)
    yield one
    one.stop()
