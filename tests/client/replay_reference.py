"""The update rules again, in fp64 numpy, written from the formulas and nothing else."""

import numpy as np

KELLER_JORDAN = [(3.4445, -4.7750, 2.0315)] * 5
YOU = [(4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037),
       (2.8769, -3.1427, 1.2046), (2.8366, -3.0525, 1.2012)]
POLAR_EXPRESS = [(a / 1.05, b / 1.05 ** 3, c / 1.05 ** 5) for a, b, c in [
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673)]]


def newton_schulz(u, coefficients, normalize=lambda norm: norm):
    x = np.asarray(u, np.float64)
    x = x / normalize(np.linalg.norm(x))
    transposed = x.shape[0] > x.shape[1]
    x = x.T if transposed else x
    for a, b, c in coefficients:
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if transposed else x


def muon(p, m, g, *, lr, wd, mu, ema, coefficients, scale, normalize=lambda norm: norm,
         nesterov=True, decay_after=False):
    """One step of one matrix; returns p and m. `decay_after` is a rule that is deliberately wrong."""
    g_weight = 1 - mu if ema else 1.0
    m = mu * m + g_weight * g
    u = g_weight * g + mu * m if nesterov else m
    step = lr * scale(*p.shape) * newton_schulz(u, coefficients, normalize)
    if decay_after:
        return (1 - lr * wd) * (p - step), m
    return (1 - lr * wd) * p - step, m


def adamw(p, v1, v2, t, g, *, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    """One step; `t` counts this one. Returns p, v1, v2."""
    p = (1 - lr * wd) * p
    v1 = b1 * v1 + (1 - b1) * g
    v2 = b2 * v2 + (1 - b2) * g * g
    return p - lr / (1 - b1 ** t) * v1 / (np.sqrt(v2 / (1 - b2 ** t)) + eps), v1, v2
