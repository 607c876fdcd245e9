#!/usr/bin/env python3
"""Holds a plan's predicted owner times against real owners, and prints both as JSON.

    tests/bench/plan_measured.py --build build/dev [--cache FILE] [--steps 6]

Tunes (unless --cache names a file of dmuonctl tune), plans, then starts owners and one trainer in
one MPI job; the trainer pushes random gradients of the whole list. Exit code 1 when the busiest
owner's median time is further than 15% from the plan's makespan, or the owners' times are further
apart than max/mean 1.10, or the owners' plan is not the one that was printed.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RATIO = (0.85, 1.15)
IMBALANCE = 1.10
LIMIT_SECONDS = 900


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True,
                        help="a build folder: bin/ and python/ are taken from it")
    parser.add_argument("--spec", type=pathlib.Path, default=ROOT / "deploy/models/gpt2-124m.json")
    parser.add_argument("--cache", type=pathlib.Path, help="file of dmuonctl tune; else it runs")
    parser.add_argument("--owners", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each owner")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warm-up", type=int, default=2, help="first steps that do not count")
    parser.add_argument("--trainer", metavar="ADDRESS", help=argparse.SUPPRESS)
    parser.add_argument("--result", type=pathlib.Path, help=argparse.SUPPRESS)  # of the trainer
    options = parser.parse_args()
    if not 0 <= options.warm_up < options.steps:
        parser.error(f"--warm-up {options.warm_up} leaves nothing of --steps {options.steps}")
    return options


def tune(options, cache):
    subprocess.run([options.build / "bin/dmuonctl", "tune", "--spec", options.spec, "--cache", cache,
                    "--threads", str(options.threads), "--owners", str(options.owners)],
                   check=True, stdout=sys.stderr)


def plan(options, cache):
    done = subprocess.run([options.build / "bin/dmuonctl", "plan", "--spec", options.spec,
                           "--profile", cache, "--owners", str(options.owners), "--json"],
                          check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def run_job(options, cache, folder):
    """Owners and a trainer; returns what the trainer saw."""
    address = f"unix:{folder}/d.sock"
    result = pathlib.Path(folder, "trainer.json")
    command = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    if os.getuid() == 0:
        command.append("--allow-run-as-root")
    command += ["-np", str(options.owners), options.build / "bin/dmuond", "--address", address,
                "--device", "cpu", "--threads", str(options.threads), "--tuning", cache,
                "--profile", cache, "--exit-after-session", "--log-level", "warn", ":",
                "-np", "1", sys.executable, __file__, "--build", options.build, "--spec",
                options.spec, "--steps", str(options.steps), "--warm-up", str(options.warm_up),
                "--trainer", address, "--result", result]
    environment = dict(os.environ, PYTHONPATH=str(options.build / "python"), OMP_NUM_THREADS="1",
                       OPENBLAS_NUM_THREADS="1")
    job = subprocess.Popen(command, env=environment, stdout=sys.stderr, start_new_session=True)
    try:
        job.wait(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGTERM)
        job.wait()
        sys.exit(f"owners and trainer did not end within {LIMIT_SECONDS} s")
    if job.returncode != 0:
        sys.exit(f"owners and trainer ended with exit code {job.returncode}")
    return json.loads(result.read_text())


def thread_times(pid):
    """Of each thread: seconds on a core, and seconds in which it waited for one."""
    times = {}
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        running, waiting, _ = (thread / "schedstat").read_text().split()
        times[thread.name] = int(running) / 1e9, int(waiting) / 1e9
    return times


def busiest_thread(before, after):
    """What the thread that ran longest in between ran and waited, in seconds."""
    return max((now[0] - before.get(thread, (0, 0))[0], now[1] - before.get(thread, (0, 0))[1])
               for thread, now in after.items())


def train(options):
    """The trainer: gradients are ready before a step begins, as owners have both cores to share."""
    import numpy as np
    import dmuond
    import grpc
    from dmuond._generated import admin_pb2, admin_pb2_grpc

    spec = json.loads(options.spec.read_text())
    random = np.random.default_rng(1)

    def arrays(scale):
        return {p["name"]: scale * random.standard_normal(p["shape"], np.float32)
                for p in spec["parameters"]}

    reports = []
    with dmuond.Session.open(spec, trainer=0, trainers=1, parameters=arrays(0.02),
                             address=options.trainer, channel="mpi") as session:
        channel = grpc.insecure_channel(options.trainer, options=(("grpc.enable_http_proxy", 0),))
        status = admin_pb2_grpc.AdminStub(channel).Status(admin_pb2.StatusRequest(), timeout=60)
        channel.close()
        gradients = arrays(1e-3)
        for _ in range(options.steps):
            pids = [owner.pid for owner in status.owners]
            before = [thread_times(pid) for pid in pids]
            session.begin_step()
            session.push_all(gradients)
            report = session.step()
            assert report.committed, report
            reports.append({"owner_compute_s": report.owner_compute_s,
                            "busiest_owner_s": report.busiest_owner_s,
                            "threads": [busiest_thread(then, thread_times(pid))
                                        for then, pid in zip(before, pids)]})
    options.result.write_text(
        json.dumps({"plan_hash": status.sessions[0].plan_hash, "steps": reports}))


def compare(options, predicted, measured):
    counted = measured["steps"][options.warm_up:]
    owners = [step["owner_compute_s"] for step in counted]
    busiest = statistics.median(step["busiest_owner_s"] for step in counted)
    return {
        "makespan_s": predicted["makespan_s"],
        "busiest_s": busiest,
        "ratio": busiest / predicted["makespan_s"],
        "imbalance": statistics.median(max(times) * len(times) / sum(times) for times in owners),
        "owner_s": [statistics.median(times) for times in zip(*owners)],
        "planned_owner_s": [load["seconds"] for load in predicted["loads"]],
        "planned_elementwise_s": [load["elementwise_s"] for load in predicted["loads"]],
        # With one thread per owner. The compute thread publishes as well, which compute time is without.
        "owner_on_core_s": [statistics.median(t[0] for t in times)
                            for times in zip(*(step["threads"] for step in counted))],
        "owner_waited_for_core_s": [statistics.median(t[1] for t in times)
                                    for times in zip(*(step["threads"] for step in counted))],
        "steps": [step["owner_compute_s"] for step in measured["steps"]],
        "warm_up": options.warm_up,
        "plan_hash": predicted["plan_hash"],
        "owners_plan_hash": measured["plan_hash"],
        "warnings": predicted["warnings"],
    }


def verdict(result):
    """What is out of its limits, for people."""
    wrong = []
    if result["plan_hash"] != result["owners_plan_hash"]:
        wrong.append("the owners' plan is not the one that dmuonctl printed")
    if not RATIO[0] <= result["ratio"] <= RATIO[1]:
        wrong.append(f"busiest owner / makespan is {result['ratio']:.3f}, not {RATIO[0]}..{RATIO[1]}")
    if not result["imbalance"] <= IMBALANCE:
        wrong.append(f"imbalance is {result['imbalance']:.3f}, more than {IMBALANCE}")
    return wrong


def main():
    options = arguments()
    if options.trainer:
        return train(options)
    with tempfile.TemporaryDirectory(prefix="dmuon-") as folder:
        cache = options.cache or pathlib.Path(folder, "tuning.json")
        load = {"before": os.getloadavg()[0]}
        if not options.cache:
            tune(options, cache)
            load["tuned"] = os.getloadavg()[0]
        predicted = plan(options, cache)
        measured = run_job(options, cache, folder)
        load["after"] = os.getloadavg()[0]
    result = compare(options, predicted, measured)
    result["load_average"] = load
    print(json.dumps(result, indent=1))
    wrong = verdict(result)
    for line in wrong:
        print(f"plan_measured: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
