"""Cases that involve a session. Each runs on every trainer, for every channel and launch."""

import numpy as np

import dmuond
import model
import reference

V1 = np.diag([3.0, 4.0]).astype(np.float32)
EXACT = 1e-5  # relative, Frobenius norm of the update; fp32, direct form


def close(actual, expected):
    error = np.linalg.norm(np.asarray(actual, np.float64) - expected)
    assert error <= EXACT * np.linalg.norm(expected), (actual, expected)


def direct(**group):
    return {"muon": {"precision": "fp32", "form": "direct", "weight_decay": 0.0, **group}}


def steps_of(context, spec, parameters, gradients, schedule=lambda step: None, **options):
    """Trains with gradients(step) for model.STEPS steps; returns parameters and reports."""
    reports = []
    with context.open(spec, parameters, **options) as session:
        for step in range(1, model.STEPS + 1):
            assert session.begin_step(schedule(step)) == step
            session.push_all(gradients(step))
            reports.append(session.step())
            assert reports[-1].outcome == "committed"
            compute = reports[-1].owner_compute_s
            assert len(compute) == context.owners and min(compute) >= 0, compute
            assert max(compute) == reports[-1].busiest_owner_s > 0, compute
    return parameters, reports


def reference_run(gradients, mutate=None):
    optimizer = reference.Optimizer(model.entries(), model.parameters())
    if mutate:
        mutate(optimizer)
    norms = [optimizer.step(gradients(step), model.schedule(step), model.MAX_NORM)
             for step in range(1, model.STEPS + 1)]
    return optimizer.values, norms


def every_view_with_reduced_gradients(context):
    """Whole parameters and row ranges, two registration orders: all bitwise equal (cases 20, 24)."""
    given = {step: model.gradients(step) for step in range(1, model.STEPS + 1)}
    before = {step: {n: g.tobytes() for n, g in gs.items()} for step, gs in given.items()}
    values, reports = steps_of(context, model.spec(), model.parameters(), given.__getitem__,
                               model.schedule, contribution="replica")
    assert all(g.tobytes() == before[s][n] for s, gs in given.items() for n, g in gs.items())
    context.record("reduced/every_view", values)
    context.record("reduced/norms", {"norm": [r.grad_norm for r in reports]})

    reverse = context.trainer % 2 == 0  # trainers register in different orders
    again, _ = steps_of(context, model.spec(reverse=reverse), model.parameters(),
                        given.__getitem__, model.schedule, contribution="replica")
    context.record("reduced/every_view", again)

    start = model.parameters()
    expected, norms = reference_run(given.__getitem__)
    far = reference.distances(start, values, expected)
    assert max(far.values()) < EXACT, far
    np.testing.assert_allclose([r.grad_norm for r in reports], norms, rtol=1e-6)
    assert any(r.clip_factor < 1 for r in reports)
    matrices = sum(o.matrices for o in reports[0].orthogonalised)
    assert matrices == 1 + 3 + 4 + 3 + 2 + 2 + 1 + 1, reports[0]
    for broken in (decay_after_the_step, swapped_coefficient):
        wrong, _ = reference_run(given.__getitem__, broken)
        assert reference.distance(start, values, wrong) > 10 * EXACT, broken.__name__


def decay_after_the_step(optimizer):
    def step(name, gradient, values):
        reference.Optimizer._muon(optimizer, name, gradient, dict(values, weight_decay=0.0))
        optimizer.values[name] *= 1 - values["lr"] * values["weight_decay"]
    optimizer._muon = step


def swapped_coefficient(optimizer):
    original = optimizer._muon

    def step(name, gradient, values):
        kept = list(reference.POLAR_EXPRESS)
        a, b, c = kept[2]
        reference.POLAR_EXPRESS[2] = (a, c, b)
        try:
            original(name, gradient, values)
        finally:
            reference.POLAR_EXPRESS[:] = kept
    optimizer._muon = step


def row_range(shape, trainer, trainers):
    """An uneven split of the first dimension; later trainers hold more."""
    weights = np.cumsum([0] + [i + 1 for i in range(trainers)])
    lo, hi = (int(shape[0] * w / weights[-1]) for w in weights[trainer:trainer + 2])
    return (lo,) + (0,) * (len(shape) - 1), (hi - lo,) + tuple(shape[1:])


def every_view_in_row_ranges(context):
    """Each trainer holds some rows of every parameter (cases 20, 21)."""
    regions = {e["name"]: row_range(e["shape"], context.trainer, context.trainers)
               for e in model.ENTRIES}

    def part(arrays):
        return {name: np.ascontiguousarray(a[regions[name][0][0]:][:regions[name][1][0]])
                for name, a in arrays.items()}

    values, _ = steps_of(context, model.spec(), part(model.parameters()),
                         lambda step: part(model.gradients(step)), model.schedule,
                         contribution="replica", regions=regions)
    context.record("reduced/every_view", context.concatenate(values))


def every_view_with_partial_gradients(context):
    """The daemon averages over trainers; bitwise over owners and channels."""
    def mean(step, trainers):
        parts = [model.gradients(step, t) for t in range(trainers)]
        return {name: sum(p[name].astype(np.float64) for p in parts) / trainers
                for name in parts[0]}

    values, _ = steps_of(context, model.spec(), model.parameters(),
                         lambda step: model.gradients(step, context.trainer), model.schedule)
    context.record(f"partial-{context.trainers}/every_view", values)
    start = model.parameters()
    expected, _ = reference_run(lambda step: mean(step, context.trainers))
    far = reference.distances(start, values, expected)
    assert max(far.values()) < EXACT, far
    if context.trainers > 1:
        dropped, _ = reference_run(lambda step: mean(step, context.trainers - 1))
        assert reference.distance(start, values, dropped) > 10 * EXACT


def one_step(context, spec, parameters, gradients, **values):
    with context.open(spec, parameters, contribution="replica") as session:
        session.begin_step(**values)
        session.push_all(gradients)
        report = session.step()
    return report


def zero_gradient_leaves_batch_mates_alone(context):
    """Case 3."""
    rng = np.random.default_rng(3)
    g = rng.standard_normal((8, 8)).astype(np.float32)
    spec = {"groups": direct(), "parameters": [{"name": n, "shape": [8, 8]} for n in "ab"]}
    both = {n: np.ones((8, 8), np.float32) for n in "ab"}
    report = one_step(context, spec, both, {"a": g, "b": np.zeros_like(g)})
    assert report.outcome == "committed"
    assert (both["b"] == 1).all()
    spec["parameters"].pop()
    alone = {"a": np.ones((8, 8), np.float32)}
    one_step(context, spec, alone, {"a": g})
    assert alone["a"].tobytes() == both["a"].tobytes()
    context.record("reduced/zero", both)


def momentum_forms_agree(context):
    """Case 7: both forms give the same second step."""
    for form in ("sgd", "ema"):
        spec = {"groups": direct(momentum_form=form, scale="none", lr=1.0),
                "parameters": [{"name": "w", "shape": [2, 2]}]}
        p = {"w": np.zeros((2, 2), np.float32)}
        with context.open(spec, p, contribution="replica") as session:
            for gradient in (V1, np.diag([1.0, -2.0]).astype(np.float32)):
                before = p["w"].copy()
                session.begin_step()
                session.push("w", gradient)
                session.step()
        close(before - p["w"], np.diag([1.027732, -1.099708]))


def decay_comes_first(context):
    """Case 9."""
    spec = {"groups": direct(lr=0.1, weight_decay=0.1),
            "parameters": [{"name": "w", "shape": [2, 2]}]}
    p = {"w": np.eye(2, dtype=np.float32)}
    one_step(context, spec, p, {"w": V1})
    close(p["w"] - np.eye(2), np.diag([0.958724, 0.958226]) - np.eye(2))


def experts_are_separate(context):
    """Case 11: a stack equals separate runs, and permuting experts permutes the output."""
    rng = np.random.default_rng(11)
    g = rng.standard_normal((3, 6, 10)).astype(np.float32)
    spec = {"groups": direct(), "parameters": [{"name": "w", "shape": [3, 6, 10], "view": "stack"}]}
    p = {"w": np.zeros_like(g)}
    one_step(context, spec, p, {"w": g})
    order = [2, 0, 1]
    q = {"w": np.zeros_like(g)}
    one_step(context, spec, q, {"w": g[order]})
    assert q["w"].tobytes() == p["w"][order].tobytes()
    names = [f"w{i}" for i in range(3)]
    spec = {"groups": direct(), "parameters": [{"name": n, "shape": [6, 10]} for n in names]}
    separate = {n: np.zeros((6, 10), np.float32) for n in names}
    one_step(context, spec, separate, {n: g[i] for i, n in enumerate(names)})
    assert b"".join(separate[n].tobytes() for n in names) == p["w"].tobytes()


def fused_rows_are_split(context):
    """Cases 12 and 14: blocks are orthogonalised one by one."""
    g = np.vstack([V1, np.eye(2)]).astype(np.float32)
    rule = direct(lr=1.0, scale="none")
    p = {"w": np.zeros((4, 2), np.float32)}
    one_step(context, {"groups": rule, "parameters": [
        {"name": "w", "shape": [4, 2], "view": {"split_rows": [2, 2]}}]}, p, {"w": g})
    close(-p["w"][:2], np.diag([1.105790, 1.123382]))
    close(-p["w"][2:], 0.878404 * np.eye(2))
    q = {"w": np.zeros((4, 2), np.float32)}
    one_step(context, {"groups": rule, "parameters": [
        {"name": "w", "shape": [4, 2], "view": {"interleave_rows": 2}}]}, q, {"w": g[[0, 2, 1, 3]]})
    assert q["w"][[0, 2, 1, 3]].tobytes() == p["w"].tobytes()
    joint = {"w": np.zeros((4, 2), np.float32)}
    one_step(context, {"groups": rule, "parameters": [{"name": "w", "shape": [4, 2]}]}, joint,
             {"w": g})
    close(-np.array([joint["w"][0, 0], joint["w"][1, 1], joint["w"][2, 0], joint["w"][3, 1]]),
          np.array([0.936843, 0.928203, 0.312281, 0.232051]))


def absent_is_not_zero(context):
    """Case 16."""
    spec = {"groups": direct(lr=0.1, weight_decay=0.1), "parameters": [
        {"name": "w", "shape": [2, 2]}, {"name": "b", "shape": [3]}]}
    p = {"w": np.eye(2, dtype=np.float32), "b": np.ones(3, np.float32)}
    with context.open(spec, p, contribution="replica") as session:
        def step(**gradients):
            session.begin_step()
            session.push_all(gradients)
            before = p["w"].copy(), p["b"].copy()
            report = session.step()
            return report, before

        report, before = step(w=V1, b=np.ones(3, np.float32))
        assert report.absent_parameters == 0
        report, before = step(w=None, b=np.ones(3, np.float32))
        assert (report.outcome, report.absent_parameters) == ("committed", 1)
        assert p["w"].tobytes() == before[0].tobytes() and (p["b"] != before[1]).all()
        assert not report.orthogonalised
        report, before = step(w=np.zeros((2, 2), np.float32), b=None)
        assert p["b"].tobytes() == before[1].tobytes()
        # Momentum .95 V1, u = .95 * .95 V1: the direction is that of V1, after the decay.
        moved = p["w"].astype(np.float64) - 0.99 * before[0]
        close(moved, -0.1 * 0.2 * np.sqrt(2) * np.diag([1.105790, 1.123382]))
        report, before = step(w=None, b=None)
        assert (report.outcome, report.absent_parameters) == ("committed", 2)


def absent_on_some_counts_as_zero(context):
    """A gradient from the last trainer only: the others count as zeros in the mean."""
    spec = {"groups": {"adamw": {"lr": 0.5, "weight_decay": 0.0, "betas": [0.0, 0.0], "eps": 3.0}},
            "parameters": [{"name": "b", "shape": [3]}]}
    p = {"b": np.zeros(3, np.float32)}
    with context.open(spec, p) as session:
        session.begin_step()
        if context.trainer == context.trainers - 1:
            session.push("b", np.full(3, 6.0, np.float32))
        assert session.step().absent_parameters == 0
    g = 6.0 / context.trainers
    close(p["b"], np.full(3, -0.5 * g / (g + 3.0)))


def norm_counts_everything_once(context):
    """Case 17: squared norms 9 and 16, one Muon and one AdamW parameter, make 5."""
    spec = {"groups": direct(), "max_grad_norm": 1.0, "parameters": [
        {"name": "w", "shape": [3, 3]}, {"name": "b", "shape": [4]}]}
    p = {"w": np.zeros((3, 3), np.float32), "b": np.zeros(4, np.float32)}
    report = one_step(context, spec, p, {"w": np.ones((3, 3), np.float32),
                                         "b": np.full(4, 2.0, np.float32)})
    assert (report.grad_norm, report.clip_factor) == (5.0, 0.2), report
    report = one_step(context, spec, p, {"w": np.ones((3, 3), np.float32) * 64,
                                         "b": np.full(4, 128.0, np.float32)}, grad_scale=64.0)
    assert report.grad_norm == 5.0, report


def non_finite_steps_are_skipped_by_all(context):
    """Case 18: nothing changes, the number is used up, the next step is as if never sent."""
    spec = model.spec()

    def train(bad):
        p = model.parameters()
        outcomes = []
        with context.open(spec, p) as session:
            for kind in ["good"] + bad + ["good"]:
                step = session.begin_step()
                gradients = model.gradients(1 if not outcomes else 2, context.trainer)
                if kind == "nan" and context.trainer == context.trainers - 1:
                    gradients["qkv"][20, 3] = np.nan
                if kind == "overflow":
                    gradients["conv"][:] = 3e38
                before = {n: a.tobytes() for n, a in p.items()}
                session.push_all(gradients)
                report = session.step()
                outcomes.append(report.outcome)
                assert report.next_step == step + 1
                if report.outcome == "skipped":
                    assert report.parameter == {"nan": "qkv", "overflow": "conv"}[kind]
                    assert {n: a.tobytes() for n, a in p.items()} == before
        return p, outcomes

    bad = ["nan"] + (["overflow"] if context.trainers > 1 else [])
    expected, _ = train([])
    values, outcomes = train(bad)
    assert outcomes == ["committed"] + ["skipped"] * len(bad) + ["committed"], outcomes
    assert all(values[n].tobytes() == expected[n].tobytes() for n in values)


def micro_batches_cost_one_update(context):
    """Case 19: 4 micro-batches, 2 matrices, 2 steps: 4 NS calls in all."""
    names = ("a", "b")
    spec = {"groups": direct(), "parameters": [{"name": n, "shape": [6, 9]} for n in names]}
    rng = np.random.default_rng([19, context.trainer])
    micro = rng.standard_normal((2, 4, 6, 9)).astype(np.float32)
    results = []
    for pushes in (4, 1):
        p = {n: np.zeros((6, 9), np.float32) for n in names}
        calls = 0
        with context.open(spec, p) as session:
            for step in range(2):
                session.begin_step()
                for i in range(4 - pushes, 4):
                    accumulated = micro[step, :i + 1].sum(axis=0)
                    for n in names:
                        session.push(n, accumulated, final=i == 3)
                report = session.step()
                calls += sum(o.matrices for o in report.orthogonalised)
        assert calls == 4, calls
        results.append(p)
    assert all(results[0][n].tobytes() == results[1][n].tobytes() for n in names)


def masters_are_wider_than_what_is_published(context):
    """Case 22: eight updates of -2^-10 reach a bf16 parameter."""
    spec = {"groups": {"adamw": {"lr": 2.0**-10, "weight_decay": 0.0, "betas": [0.0, 0.0]}},
            "parameters": [{"name": "b", "shape": [5], "dtype": "bf16"}]}
    one = np.full(5, 0x3F80, np.uint16)
    p = {"b": one.copy()}
    with context.open(spec, p, contribution="replica") as session:
        for _ in range(8):
            session.begin_step()
            session.push("b", one)
            session.step()
    assert ((p["b"].astype(np.uint32) << 16).view(np.float32) == 0.9921875).all(), p


def late_gradients_update(context):
    """Case 25: absent in steps 1 to 3, present in 4; AdamW's count starts there."""
    spec = {"groups": {"adamw": {"lr": 0.25, "weight_decay": 0.0},
                       **direct(lr=1.0, scale="none")},
            "parameters": [{"name": "w", "shape": [2, 2]}, {"name": "b", "shape": [2]},
                           {"name": "c", "shape": [2]}]}
    p = {"w": np.zeros((2, 2), np.float32), "b": np.zeros(2, np.float32),
         "c": np.zeros(2, np.float32)}
    with context.open(spec, p, contribution="replica") as session:
        for step in range(1, 5):
            session.begin_step()
            session.push("c", np.ones(2, np.float32))
            if step == 4:
                assert not p["w"].any() and not p["b"].any()
                session.push("w", V1)
                session.push("b", np.full(2, 8.0, np.float32))
            session.step()
    close(-p["w"], np.diag([1.105790, 1.123382]))
    close(p["b"], np.full(2, -0.25))


def bad_requests_change_nothing(context):
    """Every refusal names the thing; the session goes on as if it had not been made."""
    p = {"w": np.zeros((2, 2), np.float32)}
    spec = {"groups": direct(lr=1.0, scale="none"), "parameters": [{"name": "w", "shape": [2, 2]}]}
    with context.open(spec, p, contribution="replica") as session:
        for values, words in (({"muon": {"lr": -1.0}}, "muon.lr"), ({"moun": {"lr": 1.0}}, "moun")):
            try:
                session.begin_step(values)
                raise AssertionError("was accepted")
            except dmuond.InvalidArgument as error:
                assert words in str(error), error
        session.begin_step()
        for name, gradient in (("v", V1), ("w", V1[:1]), ("w", V1.astype(np.float64))):
            try:
                session.push(name, gradient)
                raise AssertionError("was accepted")
            except dmuond.InvalidArgument as error:
                assert f"'{name}'" in str(error), error
        session.push("w", V1)
        assert session.step().outcome == "committed"
    close(-p["w"], np.diag([1.105790, 1.123382]))


CASES = [
    every_view_with_reduced_gradients,
    every_view_in_row_ranges,
    every_view_with_partial_gradients,
    zero_gradient_leaves_batch_mates_alone,
    momentum_forms_agree,
    decay_comes_first,
    experts_are_separate,
    fused_rows_are_split,
    absent_is_not_zero,
    absent_on_some_counts_as_zero,
    norm_counts_everything_once,
    non_finite_steps_are_skipped_by_all,
    micro_batches_cost_one_update,
    masters_are_wider_than_what_is_published,
    late_gradients_update,
    bad_requests_change_nothing,
]
