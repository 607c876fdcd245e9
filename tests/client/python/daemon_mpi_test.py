"""Channel mpi: owners and trainers in one MPI job."""

import subprocess
import sys

import conftest
import numpy as np
import pytest

pytest.importorskip("mpi4py", reason="mpi4py is not installed")

# Trains a few steps; writes what it ends with to OUT. Arguments: address, channel, trainer, out.
TRAINER = """
import sys, dmuond, numpy
address, channel, trainer, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
if channel == "auto":
    from mpi4py import MPI
rng = numpy.random.default_rng(0)
shapes = {"w": (40, 30), "e": (500, 300), "b": (7,)}
arrays = {name: rng.normal(size=shape).astype("f") for name, shape in shapes.items()}
spec = {"max_grad_norm": 1.0, "parameters": [
    {"name": "w", "shape": [40, 30], "view": {"split_cols": [10, 20]}},
    {"name": "e", "shape": [500, 300], "rule": "adamw"}, {"name": "b", "shape": [7]}]}
regions = {"e": ((0, 0), (200, 300)) if trainer == 0 else ((200, 0), (300, 300)),
           "w": ((0, 0), (40, 4)) if trainer == 0 else ((0, 4), (40, 26))}
def cut(values):
    return {name: numpy.ascontiguousarray(values[name][tuple(
        slice(a, a + e) for a, e in zip(*regions[name]))]) if name in regions else values[name]
        for name in values}
arrays = cut(arrays)
with dmuond.Session.open(spec, trainer=trainer, trainers=2, parameters=arrays, regions=regions,
                         address=address, channel=channel) as session:
    for _ in range(3):
        session.begin_step()
        gradients = cut({name: rng.normal(size=s).astype("f") for name, s in shapes.items()})
        session.push_all({name: 9 * g for name, g in gradients.items()}, final=False)
        session.push_all(gradients)
        assert session.step().committed
numpy.savez(out, channel=session.channel, **arrays)
FAILURE
"""


def write_trainer(tmp_path, failure=""):
    program = tmp_path / "trainer.py"
    program.write_text(TRAINER.replace("FAILURE", failure))
    return program


def run_job(build, program, tmp_path, channel):
    """Two owners and two trainers in one mpirun."""
    address = f"unix:{tmp_path}/{channel}.sock"
    command = [*conftest.MPIRUN, "-np", "2", build / "bin/dmuond", "--address", address,
               "--exit-after-session"]
    for trainer in range(2):
        command += [":", "-np", "1", sys.executable, program, address, channel, str(trainer),
                    tmp_path / f"{channel}{trainer}.npz"]
    return subprocess.run(command, capture_output=True, text=True, env=conftest.ENVIRONMENT,
                          timeout=120)


def test_is_bitwise_what_channel_grpc_computes(build, daemon, tmp_path):
    program = write_trainer(tmp_path)
    for channel in ("mpi", "auto"):
        result = run_job(build, program, tmp_path, channel)
        assert result.returncode == 0, result.stdout + result.stderr
    trainers = [
        subprocess.Popen([sys.executable, program, daemon.address, "grpc", str(trainer),
                          tmp_path / f"grpc{trainer}.npz"]) for trainer in range(2)]
    assert [trainer.wait(timeout=60) for trainer in trainers] == [0, 0]
    for trainer in range(2):
        expected = np.load(tmp_path / f"grpc{trainer}.npz")
        for channel in ("mpi", "auto"):
            got = np.load(tmp_path / f"{channel}{trainer}.npz")
            assert got["channel"] == "mpi"
            for name in ("w", "e", "b"):
                assert got[name].tobytes() == expected[name].tobytes(), (channel, trainer, name)


def test_an_exception_in_one_trainer_ends_the_job(build, tmp_path):
    failure = "if trainer == 1: raise RuntimeError('boom')\nMPI = __import__('mpi4py.MPI').MPI\n"
    failure += "MPI.COMM_WORLD.Recv(numpy.zeros(1), 0, 99)  # waits for ever"
    result = run_job(build, write_trainer(tmp_path, failure), tmp_path, "mpi")
    assert result.returncode != 0
    assert "ends with an unhandled exception: ending the MPI job" in result.stderr
