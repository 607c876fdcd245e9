"""Wrong input to replay: exit code 2, one line that names key and value, nothing written."""

import json

import numpy as np
import pytest

from replay_support import Replayer, dmuonctl

W = np.zeros((4, 4), np.float32)


def parameters(**more):
    return [{"name": "w", "shape": [4, 4], **more}]


def muon(**options):
    return {"groups": {"muon": options}, "parameters": parameters()}


SPECS = {
    "misspelt key": ({"preset": "dmuon", "gropus": {}, "parameters": parameters()},
                     ["gropus", "groups"]),
    "misspelt group key": (muon(learning_rate=0.1), ["groups.muon.learning_rate", "0.1"]),
    "negative lr": (muon(lr=-0.1), ["groups.muon.lr", "-0.1", "negative"]),
    "unknown preset": ({"preset": "muonlight", "parameters": parameters()},
                       ["preset", "muonlight", "moonlight"]),
    "3-D without view": ({"parameters": [{"name": "w", "shape": [2, 3, 4]}]},
                         ["w", "view", "[2,3,4]"]),
    "split sizes": ({"parameters": [{"name": "w", "shape": [4608, 4],
                                     "view": {"split_rows": [2048, 256, 256]}}]},
                    ["w", "split_rows", "2560", "4608"]),
    "duplicate names": ({"parameters": parameters() + parameters()}, ["w", "two parameters"]),
    "absurd shape": ({"parameters": [{"name": "w", "shape": [10 ** 9, 10 ** 9]}]},
                     ["w", "shape", "1000000000"]),
    "truncated": ('{"parameters": [{"name": "w", "sh', ["not JSON", "line 1"]),
    "empty": ("", ["empty"]),
    "fp16 on a CPU": (muon(precision="fp16"), ["groups.muon.precision", "fp16"]),
}


@pytest.fixture
def replay(tmp_path):
    return Replayer(tmp_path)


@pytest.mark.parametrize("name", SPECS)
def test_spec(replay, name):
    spec, mentions = SPECS[name]
    message = replay.refusal(spec, {"w": W}, [{"w": W}])
    for mention in mentions:
        assert mention in message
    if name != "fp16 on a CPU":
        assert "spec.json" in message


SPEC = {"parameters": [{"name": "w", "shape": [4, 4]}, {"name": "b", "shape": [4]}]}
PARAMS = {"w": W, "b": np.zeros(4, np.float32)}


@pytest.mark.parametrize("params, mentions", [
    ({"w": W}, ["p.safetensors", "'b'", "missing"]),
    ({**PARAMS, "x": W}, ["p.safetensors", "'x'"]),
    ({**PARAMS, "w": W[:2]}, ["p.safetensors", "'w'", "[2, 4]", "[4, 4]"]),
    ({**PARAMS, "w": W.astype(np.float16)}, ["p.safetensors", "'w'", "fp16", "fp32"]),
])
def test_parameters(replay, params, mentions):
    message = replay.refusal(SPEC, params, [PARAMS])
    for mention in mentions:
        assert mention in message


@pytest.mark.parametrize("grads, mentions", [
    ({"x": W}, ["g1.safetensors", "'x'"]),
    ({"w": W[:2]}, ["g1.safetensors", "'w'", "shape"]),
    ({"w": W.astype(np.int64)}, ["g1.safetensors", "'w'", "integer"]),
])
def test_gradients(replay, grads, mentions):
    message = replay.refusal(SPEC, PARAMS, [PARAMS, grads])
    for mention in mentions:
        assert mention in message


STATE = {"w.momentum": W, "b.exp_avg": PARAMS["b"], "b.exp_avg_sq": PARAMS["b"],
         "b.step": np.array(3, np.int64)}


@pytest.mark.parametrize("state, mentions", [
    ({n: t for n, t in STATE.items() if n != "w.momentum"}, ["'w.momentum'", "missing"]),
    ({**STATE, "w.exp_avg": W}, ["'w.exp_avg'"]),
    ({**STATE, "b.step": np.array(-1, np.int64)}, ["'b.step'", "-1"]),
    ({**STATE, "b.step": np.array([3], np.int64)}, ["'b.step'", "[1]"]),
])
def test_state(replay, state, mentions):
    message = replay.refusal(SPEC, PARAMS, [PARAMS], state_in=state)
    for mention in ["in.safetensors", *mentions]:
        assert mention in message


@pytest.mark.parametrize("steps, mentions", [
    ([{}, {}], ["list of 2", "1 steps"]),
    ([{"groups": {"nobody": {"lr": 1}}}], ["step[0]", "nobody"]),
    ([{"groups": {"muon": {"lr": -1}}}], ["step[0]", "groups.muon.lr", "-1"]),
    ([{"groups": {"muon": {"scale": "none"}}}], ["step[0].groups.muon.scale", "none"]),
    ([{"grad_scale": 0}], ["step[0]", "grad_scale", "0"]),
    ([{"lr": 1}], ["step[0].lr"]),
    ("[{]", ["not JSON"]),
])
def test_steps(replay, steps, mentions):
    message = replay.refusal(SPEC, PARAMS, [PARAMS], steps=steps)
    for mention in ["steps.json", *mentions]:
        assert mention in message


def test_files_that_are_none(replay, tmp_path):
    arguments = replay.write(SPEC, PARAMS, [PARAMS])
    good = (tmp_path / "p.safetensors").read_bytes()
    for content, mention in ((b"", "empty"), (b"12", "truncated"), (good[:-1], "truncated"),
                             (good + b"\0", "after its last"), (b"\x7f" * 100, "not a safetensors")):
        (tmp_path / "p.safetensors").write_bytes(content)
        message = replay.refusal_of(arguments)
        assert "p.safetensors" in message and mention in message
    (tmp_path / "p.safetensors").unlink()
    assert "cannot be opened" in replay.refusal_of(arguments)


def test_output_that_cannot_be_written(replay, tmp_path):
    arguments = replay.write(SPEC, PARAMS, [PARAMS])
    arguments[arguments.index("--out") + 1] = tmp_path / "missing" / "out.safetensors"
    assert "missing/out.safetensors" in replay.refusal_of(arguments)


def test_command_line(tmp_path):
    for arguments in ([], ["replay"], ["replay", "--spec", "x"], ["nonsense"], ["replay", "--wat"]):
        done = dmuonctl(*arguments)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1


def test_large_specs_are_quick_to_refuse(replay):
    entries = [{"name": f"layer.{i}.w", "shape": [64, 64]} for i in range(20000)]
    entries[-1]["shape"] = [64, -1]
    message = replay.refusal(json.dumps({"parameters": entries}), {"w": W}, [{"w": W}])
    assert "layer.19999.w" in message and "-1" in message
