"""Starts owners and trainers as one MPI job and runs a set of cases in it; exits with its code."""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

LIMIT_SECONDS = 240


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="folder of dmuond")
    parser.add_argument("--python", required=True, help="folder of the dmuond package")
    parser.add_argument("--results", required=True)
    parser.add_argument("--owners", type=int, required=True)
    parser.add_argument("--trainers", type=int, required=True)
    parser.add_argument("--cases", required=True, help="a module beside this file")
    options = parser.parse_args()

    pathlib.Path(options.results).mkdir(parents=True, exist_ok=True)
    result = pathlib.Path(options.results,
                          f"{options.cases}-{options.owners}-{options.trainers}.npz")
    result.unlink(missing_ok=True)
    here = pathlib.Path(__file__).parent
    with tempfile.TemporaryDirectory(prefix="dmuon-") as folder:
        address = f"unix:{folder}/d.sock"
        command = ["mpirun", "--oversubscribe", "--bind-to", "none"]
        if os.getuid() == 0:
            command.append("--allow-run-as-root")
        command += ["-np", str(options.owners), f"{options.bin}/dmuond", "--address", address,
                    "--threads", "1", ":",
                    "-np", str(options.trainers), sys.executable, str(here / "trainer.py"),
                    "--address", address, "--owners", str(options.owners), "--cases", options.cases,
                    "--result", str(result)]
        environment = dict(os.environ, PYTHONPATH=f"{options.python}:{here}", OMP_NUM_THREADS="1",
                           OPENBLAS_NUM_THREADS="1")
        job = subprocess.Popen(command, env=environment, start_new_session=True)
        try:
            code = job.wait(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGTERM)
            job.wait()
            print(f"the job did not end within {LIMIT_SECONDS} s", file=sys.stderr)
            return 1
        if os.path.exists(f"{folder}/d.sock"):
            print("the socket was left behind", file=sys.stderr)
            return 1
    if code == 0 and not result.exists():
        print("no results were written", file=sys.stderr)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
