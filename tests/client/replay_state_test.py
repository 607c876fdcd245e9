"""State files, step values, threads: what carries from one replay to the next."""

import numpy as np
import pytest

import replay_reference as reference
from replay_support import EXACT, Replayer, bf16, from_bf16, relative_error, same_bits

SPEC = {
    "groups": {"muon": {"weight_decay": 0.1, **EXACT},
               "slow": {"lr": 0.003, "momentum_dtype": "bf16", **EXACT}},
    "max_grad_norm": 10.0,
    "parameters": [
        {"name": "qkv", "shape": [12, 8], "view": {"split_rows": [4, 4, 4]}},
        {"name": "cols", "shape": [4, 12], "view": {"split_cols": [4, 8]}, "group": "slow"},
        {"name": "gate_up", "shape": [12, 8], "view": {"interleave_rows": 2}, "dtype": "bf16"},
        {"name": "experts", "shape": [3, 6, 4], "view": {"stack": True, "split_cols": [2, 2]},
         "dtype": "fp16"},
        {"name": "conv", "shape": [6, 2, 3, 3], "view": "flatten"},
        {"name": "wte", "shape": [300, 400], "rule": "adamw", "dtype": "bf16"},
        {"name": "bias", "shape": [5]}]}


def narrow(entry, values):
    dtype = entry.get("dtype", "fp32")
    if dtype == "bf16":
        return bf16(values)
    return values.astype(np.float16 if dtype == "fp16" else np.float32)


def tensors(seed):
    rng = np.random.default_rng(seed)
    return {e["name"]: narrow(e, rng.standard_normal(e["shape"])) for e in SPEC["parameters"]}


PARAMS = tensors(0)
GRADS = [tensors(seed) for seed in range(1, 7)]


@pytest.fixture
def replay(tmp_path):
    return Replayer(tmp_path)


def test_resuming_from_files_is_bitwise_the_same(replay):
    whole = replay(SPEC, PARAMS, GRADS)
    half = replay(SPEC, PARAMS, GRADS[:3])
    resumed = replay(SPEC, half.params, GRADS[3:], state_in=half.state)
    assert same_bits(resumed.params, whole.params)
    assert same_bits(resumed.state, whole.state)
    assert not same_bits(half.params, whole.params)


def test_state_has_the_documented_tensors(replay):
    state = replay(SPEC, PARAMS, GRADS[:1]).state
    expected = {"qkv.momentum", "cols.momentum", "gate_up.momentum", "gate_up.master",
                "experts.momentum", "experts.master", "conv.momentum", "wte.master", "wte.exp_avg",
                "wte.exp_avg_sq", "wte.step", "bias.exp_avg", "bias.exp_avg_sq", "bias.step"}
    assert set(state) == expected
    assert state["conv.momentum"].shape == (6, 2, 3, 3)
    assert state["cols.momentum"].dtype == np.uint16  # bf16, as its group says
    assert state["wte.master"].dtype == np.float32
    assert state["wte.step"].dtype == np.int64 and state["wte.step"].shape == ()
    assert state["wte.step"] == 1


def test_published_values_are_masters_rounded(replay):
    done = replay(SPEC, PARAMS, GRADS)
    assert done.params["wte"].tobytes() == bf16(done.state["wte.master"]).tobytes()
    assert done.params["experts"].tobytes() == (
        done.state["experts.master"].astype(np.float16).tobytes())


def test_momentum_lies_where_the_parameters_elements_do(replay):
    grads = {name: g for name, g in GRADS[0].items() if name in ("qkv", "gate_up", "experts")}
    spec = {**SPEC, "max_grad_norm": None}
    state = replay(spec, PARAMS, [grads]).state
    assert state["qkv.momentum"].tobytes() == grads["qkv"].tobytes()
    assert state["gate_up.momentum"].tobytes() == from_bf16(grads["gate_up"]).tobytes()
    assert state["experts.momentum"].tobytes() == grads["experts"].astype(np.float32).tobytes()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_no_bit(replay, threads):
    default = replay(SPEC, PARAMS, GRADS[:3])
    done = replay(SPEC, PARAMS, GRADS[:3], more=("--threads", threads))
    assert same_bits(done.params, default.params)
    assert same_bits(done.state, default.state)


def test_registration_order_changes_no_bit(replay):
    default = replay(SPEC, PARAMS, GRADS[:3])
    turned = {**SPEC, "parameters": SPEC["parameters"][::-1]}
    done = replay(turned, dict(reversed(PARAMS.items())), GRADS[:3])
    assert same_bits(dict(sorted(done.params.items())), dict(sorted(default.params.items())))


def test_gradients_are_divided_by_grad_scale(replay):
    spec = {"groups": {"muon": EXACT}, "parameters": [{"name": "w", "shape": [3, 4]},
                                                      {"name": "b", "shape": [4]}]}
    rng = np.random.default_rng(1)
    params = {"w": np.zeros((3, 4), np.float32), "b": np.zeros(4, np.float32)}
    grads = {n: rng.standard_normal(p.shape).astype(np.float32) for n, p in params.items()}
    plain = replay(spec, params, [grads])
    scaled = replay(spec, params, [{n: 1024 * g for n, g in grads.items()}],
                    steps=[{"grad_scale": 1024}])
    assert same_bits(plain.state, scaled.state)
    assert plain.reports[0]["grad_norm"] == scaled.reports[0]["grad_norm"]


def test_step_values_override_the_spec(replay):
    spec = {"groups": {"muon": {**EXACT, "scale": "none"}},
            "parameters": [{"name": "w", "shape": [2, 2]}, {"name": "b", "shape": [2]}]}
    params = {"w": np.eye(2, dtype=np.float32), "b": np.ones(2, np.float32)}
    grads = {"w": np.diag([3, 4]).astype(np.float32), "b": np.array([1, 2], np.float32)}
    steps = [{"groups": {"muon": {"lr": 0.5, "weight_decay": 0.25, "momentum": 0.5},
                         "adamw": {"lr": 0.1, "betas": [0.5, 0.75]}}},
             {"groups": {"muon": {"lr": 0.25}}}]
    done = replay(spec, params, [grads, grads], steps=steps)
    p, m = np.eye(2), np.zeros((2, 2))
    for lr, wd, mu in ((0.5, 0.25, 0.5), (0.25, 0.0, 0.95)):
        p, m = reference.muon(p, m, grads["w"].astype(np.float64), lr=lr, wd=wd, mu=mu, ema=False,
                              coefficients=reference.POLAR_EXPRESS, scale=lambda r, c: 1.0)
    assert relative_error(done.params["w"] - np.eye(2), p - np.eye(2)) < 1e-5
    assert relative_error(done.state["w.momentum"], m) < 1e-6
    b, v1, v2 = np.ones(2), np.zeros(2), np.zeros(2)
    for t, values in enumerate((dict(lr=0.1, b1=0.5, b2=0.75), {}), start=1):
        b, v1, v2 = reference.adamw(b, v1, v2, t, grads["b"].astype(np.float64), **values)
    assert relative_error(done.params["b"], b) < 1e-6
    assert relative_error(done.state["b.exp_avg_sq"], v2) < 1e-6


def test_each_step_reports_what_was_orthogonalised(replay):
    report = replay(SPEC, PARAMS, GRADS[:1]).reports[0]
    # qkv 3, cols 2, gate_up 2, experts 3 x 2, conv 1.
    assert report["orthogonalised"] == [
        {"rule": "muon", "form": "direct", "precision": "fp32", "matrices": 14}]
    squares = sum(np.sum(np.square((from_bf16(g) if g.dtype == np.uint16 else g)
                                   .astype(np.float64))) for g in GRADS[0].values())
    assert report["grad_norm"] == pytest.approx(np.sqrt(squares), rel=1e-12)
    assert report["clip_factor"] == pytest.approx(10.0 / np.sqrt(squares), rel=1e-12)
