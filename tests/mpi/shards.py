"""Shards over many trainers (case 21): uneven rows, empty regions, and refusals that name rows."""

import numpy as np

import dmuond

SPEC = {"groups": {"muon": {"precision": "fp32", "form": "direct"}},
        "parameters": [{"name": "rows72", "shape": [72, 20]}, {"name": "rows3", "shape": [3, 8]}]}


def even_chunks(rows, trainer, trainers):
    """FSDP2's split: chunks of ceil(rows / trainers), the last ones short or empty."""
    chunk = -(-rows // trainers)
    start = min(rows, trainer * chunk)
    return start, min(rows, start + chunk) - start


def full(seed):
    rng = np.random.default_rng(seed)
    return {e["name"]: rng.standard_normal(e["shape"]).astype(np.float32)
            for e in SPEC["parameters"]}


def part(context, arrays):
    out = {}
    for name, array in arrays.items():
        start, count = even_chunks(len(array), context.trainer, context.trainers)
        out[name] = np.ascontiguousarray(array[start:start + count])
    return out


def regions(context):
    out = {}
    for entry in SPEC["parameters"]:
        start, count = even_chunks(entry["shape"][0], context.trainer, context.trainers)
        out[entry["name"]] = ((start, 0), (count, entry["shape"][1]))
    return out


def row_shards_equal_whole_parameters(context):
    results = []
    for sharded in (True, False):
        take = (lambda a: part(context, a)) if sharded else (lambda a: a)
        p = take(full(1))
        with context.open(SPEC, p, contribution="replica",
                          regions=regions(context) if sharded else None) as session:
            for step in range(3):
                session.begin_step()
                session.push_all(take(full(step + 2)))
                assert session.step().outcome == "committed"
        results.append(context.concatenate(p) if sharded else p)
    for name in results[0]:
        assert results[0][name].tobytes() == results[1][name].tobytes(), name
    context.record("reduced/shards", results[0])


def uneven_coverage_is_refused(context):
    """The last trainer's rows overlap its neighbour's: attach names parameter and rows."""
    mine = regions(context)
    if context.trainer == 0:
        (start, column), (count, columns) = mine["rows72"]
        mine["rows72"] = ((start, column), (count + 1, columns))
    p = {name: np.zeros(extent, np.float32) for name, (_, extent) in mine.items()}
    try:
        context.open(SPEC, p, contribution="replica", regions=mine).close()
        raise AssertionError("was accepted")
    except dmuond.Error as error:
        # The one that attaches last is refused; the others hear it when the session ends.
        word = str(error)
    words = context.everybody_said(word)
    assert any("rows72" in w and "row" in w for w in words), words


CASES = [row_shards_equal_whole_parameters, uneven_coverage_is_refused]
