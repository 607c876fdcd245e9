"""What happens when processes die, stop, stay silent or send nonsense: a line that names them, soon,
and nothing left behind."""

import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time

import grpc
import numpy as np
import pytest

import dmuond
import fault_trainer
from dmuond._generated import control_pb2, control_pb2_grpc

HERE = pathlib.Path(__file__).parent
SOON = 15  # seconds


class Trainer:
    """A grpc trainer process."""

    def __init__(self, python, address, trainer, **options):
        argv = [python, str(HERE / "fault_trainer.py"), "--address", address,
                "--trainer", str(trainer)]
        for name, value in options.items():
            argv += [f"--{name.replace('_', '-')}", str(value)]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True)
        self.lines = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        self.lines.extend(iter(self.process.stdout.readline, ""))

    def wait_for(self, word, seconds=60):
        deadline = time.monotonic() + seconds
        while not any(word in line for line in self.lines):
            assert time.monotonic() < deadline, self.text()
            assert self.process.poll() is None or self._reader.is_alive(), self.text()
            time.sleep(0.02)

    def finish(self, seconds=SOON):
        self.process.wait(timeout=seconds)
        self._reader.join()
        return self.text()

    def text(self):
        return "".join(self.lines)


def start_pair(owners, python, **options):
    return [Trainer(python, owners.address, t, **options) for t in range(2)]


def mpi_program(python, folder, **options):
    """Two trainers as the second program of the owners' job."""
    argv = [python, str(HERE / "fault_trainer.py"), "--mpi", "--owners", "2",
            "--address", f"unix:{folder}/d.sock"]
    for name, value in options.items():
        argv += [f"--{name.replace('_', '-')}", str(value)]
    return 2, argv, {"PYTHONUNBUFFERED": "1"}


def test_killed_owner_ends_the_job_and_is_named(start_owners, python):
    owners = start_owners()
    trainers = start_pair(owners, python, bad=1, how="silent", step_timeout=60)
    trainers[1].wait_for("misbehaving")
    os.kill(owners.pids[1], signal.SIGKILL)
    assert owners.wait(SOON) != 0
    assert f"lost owner 1 (pid {owners.pids[1]} on" in owners.log()
    assert "pending: step 2" in owners.log()
    text = trainers[0].finish()
    assert re.search(r"trainer 0 heard \w+: .*daemon", text), text
    trainers[1].process.kill()
    trainers[1].finish()
    owners.check_nothing_is_left()


def test_killed_first_owner_leaves_a_socket_that_the_next_start_replaces(start_owners, python):
    owners = start_owners()
    os.kill(owners.pids[0], signal.SIGKILL)
    assert owners.wait(SOON) != 0
    assert f"lost owner 0 (pid {owners.pids[0]} on" in owners.log()
    owners.check_nothing_is_left(socket=True)
    assert owners.socket.exists()
    again = start_owners(folder=owners.folder)
    assert "replacing the stale socket" in again.log()
    os.kill(again.job.pid, signal.SIGTERM)
    again.wait(SOON)
    again.check_nothing_is_left()


def test_stopped_owner_counts_as_lost(start_owners):
    owners = start_owners(options=["--heartbeat-timeout", "5"])
    os.kill(owners.pids[1], signal.SIGSTOP)
    assert owners.wait(SOON) != 0
    assert re.search(rf"owner 1 \(pid {owners.pids[1]} on .*silent for 5 s.*pending", owners.log())
    owners.check_nothing_is_left()


def test_second_daemon_at_one_address_is_refused(start_owners, bin_folder):
    owners = start_owners(count=1)
    other = subprocess.run(
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "1", f"{bin_folder}/dmuond",
         "--address", owners.address], capture_output=True, text=True, timeout=60, check=False)
    assert other.returncode != 0
    assert f"another dmuond listens at {owners.socket}" in other.stderr
    assert owners.socket.exists() and owners.job.poll() is None


def test_terminated_job_leaves_nothing(start_owners, python):
    owners = start_owners()
    trainers = start_pair(owners, python, bad=1, how="silent", step_timeout=60)
    trainers[1].wait_for("misbehaving")
    os.kill(owners.job.pid, signal.SIGTERM)
    assert owners.wait(SOON) != 0
    owners.check_nothing_is_left()
    trainers[1].process.kill()
    for trainer in trainers:
        trainer.finish()


def test_drain_signal_ends_with_zero(start_owners, python):
    owners = start_owners()
    trainers = start_pair(owners, python, good_steps=2)
    for trainer in trainers:
        trainer.finish(60)
    os.kill(owners.job.pid, signal.SIGUSR1)  # mpirun forwards it
    assert owners.wait(SOON) == 0
    owners.check_nothing_is_left()


def test_killed_trainer_aborts_the_step_and_its_successor_repeats_it(start_owners, python):
    """The others hear who it was; a new process takes its place and the numbers are as if nothing
    had happened."""
    owners = start_owners()
    victim = Trainer(python, owners.address, 1, bad=1, how="kill", step_timeout=60)
    arrays = fault_trainer.parameters()
    with dmuond.Session.open(fault_trainer.SPEC, trainer=0, trainers=2, parameters=arrays,
                             address=owners.address, step_timeout=60.0) as session:
        session.begin_step()
        session.push_all(fault_trainer.gradients(1, 0))
        assert session.step().outcome == "committed"
        before = {n: a.copy() for n, a in arrays.items()}
        session.begin_step()
        session.push_all(fault_trainer.gradients(2, 0))
        begin = time.monotonic()
        with pytest.raises(dmuond.StepAborted, match=rf"trainer 1 \(pid {victim.process.pid} on"):
            session.step()
        assert time.monotonic() - begin < SOON
        assert all(arrays[n].tobytes() == before[n].tobytes() for n in arrays)

        resumed = fault_trainer.parameters()
        with dmuond.Session.open(fault_trainer.SPEC, trainer=1, trainers=2, parameters=resumed,
                                 address=owners.address, resume=True) as successor:
            assert successor.resumed and successor.next_step == session.next_step == 2
            assert all(resumed[n].tobytes() == arrays[n].tobytes() for n in arrays)
            for one, number in ((session, 0), (successor, 1)):
                assert one.begin_step() == 2
                one.push_all(fault_trainer.gradients(2, number))
            second = threading.Thread(target=successor.step)
            second.start()
            assert session.step().outcome == "committed"
            second.join()
    victim.finish()
    assert undisturbed(start_owners, 2) == {n: a.tobytes() for n, a in arrays.items()}


def undisturbed(start_owners, steps):
    """Bytes of the parameters after `steps` good steps of both trainers."""
    owners = start_owners(count=1)
    values = [fault_trainer.parameters() for _ in range(2)]

    def run(trainer):
        with dmuond.Session.open(fault_trainer.SPEC, trainer=trainer, trainers=2,
                                 parameters=values[trainer], address=owners.address) as session:
            for step in range(1, steps + 1):
                session.begin_step()
                session.push_all(fault_trainer.gradients(step, trainer))
                session.step()

    threads = [threading.Thread(target=run, args=(t,)) for t in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {n: a.tobytes() for n, a in values[0].items()}


def test_silent_trainer_is_named_after_the_step_timeout(start_owners, python):
    owners = start_owners()
    trainers = start_pair(owners, python, bad=1, how="silent", step_timeout=3)
    text = trainers[0].finish(60)
    pid = trainers[1].process.pid
    assert "step 2 was aborted: step 2 is not complete after 3 s" in text, text
    assert f"trainer 1 (pid {pid} on" in text and "has not sealed it" in text
    assert "w1" in text or "w2" in text or "b)" in text
    assert "trainer 0 (pid" not in text
    trainers[1].process.kill()
    trainers[1].finish()


@pytest.mark.parametrize("how, kind, words", [
    ("bytes", "InvalidArgument", "payload bytes; its layout has"),
    ("bucket", "InvalidArgument", "pushed bucket 4711, but the plan has buckets 0 to"),
    ("stale", "StateError", "for generation 1; the current one is 2"),
])
def test_bad_push_over_grpc_is_refused_in_words(start_owners, python, how, kind, words):
    owners = start_owners()
    trainers = start_pair(owners, python, bad=1, how=how, step_timeout=5)
    text = trainers[1].finish(60)
    assert f"trainer 1 heard {kind}: " in text and words in text, text
    trainers[0].finish(60)


@pytest.mark.parametrize("how, words", [
    ("bytes", "payload bytes; its layout has"),
    ("bucket", "pushed bucket 4711, but the plan has buckets 0 to"),
    ("stale", "for generation 1; the current one is 2"),
    ("silent", "has not sealed it"),
])
def test_bad_push_over_mpi_aborts_the_step_in_words(start_owners, python, tmp_path, how, words):
    folder = tmp_path
    program = mpi_program(python, folder, bad=1, how=how, step_timeout=3)
    owners = start_owners(program=program, folder=folder)
    deadline = time.monotonic() + 60
    while "trainer 0 heard StepAborted" not in owners.log():
        assert time.monotonic() < deadline, owners.log()
        time.sleep(0.05)
    heard = next(line for line in owners.log().splitlines() if "trainer 0 heard" in line)
    assert "trainer 1" in heard and words in heard, owners.log()


def test_killed_trainer_of_an_mpi_job_ends_it_and_is_named(start_owners, python, tmp_path):
    folder = tmp_path
    program = mpi_program(python, folder, bad=1, how="kill", step_timeout=60)
    owners = start_owners(program=program, folder=folder)
    assert owners.wait(60) != 0
    assert re.search(r"lost the trainer of rank 3 \(pid \d+ on", owners.log()), owners.log()
    owners.check_nothing_is_left()


GOOD = {"parameters": [{"name": "w", "shape": [4, 4]}]}
BAD_SPECS = [
    (json.dumps({**GOOD, "grups": {}}), "grups"),
    (json.dumps({**GOOD, "groups": {"muon": {"lr": -0.1}}}), "-0.1"),
    (json.dumps({**GOOD, "preset": "mun"}), "mun"),
    (json.dumps({"parameters": [{"name": "w", "shape": [2, 4, 4]}]}), "view"),
    (json.dumps({"parameters": GOOD["parameters"] * 2}), '"w"'),
    (json.dumps({"parameters": [{"name": "w", "shape": [4608, 64],
                                 "view": {"split_rows": [2048, 256, 256]}}]}), "2560"),
    (json.dumps({"parameters": [{"name": "w", "shape": [2**40, 2**40]}]}), "shape"),
    (json.dumps(GOOD)[:-5], "JSON"),
    ("", "empty"),
]


def test_session_creation_refuses_bad_specs(start_owners):
    owners = start_owners(count=1)
    channel = grpc.insecure_channel(owners.address, options=(("grpc.enable_http_proxy", 0),))
    control = control_pb2_grpc.ControlStub(channel)
    for text, word in BAD_SPECS:
        with pytest.raises(grpc.RpcError) as refusal:
            control.OpenSession(control_pb2.OpenSessionRequest(spec_json=text, trainers=1),
                                timeout=SOON)
        assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT, text
        details = refusal.value.details()
        assert word in details and "\n" not in details, (text, details)
    channel.close()
    arrays = {"w": np.zeros((4, 4), np.float32)}
    with dmuond.Session.open(GOOD, trainer=0, trainers=1, parameters=arrays,
                             address=owners.address) as session:
        session.begin_step()
        session.push("w", np.eye(4, dtype=np.float32))
        assert session.step().outcome == "committed"


def test_initial_values_that_differ_are_refused(start_owners):
    owners = start_owners()
    errors = []

    def run(trainer):
        arrays = fault_trainer.parameters()
        arrays["w2"][3, 3] += trainer
        try:
            dmuond.Session.open(fault_trainer.SPEC, trainer=trainer, trainers=2, parameters=arrays,
                                address=owners.address)
        except dmuond.Error as error:
            errors.append(str(error))

    threads = [threading.Thread(target=run, args=(t,)) for t in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert len(errors) == 2, errors
    assert all("initial value of parameter w2 differs between trainers 0 and 1" in e
               for e in errors), errors


def test_missing_trainer_is_named_when_the_session_does_not_start(start_owners):
    owners = start_owners(options=["--attach-timeout", "2"])
    with pytest.raises(dmuond.TimedOut, match="trainer 1 to attach"):
        dmuond.Session.open(fault_trainer.SPEC, trainer=0, trainers=2,
                            parameters=fault_trainer.parameters(), address=owners.address)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_other_users_are_refused(start_owners, python):
    owners = start_owners(count=1)
    assert owners.socket.stat().st_mode & 0o777 == 0o600
    owners.folder.chmod(0o755)
    owners.socket.chmod(0o666)
    code = ("import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
            "s.settimeout(5); print(len(s.recv(1)))")
    folder = owners.folder
    while folder != folder.parent:
        folder.chmod(folder.stat().st_mode | 0o011)
        folder = folder.parent
    other = subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", "/usr/bin/python3",
                            "-c", code, str(owners.socket)],
                           capture_output=True, text=True, timeout=30, check=False)
    assert other.stdout.strip() == "0", other  # closed without a byte
    assert "refused a connection from user 65534" in owners.log()
