"""Several trainers of one session, as threads of this process (channel grpc)."""

import concurrent.futures
import contextlib

import dmuond
import numpy as np


def together(calls):
    """Runs functions at the same time, as trainers do; their results, or the first error."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(timeout=60) for future in [pool.submit(call) for call in calls]]


@contextlib.contextmanager
def sessions(daemon, spec, arrays, regions=None, **options):
    """Opens one session per item of `arrays`; leaves them all at the end."""
    count = len(arrays)
    regions = regions or [None] * count
    opened = together([
        lambda trainer=trainer: dmuond.Session.open(
            spec, trainer=trainer, trainers=count, parameters=arrays[trainer],
            regions=regions[trainer], address=daemon.address, connect_timeout=20, **options)
        for trainer in range(count)])
    try:
        yield opened
    finally:
        together([session.close for session in opened])


def step(opened, gradients, groups=None, grad_scale=1.0):
    """One step of all trainers; `gradients` has a dict for each. Their reports."""
    def one(session, mine):
        session.begin_step(groups, grad_scale)
        session.push_all(mine)
        return session.step()
    return together([lambda s=s, g=g: one(s, g) for s, g in zip(opened, gradients)])


def cut(array, region):
    """The part of an array that lies in (start, extent)."""
    if region is None:
        return array
    return array[tuple(slice(first, first + count) for first, count in zip(*region))]


def adamw(parameter, gradients, lr, weight_decay=0.01, beta1=0.9, beta2=0.999, eps=1e-8):
    """The AdamW formula of the update rules, in fp64, for a list of gradients."""
    p = parameter.astype(np.float64)
    v1 = v2 = np.zeros_like(p)
    for t, g in enumerate(gradients, start=1):
        g = g.astype(np.float64)
        p = (1 - lr * weight_decay) * p
        v1 = beta1 * v1 + (1 - beta1) * g
        v2 = beta2 * v2 + (1 - beta2) * g * g
        p = p - lr / (1 - beta1**t) * v1 / (np.sqrt(v2 / (1 - beta2**t)) + eps)
    return p
