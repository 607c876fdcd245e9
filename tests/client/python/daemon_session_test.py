"""Sessions against real owners, on channel grpc."""

import os
import signal
import subprocess
import sys

import conftest
import dmuond
import numpy as np
import pytest
from trainers import adamw, cut, sessions, step, together

SPEC = {
    "max_grad_norm": 1.0,
    "groups": {"muon": {"lr": 0.05, "weight_decay": 0.1}, "adamw": {"lr": 0.01}},
    "parameters": [
        {"name": "qkv", "shape": [48, 20], "view": {"split_rows": [16, 16, 16]}},
        {"name": "gate", "shape": [6, 9], "view": {"interleave_rows": 2}},
        {"name": "conv", "shape": [8, 3, 3, 3], "view": "flatten"},
        {"name": "experts", "shape": [4, 6, 10], "view": "stack"},
        {"name": "embed", "shape": [300, 250], "rule": "adamw"},
        {"name": "half", "shape": [10, 10], "dtype": "fp16"},
        {"name": "bias", "shape": [17]}]}
TINY = {"parameters": [{"name": "w", "shape": [2, 2]}, {"name": "b", "shape": [3]}]}


def draw(seed, spec=SPEC):
    rng = np.random.default_rng(seed)
    return {p["name"]: rng.normal(size=p["shape"]).astype(
        np.float16 if p.get("dtype") == "fp16" else np.float32) for p in spec["parameters"]}


def train(daemon, regions, reverse=False, steps=3):
    """Runs some steps on one trainer per item of `regions`; what each ends with."""
    def shard(values, region):
        names = list(values)[::-1] if reverse else list(values)
        return {name: np.array(cut(values[name], region.get(name))) for name in names}
    arrays = [shard(draw(0), region) for region in regions]
    with sessions(daemon, SPEC, arrays, regions, contribution="replica") as opened:
        for number in range(steps):
            gradients = [shard(draw(100 + number), region) for region in regions]
            if number == 1:
                for mine in gradients:
                    mine["bias"] = None
            reports = step(opened, gradients, {"muon": {"lr": 0.05 / (number + 1)}})
            assert all(report.committed and report == reports[0] for report in reports)
            assert sum(o.matrices for o in reports[0].orthogonalised) == 3 + 2 + 1 + 4 + 1
    return arrays


@pytest.mark.parametrize("kind, regions", [
    ("replicas", [{}, {}, {}]),
    ("rows", [{"qkv": ((0, 0), (30, 20)), "embed": ((0, 0), (7, 250)), "bias": ((0,), (0,))},
              {"qkv": ((30, 0), (18, 20)), "embed": ((7, 0), (293, 250)), "bias": ((0,), (17,))}]),
    ("columns", [{"qkv": ((0, 0), (48, 7)), "experts": ((0, 0, 2), (4, 6, 8)),
                  "embed": ((0, 0), (300, 1)), "half": ((0, 0), (10, 10))},
                 {"qkv": ((0, 7), (48, 13)), "experts": ((0, 0, 0), (4, 6, 2)),
                  "embed": ((0, 1), (300, 249)), "half": ((0, 0), (10, 0))}]),
    ("boxes", [{"conv": ((0, 0, 0, 0), (8, 2, 3, 3)), "gate": ((0, 0), (3, 9))},
               {"conv": ((0, 2, 0, 0), (8, 1, 3, 3)), "gate": ((3, 0), (3, 9))}]),
])
def test_shards_end_bitwise_where_one_trainer_does(daemon, kind, regions):
    whole = train(daemon, [{}])[0]
    assert all(not np.array_equal(whole[name], value) for name, value in draw(0).items())
    for mine, region in zip(train(daemon, regions, reverse=True), regions):
        for name, value in mine.items():
            assert value.tobytes() == np.ascontiguousarray(
                cut(whole[name], region.get(name))).tobytes(), (kind, name)


def test_known_values_of_both_rules(daemon):
    spec = {"groups": {"muon": {"lr": 0.1, "weight_decay": 0.1}, "adamw": {"lr": 0.01}}, **TINY}
    arrays = {"w": np.eye(2, dtype=np.float32), "b": np.array([1, -2, 3], np.float32)}
    gradients = [np.array(g, np.float32) for g in ([1, 2, -3], [-1, 5, 0], [2, 2, 2])]
    expected = adamw(arrays["b"].copy(), gradients, 0.01)
    with sessions(daemon, spec, [arrays]) as opened:
        step(opened, [{"w": np.diag([3, 4]).astype(np.float32), "b": gradients[0]}])
        # One step by the formulas: p = I, g = diag(3, 4), match_rms_adamw.
        np.testing.assert_allclose(arrays["w"], np.diag([0.958724, 0.958226]), atol=1e-5)
        for gradient in gradients[1:]:
            step(opened, [{"b": gradient}])
    np.testing.assert_allclose(arrays["b"], expected, rtol=1e-6)
    np.testing.assert_allclose(arrays["w"], np.diag([0.958724, 0.958226]), atol=1e-5)


def test_partial_gradients_are_averaged_and_scaled(daemon):
    arrays = [draw(0, TINY) for _ in range(3)]
    gradients = [{"b": np.array([first, 0, 0], np.float32)} for first in (3, 6, 15)]
    with sessions(daemon, TINY, arrays) as opened:
        assert step(opened, gradients)[0].grad_norm == 8
        assert step(opened, gradients, grad_scale=4.0)[0].grad_norm == 2
        # Absent on one trainer, pushed by the others: it counts as zeros there.
        assert step(opened, [gradients[0], {"b": None}, gradients[2]])[0].grad_norm == 6
    for mine in arrays[1:]:
        assert all(mine[name].tobytes() == arrays[0][name].tobytes() for name in mine)


def test_the_last_push_counts_and_gradients_stay_untouched(daemon):
    first, second = draw(0, TINY), draw(0, TINY)
    second["w"] = np.asfortranarray(second["w"])
    good, noise = draw(1, TINY), draw(2, TINY)
    before = {name: value.copy() for name, value in good.items()}
    with sessions(daemon, TINY, [first]) as opened:
        step(opened, [good])
    with sessions(daemon, TINY, [second]) as (session,):
        session.begin_step()
        for micro_batch in range(3):
            session.push_all(noise, final=False)
        session.push("w", good["w"], final=False)
        session.push("b", good["b"][::-1][::-1])
        report = session.step()
    assert sum(o.matrices for o in report.orthogonalised) == 1
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert all(np.array_equal(before[name], good[name]) for name in good)


def test_absent_parameters_do_not_move(daemon):
    arrays = draw(0, TINY)
    with sessions(daemon, TINY, [arrays]) as (session,):
        report = step([session], [{"w": None}])[0]
        assert report.committed and report.absent_parameters == 2
        assert all(np.array_equal(arrays[name], value) for name, value in draw(0, TINY).items())
        session.begin_step()
        session.absent("w")
        with pytest.raises(dmuond.StateError, match="already absent in step 2"):
            session.push("w", arrays["w"])
        session.push("b", arrays["b"])
        with pytest.raises(dmuond.StateError, match="cannot be absent"):
            session.absent("b")
        with pytest.raises(dmuond.StateError, match="already final in step 2"):
            session.push("b", arrays["b"])
        assert session.step().absent_parameters == 1
    assert np.array_equal(arrays["w"], draw(0, TINY)["w"])


def test_errors_before_anything_is_sent(daemon):
    arrays = draw(0, TINY)
    with sessions(daemon, TINY, [arrays]) as (session,):
        with pytest.raises(dmuond.StateError, match="no step is open"):
            session.push("w", arrays["w"])
        session.begin_step()
        with pytest.raises(dmuond.StateError, match="step 1 is open"):
            session.begin_step()
        with pytest.raises(dmuond.InvalidArgument, match="'ww' is not a parameter.*mean 'w'"):
            session.push("ww", arrays["w"])
        with pytest.raises(dmuond.InvalidArgument, match=r"shape \[3\] instead of \[2, 2\]"):
            session.push_all({"b": arrays["b"], "w": arrays["b"]})
        with pytest.raises(dmuond.InvalidArgument, match="dtype float64 instead of fp32"):
            session.push("w", arrays["w"].astype(np.float64))
        assert step_after_errors(session, arrays).committed
    with pytest.raises(dmuond.StateError, match="this session is closed"):
        session.begin_step()


def step_after_errors(session, arrays):
    """push_all refused everything as a whole, so both can still be pushed."""
    session.push_all({name: np.ones_like(value) for name, value in arrays.items()})
    return session.step()


def test_what_the_daemon_refuses_is_named(daemon):
    spec = {"groups": {"muon": {"lr": -1}}, **TINY}
    with pytest.raises(dmuond.InvalidArgument, match="lr"):
        dmuond.Session.open(spec, trainer=0, trainers=1, parameters=draw(0, TINY),
                            address=daemon.address)
    with sessions(daemon, TINY, [draw(0, TINY)]) as (session,):
        with pytest.raises(dmuond.InvalidArgument, match="nope"):
            session.begin_step({"nope": {"lr": 1}})


def test_not_finite_is_skipped_and_named(daemon):
    arrays = draw(0, TINY)
    with sessions(daemon, TINY, [arrays]) as opened:
        report = step(opened, [{"w": np.array([[1, np.nan], [0, 1]], np.float32)}])[0]
        assert (report.outcome, report.parameter, report.next_step) == ("skipped", "w", 2)
        assert np.array_equal(arrays["w"], draw(0, TINY)["w"])
        assert step(opened, [draw(1, TINY)])[0].committed


def test_a_missing_trainer_aborts_the_step_which_is_then_repeated(daemon):
    arrays = [draw(0, TINY), draw(0, TINY)]
    gradients = draw(1, TINY)
    with sessions(daemon, TINY, arrays, step_timeout=1.0) as (prompt, late):
        late.begin_step()
        prompt.begin_step()
        prompt.push_all(gradients)
        with pytest.raises(dmuond.StepAborted, match="trainer 1") as caught:
            prompt.step()
        assert (caught.value.report.step, caught.value.report.next_step) == (1, 1)
        with pytest.raises(dmuond.StepAborted, match="step 1 was aborted"):
            late.push_all(gradients)
            late.step()
        assert np.array_equal(arrays[0]["w"], draw(0, TINY)["w"])
        reports = step([prompt, late], [gradients, gradients])
        assert all(report.committed and report.step == 1 for report in reports)


def test_a_lost_trainer_resumes_with_the_daemons_values(daemon):
    arrays = draw(0, TINY)
    with pytest.raises(RuntimeError, match="crash"):
        with dmuond.Session.open(TINY, trainer=0, trainers=1, parameters=arrays,
                                 address=daemon.address) as session:
            step([session], [draw(1, TINY)])
            raise RuntimeError("crash")
    stale = draw(5, TINY)
    resumed = conftest.wait_for(lambda: try_resume(daemon, stale), "resume")
    with resumed:
        assert resumed.resumed and resumed.next_step == 2
        assert all(np.array_equal(stale[name], arrays[name]) for name in arrays)
        assert step([resumed], [draw(1, TINY)])[0].step == 2


def try_resume(daemon, arrays):
    """None as long as the daemon has not noticed that the trainer is gone."""
    try:
        return dmuond.Session.open(TINY, trainer=0, trainers=1, parameters=arrays, resume=True,
                                   address=daemon.address)
    except dmuond.AlreadyAttached:
        return None


def test_a_killed_owner_is_an_error_within_15_seconds(own_daemon):
    arrays = draw(0, TINY)
    with sessions_without_goodbye(own_daemon, arrays) as session:
        session.begin_step()
        session.push_all(draw(1, TINY))
        os.kill(own_daemon.owner_pids()[-1], signal.SIGKILL)
        own_daemon.process.wait(timeout=15)
        with pytest.raises((dmuond.DaemonUnavailable, dmuond.SessionFailed)):
            session.step()
        with pytest.raises(dmuond.Error):
            session.begin_step()


def sessions_without_goodbye(daemon, arrays):
    return dmuond.Session.open(TINY, trainer=0, trainers=1, parameters=arrays,
                               address=daemon.address)


def test_a_fork_cannot_use_the_session(daemon):
    with sessions(daemon, TINY, [draw(0, TINY)]) as (session,):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                session.begin_step()
                text = "no error"
            except dmuond.StateError as error:
                text = str(error)
            os.write(write, text.encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert f"cannot be used in process {child}" in os.read(read, 1000).decode()
        assert step([session], [draw(1, TINY)])[0].committed


ONE_STEP = """
import dmuond, numpy
session = dmuond.Session.open({"parameters": [{"name": "b", "shape": [3]}]}, trainer=0, trainers=1,
                              parameters={"b": numpy.ones(3, "f")}, address="ADDRESS")
session.begin_step()
session.push("b", numpy.ones(3, "f"))
session.step()
"""


@pytest.mark.parametrize("ending, code, words", [
    ("", 0, "all trainers have detached"),
    ("raise KeyError('oops')", 1, "trainer 0"),
])
def test_the_end_of_the_program_is_a_goodbye_unless_it_fails(own_daemon, ending, code, words):
    program = ONE_STEP.replace("ADDRESS", own_daemon.address) + ending
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                            timeout=60)
    assert result.returncode == code, result.stderr
    mark = "all trainers have detached" if code == 0 else "lost"
    conftest.wait_for(lambda: own_daemon.says(mark), mark)
    assert words in own_daemon.log.read_text()
    if code:
        assert "all trainers have detached" not in own_daemon.log.read_text()
