"""What Session refuses by itself. Sessions with a daemon are tested in tests/mpi and tests/e2e."""

import os
import subprocess
import sys

import dmuond
import numpy as np
import pytest

SPEC = {"parameters": [{"name": "w", "shape": [2, 2]}]}


def open_session(tmp_path, **changes):
    options = {"trainer": 0, "trainers": 1, "parameters": {"w": np.zeros((2, 2), np.float32)},
               "address": f"unix:{tmp_path}/none.sock", "connect_timeout": 0.2, **changes}
    return dmuond.Session.open(SPEC, **options)


def test_nobody_at_the_address(tmp_path):
    with pytest.raises(dmuond.DaemonUnavailable, match=r"no dmuond answers at unix:.*none\.sock"):
        open_session(tmp_path)


@pytest.mark.parametrize("changes, words", [
    ({"trainer": 2}, "trainer 2 of 1"),
    ({"trainer": -1}, "trainer -1 of 1"),
    ({"channel": "grcp"}, "channel 'grcp'.*did you mean 'grpc'"),
    ({"contribution": "full"}, "contribution 'full': must be one of partial, replica"),
    ({"parameters": {}}, "'w' of the session spec was not given"),
])
def test_refuses_bad_arguments_before_it_connects(tmp_path, changes, words):
    with pytest.raises(dmuond.InvalidArgument, match=words):
        open_session(tmp_path, **changes)


def test_errors_are_also_the_standard_ones():
    assert issubclass(dmuond.InvalidArgument, ValueError)
    assert issubclass(dmuond.TimedOut, TimeoutError)
    assert issubclass(dmuond.DaemonUnavailable, ConnectionError)


def test_importing_loads_neither_mpi_nor_torch():
    code = "import sys, dmuond; print(sorted({'mpi4py', 'torch'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                            check=True)
    assert result.stdout.strip() == "[]"


def test_channel_mpi_alone_says_how_to_start():
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    code = ("import dmuond, numpy\n"
            f"dmuond.Session.open({SPEC!r}, trainer=0, trainers=1, channel='mpi',\n"
            "    parameters={'w': numpy.zeros((2, 2), numpy.float32)})")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                            env=dict(os.environ))
    assert result.returncode == 1
    assert "no rank of this MPI job is a dmuond owner" in result.stderr, result.stderr
