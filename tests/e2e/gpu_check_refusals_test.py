"""deploy/gpu-check.sh where it cannot run: exit code 2 and one sentence, before anything is built.

The PATH holds only what each case says, so that it makes no difference what this machine has.
"""

import os
import pathlib
import shutil
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "deploy/gpu-check.sh"
BASICS = ["bash", "cat", "dirname", "grep", "realpath", "sed", "timeout", "awk", "head", "sort",
          "c++", "mktemp"]

WORKING_GPU = """
case $1 in
  *compute_cap) echo 9.0 ;;
  *) echo "NVIDIA H200, 580.65.06" ;;
esac"""


@pytest.fixture
def run(tmp_path):
    def run_script(programs, *options):
        folder = tmp_path / "bin"
        folder.mkdir()
        for name in BASICS:
            (folder / name).symlink_to(shutil.which(name))
        for name, text in {"make": "exit 1", **programs}.items():
            (folder / name).write_text("#!/bin/sh\n" + text, encoding="utf-8")
            (folder / name).chmod(0o755)
        environment = {**os.environ, "PATH": str(folder), "CUDA_HOME": str(tmp_path / "no-cuda")}
        return subprocess.run([SCRIPT, *options], env=environment, cwd=tmp_path, text=True,
                              capture_output=True, timeout=60, check=False)

    return run_script


@pytest.mark.parametrize("programs, options, cause", [
    ({}, [], "no nvidia-smi on the PATH, so no NVIDIA driver: use a machine with a GPU, or --cpu"),
    ({"nvidia-smi": "echo No devices were found; exit 6"}, [],
     "nvidia-smi finds no working GPU: No devices were found; check the driver, or use --cpu"),
    ({"nvidia-smi": WORKING_GPU}, [], "no nvcc on the PATH and none at "),
    ({}, ["--cpu"], "no cmake on the PATH: install it"),
    ({"cmake": "echo cmake version 3.16.3"}, ["--cpu"], "cmake 3.16.3 is older than 3.22: install"),
    ({}, ["--report"], "--report needs a value"),
    ({}, ["--gpu"], "unknown option '--gpu'"),
    ({}, ["--bundle", "x.tar.gz", "--googletest", "nowhere"], "holds no GoogleTest sources"),
])
def test_says_why_it_cannot_run(run, tmp_path, programs, options, cause):
    result = run(programs, *options)
    assert result.returncode == 2, result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("gpu-check.sh: cannot run here: ")
    assert cause in last
    assert not (tmp_path / "x.tar.gz").exists()
