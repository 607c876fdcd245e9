"""cases.md through `dmuonctl replay`: the rows that are plain updates, with their exact values."""

import hashlib

import numpy as np
import pytest

import replay_reference as reference
from replay_support import (EXACT, Replayer, bf16, from_bf16, observe, relative_error, same_bits)

V1 = np.diag([3.0, 4.0]).astype(np.float32)
SETS = {"polar_express": (1.105790, 1.123382), "you": (1.018629, 1.005632),
        "keller_jordan": (0.722876, 1.119204)}
PE = np.diag(SETS["polar_express"])


@pytest.fixture
def replay(tmp_path):
    return Replayer(tmp_path)


def spec_of(muon, *parameters, **top):
    return {"groups": {"muon": muon}, "parameters": list(parameters), **top}


def orthogonalise(replay, gradient, *, view=None, **options):
    """NS of one gradient as replay computes it."""
    gradient = np.asarray(gradient, np.float32)
    entry = {"name": "w", "shape": list(gradient.shape)}
    if view is not None:
        entry["view"] = view
    done = replay(spec_of(observe(**options), entry), {"w": np.zeros_like(gradient)},
                  [{"w": gradient}])
    return -done.params["w"]


def close(actual, expected):
    # The table has six decimals, so its own rounding comes on top of 1e-5.
    assert np.max(np.abs(np.asarray(actual, np.float64) - expected)) < 1.2e-5


@pytest.mark.parametrize("name", SETS)
def test_row_1_values(replay, name):
    close(orthogonalise(replay, V1, coefficients=name), np.diag(SETS[name]))


@pytest.mark.parametrize("name, expected", [("polar_express", [0.611417, 0.815222]),
                                            ("you", [0.587007, 0.782676]),
                                            ("keller_jordan", [0.417862, 0.557149])])
def test_row_2_one_row(replay, name, expected):
    close(orthogonalise(replay, [[3, 4]], coefficients=name), [expected])
    close(orthogonalise(replay, [[3], [4]], coefficients=name), np.transpose([expected]))


def test_row_3_zero(replay):
    rng = np.random.default_rng(1)
    names = ["a", "b", "c"]
    spec = spec_of(observe(), *({"name": n, "shape": [6, 8]} for n in names))
    zeros = {n: np.zeros((6, 8), np.float32) for n in names}
    grads = {n: rng.standard_normal((6, 8)).astype(np.float32) for n in names}
    together = replay(spec, zeros, [{**grads, "b": zeros["b"]}])
    assert not together.params["b"].any()
    assert np.isfinite(together.params["b"]).all()
    for mate in ("a", "c"):
        alone = orthogonalise(replay, grads[mate])
        assert alone.any()
        assert (-together.params[mate]).tobytes() == alone.tobytes()
    assert not orthogonalise(replay, np.zeros((6, 8))).any()


@pytest.mark.parametrize("k", [1e-30, 1e-20, 1e-10, 1e-3, 1e3, 1e10, 1e20, 1e30])
def test_row_4_range(replay, k):
    close(orthogonalise(replay, V1 * np.float32(k)), PE)


def test_row_5_eps_mode(replay):
    rng = np.random.default_rng(1)
    left, right = rng.standard_normal(5), rng.standard_normal(7)
    u = 1e-6 * np.outer(left / np.linalg.norm(left), right / np.linalg.norm(right))
    out = orthogonalise(replay, u, normalize="eps_add", eps=1e-7, nesterov=False)
    close(np.linalg.svd(out)[1][0], 0.846235)
    strict = orthogonalise(replay, u, normalize="strict", nesterov=False)
    assert abs(np.linalg.svd(strict)[1][0] - 0.846235) > 1e-3


def test_row_6_orientation(replay):
    g = np.random.default_rng(1).standard_normal((6, 10)).astype(np.float32)
    straight, turned = orthogonalise(replay, g), orthogonalise(replay, g.T)
    assert relative_error(turned.T, straight) < 1e-5
    for shape in ((2, 3), (3, 2)):
        padded = np.zeros(shape, np.float32)
        padded[:2, :2] = V1
        out = orthogonalise(replay, padded)
        close(out[:2, :2], PE)
        out[:2, :2] = 0
        assert not out.any()


@pytest.mark.parametrize("form", ["sgd", "ema"])
def test_row_7_momentum_form(replay, form):
    spec = spec_of(observe(momentum_form=form), {"name": "w", "shape": [2, 2]})
    grads = [{"w": V1}, {"w": np.diag([1.0, -2.0]).astype(np.float32)}]
    zero = {"w": np.zeros((2, 2), np.float32)}
    one, two = replay(spec, zero, grads[:1]), replay(spec, zero, grads)
    close(one.params["w"] - two.params["w"], np.diag([1.027732, -1.099708]))


@pytest.mark.parametrize("scale, wide, tall", [
    ("original", 1, 2), ("match_rms_adamw", 12.8, 12.8), ("spectral_max", 64, 64),
    ("spectral", 0.5, 2), ("none", 1, 1)])
def test_row_8_scale(replay, scale, wide, tall):
    # One iteration that does nothing, on a gradient with one entry: the step is the scale itself.
    options = observe(scale=scale, coefficients=[[1, 0, 0]])
    shapes = {"wide": (1024, 4096), "tall": (4096, 1024)}
    spec = spec_of(options, *({"name": n, "shape": list(s)} for n, s in shapes.items()))
    params = {n: np.zeros(s, np.float32) for n, s in shapes.items()}
    grads = {n: np.zeros(s, np.float32) for n, s in shapes.items()}
    for g in grads.values():
        g[7, 9] = 3.0
    done = replay(spec, params, [grads])
    assert done.params["wide"][7, 9] == pytest.approx(-wide, rel=1e-6)
    assert done.params["tall"][7, 9] == pytest.approx(-tall, rel=1e-6)
    assert np.count_nonzero(done.params["wide"]) == 1


def test_row_9_decay(replay):
    options = {"lr": 0.1, "weight_decay": 0.1, "scale": "match_rms_adamw", **EXACT}
    done = replay(spec_of(options, {"name": "w", "shape": [2, 2]}),
                  {"w": np.eye(2, dtype=np.float32)}, [{"w": V1}])
    close(done.params["w"], np.diag([0.958724, 0.958226]))


def test_row_10_conv(replay):
    g = np.random.default_rng(1).standard_normal((64, 32, 3, 3)).astype(np.float32)
    scaled = orthogonalise(replay, g, view="flatten", scale="match_rms_adamw")
    assert scaled.shape == g.shape
    plain = orthogonalise(replay, g.reshape(64, 288)).reshape(g.shape)
    assert relative_error(scaled, 3.394113 * plain.astype(np.float64)) < 1e-6
    assert relative_error(plain.reshape(64, 288),
                          reference.newton_schulz(g.reshape(64, 288),
                                                  reference.POLAR_EXPRESS)) < 1e-5


def test_row_11_experts(replay):
    g = np.random.default_rng(1).standard_normal((5, 8, 12)).astype(np.float32)
    stacked = orthogonalise(replay, g, view="stack")
    for expert in range(5):
        assert stacked[expert].tobytes() == orthogonalise(replay, g[expert]).tobytes()
    order = [3, 0, 4, 1, 2]
    assert orthogonalise(replay, g[order], view="stack").tobytes() == stacked[order].tobytes()


def test_row_12_fused_rows(replay):
    fused = np.concatenate([V1, np.eye(2, dtype=np.float32)])
    split = orthogonalise(replay, fused, view={"split_rows": [2, 2]})
    close(split[:2], PE)
    close(split[2:], 0.878404 * np.eye(2))
    joint = orthogonalise(replay, fused)
    close(joint, [[0.936843, 0], [0, 0.928203], [0.312281, 0], [0, 0.232051]])


def test_split_cols(replay):
    fused = np.concatenate([V1, np.eye(2, dtype=np.float32)], axis=1)
    split = orthogonalise(replay, fused, view={"split_cols": [2, 2]})
    close(split[:, :2], PE)
    close(split[:, 2:], 0.878404 * np.eye(2))


def test_row_13_split_sizes(replay):
    def arguments(sizes):
        w = np.zeros((4608, 4), np.float32)
        entry = {"name": "w", "shape": [4608, 4], "view": {"split_rows": sizes}}
        return spec_of(observe(), entry), {"w": w}, [{"w": w}]

    message = replay.refusal(*arguments([2048, 256, 256]))
    assert "2560" in message and "4608" in message and "split_rows" in message
    report = replay(*arguments([2048, 2048, 256, 256])).reports[0]
    assert report["orthogonalised"][0]["matrices"] == 4


def test_row_14_interleave(replay):
    rng = np.random.default_rng(1)
    gate, up = rng.standard_normal((2, 6, 10)).astype(np.float32)
    woven = np.empty((12, 10), np.float32)
    woven[0::2], woven[1::2] = gate, up
    out = orthogonalise(replay, woven, view={"interleave_rows": 2})
    assert out[0::2].tobytes() == orthogonalise(replay, gate).tobytes()
    assert out[1::2].tobytes() == orthogonalise(replay, up).tobytes()


def test_row_15_block_scale(replay):
    fused = np.concatenate([V1, V1])
    out = orthogonalise(replay, fused, view={"split_rows": [2, 2]}, scale="match_rms_adamw")
    close(out[:2], 0.282843 * PE)
    close(out[2:], 0.282843 * PE)


def mixed_spec(**top):
    """A matrix and a vector, with decay, so that any touch shows."""
    return {"groups": {"muon": {"lr": 0.1, "weight_decay": 0.1, **EXACT},
                       "adamw": {"lr": 0.1, "weight_decay": 0.1}},
            "parameters": [{"name": "w", "shape": [2, 2]}, {"name": "b", "shape": [3]}], **top}


MIXED_PARAMS = {"w": np.eye(2, dtype=np.float32), "b": np.ones(3, np.float32)}
MIXED_GRADS = {"w": V1, "b": np.array([1, -2, 3], np.float32)}


@pytest.mark.parametrize("absent, present", [("w", "b"), ("b", "w")])
def test_row_16_absent(replay, absent, present):
    first = replay(mixed_spec(), MIXED_PARAMS, [MIXED_GRADS])
    grads = {present: MIXED_GRADS[present]}
    second = replay(mixed_spec(), first.params, [grads], state_in=first.state)
    assert second.reports[0]["outcome"] == "committed"
    assert second.reports[0]["absent_parameters"] == 1
    untouched = [name for name in first.state if name.startswith(absent + ".")]
    assert untouched
    for name in untouched:
        assert second.state[name].tobytes() == first.state[name].tobytes()
    assert second.params[absent].tobytes() == first.params[absent].tobytes()
    assert second.params[present].tobytes() != first.params[present].tobytes()


def test_row_16_explicit_zero_is_a_step(replay):
    first = replay(mixed_spec(), MIXED_PARAMS, [MIXED_GRADS])
    zeros = {name: np.zeros_like(g) for name, g in MIXED_GRADS.items()}
    second = replay(mixed_spec(), first.params, [zeros], state_in=first.state)
    p, m = reference.muon(first.params["w"].astype(np.float64), 1.0 * V1, 0.0 * V1, lr=0.1, wd=0.1,
                          mu=0.95, ema=False, coefficients=reference.POLAR_EXPRESS,
                          scale=lambda r, c: 0.2 * max(r, c) ** 0.5)
    assert relative_error(second.params["w"], p) < 1e-6
    assert relative_error(second.state["w.momentum"], m) < 1e-6
    assert second.state["b.step"] == 2
    assert relative_error(second.state["b.exp_avg"], 0.09 * MIXED_GRADS["b"]) < 1e-6


def test_row_17_clip_counts_every_parameter_once(replay):
    grads = {"w": np.array([[0, 3], [0, 0]], np.float32), "b": np.array([0, 4, 0], np.float32)}
    done = replay(mixed_spec(max_grad_norm=1.0), MIXED_PARAMS, [grads])
    assert done.reports[0]["grad_norm"] == 5.0
    assert done.reports[0]["clip_factor"] == 0.2
    assert relative_error(done.state["w.momentum"], 0.2 * grads["w"]) < 1e-6
    assert relative_error(done.state["b.exp_avg"], 0.1 * 0.2 * grads["b"]) < 1e-6
    loose = replay(mixed_spec(max_grad_norm=6.0), MIXED_PARAMS, [grads])
    assert loose.reports[0]["clip_factor"] == 1.0
    assert relative_error(loose.state["w.momentum"], grads["w"]) < 1e-6


def broken(name, value):
    grads = {n: g.copy() for n, g in MIXED_GRADS.items()}
    grads[name].flat[-1] = value
    return grads


@pytest.mark.parametrize("name", ["w", "b"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_row_18_non_finite(replay, name, value):
    clean = replay(mixed_spec(), MIXED_PARAMS, [MIXED_GRADS, MIXED_GRADS])
    done = replay(mixed_spec(), MIXED_PARAMS, [MIXED_GRADS, broken(name, value), MIXED_GRADS])
    assert [r["outcome"] for r in done.reports] == ["committed", "skipped", "committed"]
    assert done.reports[1]["parameter"] == name
    assert f"'{name}'" in done.reports[1]["reason"]
    assert same_bits(done.params, clean.params)
    assert same_bits(done.state, clean.state)
    assert done.state["b.step"] == 2


def test_row_18_a_finite_gradient_whose_scaling_overflows(replay):
    huge = {n: np.full_like(g, 1e38) for n, g in MIXED_GRADS.items()}
    done = replay(mixed_spec(), MIXED_PARAMS, [MIXED_GRADS, huge],
                  steps=[{}, {"grad_scale": 1e-3}])
    assert done.reports[1]["outcome"] == "skipped"
    assert done.reports[1]["parameter"] == "b"  # the first one in canonical order
    once = replay(mixed_spec(), MIXED_PARAMS, [MIXED_GRADS])
    assert same_bits(done.params, once.params)


def test_row_18_an_update_that_overflows(replay):
    # The gradient is finite; momentum after it is not.
    big = {n: np.full_like(g, 3e38) for n, g in MIXED_GRADS.items()}
    done = replay(mixed_spec(), MIXED_PARAMS, [{"w": big["w"]}, {"w": big["w"]}])
    assert done.reports[-1]["outcome"] == "skipped"
    assert done.reports[-1]["parameter"] == "w"


def test_row_22_master(replay):
    spec = spec_of({"lr": 2.0 ** -10, "scale": "none", "coefficients": [[1, 0, 0]], **EXACT},
                   {"name": "w", "shape": [1, 1], "dtype": "bf16"})
    one = bf16([[1.0]])
    done = replay(spec, {"w": one}, [{"w": one}] * 8)
    assert from_bf16(done.params["w"])[0, 0] == 0.9921875
    assert done.state["w.master"][0, 0] == np.float32(1 - 8 * 2.0 ** -10)
    narrow = 1.0
    for _ in range(8):
        narrow = float(from_bf16(bf16([narrow - 2.0 ** -10]))[0])
    assert narrow == 1.0  # what arithmetic in bf16 alone would give


def test_row_24_callers_data(replay, tmp_path):
    arguments = (mixed_spec(), MIXED_PARAMS, [MIXED_GRADS, MIXED_GRADS])
    replay.write(*arguments)
    names = ["p.safetensors", "g0.safetensors", "g1.safetensors", "spec.json"]

    def digests():
        return [hashlib.sha256((tmp_path / n).read_bytes()).hexdigest() for n in names]

    before = digests()
    replay(*arguments)
    assert digests() == before


def test_row_25_late_gradient(replay):
    only_b = {"b": MIXED_GRADS["b"]}
    done = replay(mixed_spec(), MIXED_PARAMS, [only_b] * 3 + [MIXED_GRADS])
    assert [r["absent_parameters"] for r in done.reports] == [1, 1, 1, 0]
    alone = replay(mixed_spec(), MIXED_PARAMS, [{"w": MIXED_GRADS["w"]}])
    assert done.params["w"].tobytes() == alone.params["w"].tobytes()
    assert done.params["w"].tobytes() != MIXED_PARAMS["w"].tobytes()
    assert done.state["b.step"] == 4
