"""Options and fixtures of the tests that start real owners."""

import sys

import pytest

from owners import Owners


def pytest_addoption(parser):
    parser.addoption("--bin", required=True, help="folder of dmuond and dmuonctl")


@pytest.fixture
def bin_folder(request):
    return request.config.getoption("--bin")


@pytest.fixture
def start_owners(tmp_path_factory, bin_folder):
    """Starts owners in a folder of their own (short enough for a socket path)."""
    started = []

    def start(count=2, options=(), program=None, folder=None):
        folder = folder or tmp_path_factory.mktemp("o")
        started.append(Owners(bin_folder, folder, count, options, program))
        return started[-1]

    yield start
    for owners in started:
        owners.stop()


@pytest.fixture
def python():
    return sys.executable
