"""The update rules once more, in fp64 numpy, written from the formulas and from nothing else."""

import numpy as np

PE = [(8.28721201814563, -23.595886519098837, 17.300387312530933),
      (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
      (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
      (3.3184196573706015, -2.488488024314874, 0.51004894012372),
      (2.300652019954817, -1.6689039845747493, 0.4188073119525673)]
POLAR_EXPRESS = [(a / 1.05, b / 1.05**3, c / 1.05**5) for a, b, c in PE]


def newton_schulz(u):
    """NS of one matrix, strict normalisation, Polar Express."""
    norm = np.sqrt((u * u).sum())
    if norm == 0:
        return np.zeros_like(u)
    x = u / norm
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    for a, b, c in POLAR_EXPRESS:
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


def blocks(array, view):
    """The matrices of a parameter, as numpy views that can be written."""
    view = {} if view is None else {view: True} if isinstance(view, str) else view
    if view.get("stack"):
        rest = {k: v for k, v in view.items() if k != "stack"}
        return [m for expert in array for m in blocks(expert, rest)]
    if view.get("flatten"):
        array = array.reshape(array.shape[0], -1)
    if "split_rows" in view:
        return np.split(array, np.cumsum(view["split_rows"])[:-1], axis=0)
    if "split_cols" in view:
        return np.split(array, np.cumsum(view["split_cols"])[:-1], axis=1)
    if "interleave_rows" in view:
        k = view["interleave_rows"]
        return [array[j::k] for j in range(k)]
    return [array]


class Optimizer:
    """Muon (sgd momentum, nesterov, match_rms_adamw) and AdamW on fp64 copies of `parameters`."""

    def __init__(self, entries, parameters):
        self.entries = {entry["name"]: entry for entry in entries}
        self.values = {name: array.astype(np.float64) for name, array in parameters.items()}
        self.momentum = {name: np.zeros_like(array) for name, array in self.values.items()}
        self.second = {name: np.zeros_like(array) for name, array in self.values.items()}
        self.count = dict.fromkeys(self.values, 0)

    def step(self, gradients, groups, max_norm=None):
        """`groups`: group name to its values in this step. A missing gradient: absent."""
        gradients = {name: g.astype(np.float64) for name, g in gradients.items() if g is not None}
        norm = np.sqrt(sum((g * g).sum() for g in gradients.values()))
        factor = min(1.0, max_norm / norm) if max_norm is not None and norm > 0 else 1.0
        for name, gradient in gradients.items():
            entry = self.entries[name]
            muon = entry.get("rule", "muon" if len(entry["shape"]) > 1 else "adamw") == "muon"
            values = groups[entry.get("group", "muon" if muon else "adamw")]
            (self._muon if muon else self._adamw)(name, gradient * factor, values)
        return norm

    def _muon(self, name, gradient, values):
        mu = values.get("momentum", 0.95)
        m = self.momentum[name]
        m *= mu
        m += gradient
        u = gradient + mu * m
        self.values[name] *= 1 - values["lr"] * values["weight_decay"]
        view = self.entries[name].get("view")
        for p, block in zip(blocks(self.values[name], view), blocks(u, view)):
            p -= values["lr"] * 0.2 * np.sqrt(max(block.shape)) * newton_schulz(block)

    def _adamw(self, name, gradient, values):
        b1, b2 = values.get("betas", (0.9, 0.999))
        self.count[name] += 1
        t = self.count[name]
        v1, v2, p = self.momentum[name], self.second[name], self.values[name]
        p *= 1 - values["lr"] * values["weight_decay"]
        v1 *= b1
        v1 += (1 - b1) * gradient
        v2 *= b2
        v2 += (1 - b2) * gradient * gradient
        p -= values["lr"] / (1 - b1**t) * v1 / (np.sqrt(v2 / (1 - b2**t)) + values.get("eps", 1e-8))


def distances(start, values, reference):
    """Relative Frobenius error of what was added to `start`, by parameter."""
    return {name: np.linalg.norm((array.astype(np.float64) - reference[name]).ravel()) /
            np.linalg.norm((reference[name] - start[name]).ravel())
            for name, array in values.items()}


def distance(start, values, reference):
    """The largest of them."""
    return max(distances(start, values, reference).values())
