"""A small model with every view, its schedule and its gradients; all from fixed seeds."""

import numpy as np

STEPS = 20
MAX_NORM = 3.0

ENTRIES = [
    {"name": "emb", "shape": [37, 24], "group": "embed"},
    {"name": "conv", "shape": [6, 4, 3, 3], "view": "flatten"},
    {"name": "experts.w1", "shape": [3, 12, 30], "view": "stack"},
    {"name": "experts.w13", "shape": [2, 16, 24], "view": {"stack": True, "split_rows": [8, 8]}},
    {"name": "qkv", "shape": [48, 40], "view": {"split_rows": [16, 16, 16]}},
    {"name": "cols", "shape": [10, 48], "view": {"split_cols": [24, 24]}},
    {"name": "gate_up", "shape": [24, 30], "view": {"interleave_rows": 2}},
    {"name": "tall", "shape": [32, 8]},
    {"name": "wide", "shape": [8, 40]},
    {"name": "norm", "shape": [24]},
    {"name": "big", "shape": [300, 300], "rule": "adamw"},  # two blocks of 65,536 elements
]


def spec(reverse=False, clip=True):
    entries = [dict(e, rule="adamw") if e.get("group") == "embed" else e for e in ENTRIES]
    return {"groups": {"muon": {"lr": 0.02, "weight_decay": 0.1, "precision": "fp32",
                                "form": "direct"},
                       "adamw": {"lr": 0.01, "weight_decay": 0.05},
                       "embed": {"rule": "adamw", "lr": 0.003, "betas": [0.9, 0.95],
                                 "weight_decay": 0.0}},
            "max_grad_norm": MAX_NORM if clip else None,
            "parameters": entries[::-1] if reverse else entries}


def entries():
    return spec()["parameters"]


def parameters(seed=1):
    rng = np.random.default_rng(seed)
    return {e["name"]: (0.1 * rng.standard_normal(e["shape"])).astype(np.float32) for e in ENTRIES}


def gradients(step, trainer=0):
    rng = np.random.default_rng([7, step, trainer])
    return {e["name"]: (rng.standard_normal(e["shape"]) * (0.2 + 0.1 * step)).astype(np.float32)
            for e in ENTRIES}


def schedule(step):
    """lr and weight decay of each group in a step: warm-up, then decay."""
    factor = min(1.0, step / 5) * (1 - 0.03 * step)
    return {"muon": {"lr": 0.02 * factor, "weight_decay": 0.1},
            "adamw": {"lr": 0.01 * factor, "weight_decay": 0.05},
            "embed": {"lr": 0.003 * factor, "weight_decay": 0.0, "betas": (0.9, 0.95)}}
