"""The C example against real owners; the same toy in Python must end at the same loss."""

import re
import subprocess

import conftest
import dmuond
import numpy as np

STEPS = 100


def final_loss(output):
    return re.search(r"final loss (\S+)", output).group(1)


def train_in_python(address):
    w = np.zeros((8, 16), np.float32)
    target = ((np.arange(128) * 37 % 64 - 32) / 32).astype(np.float32).reshape(8, 16)
    spec = {"groups": {"muon": {"lr": 0.1, "scale": "original", "momentum": 0.9}},
            "parameters": [{"name": "w", "shape": [8, 16]}]}
    with dmuond.Session.open(spec, trainer=0, trainers=1, parameters={"w": w},
                             address=address) as session:
        for i in range(STEPS):
            session.begin_step({"muon": {"lr": 0.1 * (STEPS - i) / STEPS}})
            session.push("w", 2 * (w - target))
            session.step()
    return sum(float(d) * float(d) for d in (w - target).ravel())


def test_on_channel_grpc(build, daemon):
    result = subprocess.run([build / "bin/dmuon_example", "0", "1", "grpc", daemon.address],
                            capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert abs(float(final_loss(result.stdout)) - train_in_python(daemon.address)) < 2e-6


def test_on_channel_mpi(build, daemon, tmp_path):
    address = f"unix:{tmp_path}/dmuond.sock"
    command = [*conftest.MPIRUN, "-np", "2", build / "bin/dmuond", "--address", address,
               "--exit-after-session"]
    for trainer in "01":
        command += [":", "-np", "1", build / "bin/dmuon_example", trainer, "2", "mpi", address]
    result = subprocess.run(command, capture_output=True, text=True, env=conftest.ENVIRONMENT,
                            timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("final loss") == 2
    assert abs(float(final_loss(result.stdout)) - train_in_python(daemon.address)) < 2e-6


def test_an_error_is_one_line(build, tmp_path):
    result = subprocess.run([build / "bin/dmuon_example", "3", "2", "grpc", "unix:/none"],
                            capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert result.stderr == "dmuon_example: trainer 3 of 2: trainers are numbered from 0\n"
