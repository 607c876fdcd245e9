"""The five presets against a re-statement of their rules, and rules that are deliberately wrong."""

import numpy as np
import pytest

import replay_reference as reference
from replay_support import EXACT, Replayer, relative_error

STEPS = 10
SHAPES = {"wide": (24, 80), "tall": (80, 24), "small": (3, 16)}


def original(r, c):
    return max(1.0, r / c) ** 0.5


def match_rms_adamw(r, c):
    return 0.2 * max(r, c) ** 0.5


PRESETS = {
    "dmuon": dict(lr=0.02, wd=0.0, mu=0.95, ema=False, coefficients=reference.POLAR_EXPRESS,
                  scale=match_rms_adamw),
    "keller_jordan": dict(lr=0.02, wd=0.0, mu=0.95, ema=True, scale=original,
                          coefficients=reference.KELLER_JORDAN, normalize=lambda n: n + 1e-7),
    "moonlight": dict(lr=1e-3, wd=0.1, mu=0.95, ema=False, scale=match_rms_adamw,
                      coefficients=reference.KELLER_JORDAN, normalize=lambda n: n + 1e-7),
    "torch": dict(lr=1e-3, wd=0.1, mu=0.95, ema=True, scale=original,
                  coefficients=reference.KELLER_JORDAN, normalize=lambda n: max(n, 1e-7)),
    "gram_newton_schulz": dict(lr=1e-3, wd=0.1, mu=0.95, ema=False, scale=match_rms_adamw,
                               coefficients=reference.POLAR_EXPRESS,
                               normalize=lambda n: n + 1e-7),
}


def problem():
    # Small parameters: the fp32 rounding of a large one would hide a small update.
    rng = np.random.default_rng(7)
    params = {n: (1e-2 * rng.standard_normal(s)).astype(np.float32) for n, s in SHAPES.items()}
    params["bias"] = (1e-3 * rng.standard_normal(50)).astype(np.float32)
    grads = [{n: rng.standard_normal(p.shape).astype(np.float32) for n, p in params.items()}
             for _ in range(STEPS)]
    return params, grads


@np.errstate(over="ignore", invalid="ignore")  # some of the wrong rules diverge
def run_reference(params, grads, **rule):
    """Parameters after all steps, in fp64."""
    p = {n: a.astype(np.float64) for n, a in params.items()}
    m = {n: np.zeros(s) for n, s in SHAPES.items()}
    v1, v2 = np.zeros(50), np.zeros(50)
    for t, step in enumerate(grads, start=1):
        for name in SHAPES:
            p[name], m[name] = reference.muon(p[name], m[name], step[name].astype(np.float64),
                                              **rule)
        p["bias"], v1, v2 = reference.adamw(p["bias"], v1, v2, t, step["bias"].astype(np.float64))
    return p


def spec_of(preset, **muon):
    return {"preset": preset, "groups": {"muon": {**EXACT, **muon}},
            "parameters": [{"name": n, "shape": list(s)} for n, s in
                           {**SHAPES, "bias": (50,)}.items()]}


def worst_error(params, actual, expected):
    """Of the whole update, over parameters."""
    return max(relative_error(actual[n] - params[n].astype(np.float64),
                              expected[n] - params[n].astype(np.float64)) for n in params)


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_matches_its_rule(tmp_path, preset):
    params, grads = problem()
    done = Replayer(tmp_path)(spec_of(preset), params, grads)
    assert worst_error(params, done.params, run_reference(params, grads, **PRESETS[preset])) < 1e-5


def test_gram_form_matches_within_its_tolerance(tmp_path):
    params, grads = problem()
    done = Replayer(tmp_path)(spec_of("dmuon", form="gram"), params, grads)
    expected = run_reference(params, grads, **PRESETS["dmuon"])
    assert worst_error(params, done.params, expected) < 3e-4
    assert {entry["form"] for entry in done.reports[0]["orthogonalised"]} == {"gram"}


def test_options_override_the_preset(tmp_path):
    params, grads = problem()
    rule = {**PRESETS["torch"], "ema": False, "nesterov": False, "mu": 0.5, "lr": 0.01,
            "scale": lambda r, c: (r / c) ** 0.5, "coefficients": reference.YOU}
    spec = spec_of("torch", momentum_form="sgd", nesterov=False, momentum=0.5, lr=0.01,
                   scale="spectral", coefficients="you")
    done = Replayer(tmp_path)(spec, params, grads)
    assert worst_error(params, done.params, run_reference(params, grads, **rule)) < 1e-5


# The comparison must be able to fail: each of these is a mistake that somebody could make.
BROKEN = {
    "decay after the step": dict(decay_after=True),
    "swapped coefficients": dict(
        coefficients=[(a, c, b) for a, b, c in reference.KELLER_JORDAN]),
    "one iteration missing": dict(coefficients=reference.KELLER_JORDAN[:4]),
    "scaled learning rate in the decay": dict(wd=0.1 * 0.2 * 80 ** 0.5),
    "other momentum form": dict(ema=True, normalize=lambda n: n + 1e-2),
    "no nesterov": dict(nesterov=False),
    "scale of rows only": dict(scale=lambda r, c: 0.2 * r ** 0.5),
}


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_wrong_rule_is_noticed(tmp_path, mistake):
    params, grads = problem()
    done = Replayer(tmp_path)(spec_of("moonlight"), params, grads)
    rule = {**PRESETS["moonlight"], **BROKEN[mistake]}
    error = worst_error(params, done.params, run_reference(params, grads, **rule))
    assert not error <= 5e-5  # NaN counts as noticed
