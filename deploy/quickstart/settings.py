"""The settings that the learning-rate sweep found, and the schedule that both optimizers follow."""

import json
import math
import pathlib

SWEEP = pathlib.Path(__file__).with_name("sweep.json")
WARMUP = 0.1  # of all steps
FLOOR = 0.05  # of the peak learning rate, at the end


def best(optimizer):
    """The sweep's best settings of `optimizer`, a dict of floats."""
    try:
        return json.loads(SWEEP.read_text(encoding="utf-8"))["best"][optimizer]
    except (OSError, ValueError, KeyError) as error:
        raise SystemExit(f"{SWEEP} has no best settings for {optimizer} ({error!r}): run sweep.py, "
                         "or give --lr, --adamw-lr, --weight-decay and --max-grad-norm") from error


def chosen(args):
    """What the command line says, else the sweep's best."""
    given = {"lr": args.lr, "weight_decay": args.weight_decay,
             "max_grad_norm": args.max_grad_norm}
    if args.optimizer == "dmuond":
        given["adamw_lr"] = args.adamw_lr
    if None in given.values():
        found = best(args.optimizer)
        given = {name: found[name] if value is None else value for name, value in given.items()}
    return given


def schedule(steps):
    """Linear warmup, then a cosine down to the floor: a factor for each step, counted from 0."""
    warmup = max(1, round(WARMUP * steps))

    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        progress = min(1.0, (step - warmup) / max(1, steps - warmup))
        return FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * progress))

    return factor
