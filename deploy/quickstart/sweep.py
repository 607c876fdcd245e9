#!/usr/bin/python3
"""Tries learning rates (and weight decays) and keeps every result and the best in sweep.json.

Each point is a whole quickstart run at the quickstart's own step count. Points that the file
already holds are not run again; --redo runs them anew.
"""

import argparse
import dataclasses
import itertools
import json
import pathlib
import tempfile

import launch
import records
import settings

SETTINGS = ("lr", "adamw_lr", "weight_decay", "max_grad_norm")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("optimizer", choices=("adamw", "dmuond"))
    parser.add_argument("--lr", type=float, nargs="+", required=True)
    parser.add_argument("--adamw-lr", type=float, nargs="+", default=[None],
                        help="dmuond: the AdamW parameters' learning rate")
    parser.add_argument("--weight-decay", type=float, nargs="+", default=[0.1])
    parser.add_argument("--max-grad-norm", type=float, nargs="+", default=[1.0],
                        help="clipping; 0 for none")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--trainers", type=int, default=2)
    parser.add_argument("--owners", type=int, default=2)
    parser.add_argument("--build", type=pathlib.Path, default=launch.Options.build,
                        help="the build folder whose programs run (build/release)")
    parser.add_argument("--redo", action="store_true")
    args = parser.parse_args()
    if (args.optimizer == "dmuond") != (args.adamw_lr != [None]):
        parser.error("--adamw-lr goes with dmuond, and dmuond needs it")
    return args


def load():
    if settings.SWEEP.exists():
        return json.loads(settings.SWEEP.read_text(encoding="utf-8"))
    return {"best": {}, "runs": []}


def save(sweep):
    for optimizer in ("adamw", "dmuond"):
        runs = [run for run in sweep["runs"] if run["optimizer"] == optimizer]
        if runs:
            best = min(runs, key=lambda run: run["validation_loss"])
            sweep["best"][optimizer] = {name: best[name] for name in SETTINGS if name in best}
    sweep["runs"].sort(key=lambda run: (run["optimizer"], run["lr"], run.get("adamw_lr", 0),
                                        run["weight_decay"], run["max_grad_norm"]))
    lines = ",\n".join("  " + json.dumps(run) for run in sweep["runs"])
    settings.SWEEP.write_text(f'{{"best": {json.dumps(sweep["best"])},\n "runs": [\n{lines}\n]}}\n',
                              encoding="utf-8")


def measure(point, options):
    """The final validation loss of one run."""
    given = [word for name in SETTINGS if name in point
             for word in (f"--{name.replace('_', '-')}", repr(point[name]))]
    with tempfile.TemporaryDirectory(prefix="dmuon-sweep-", dir="/tmp") as out:
        point_options = dataclasses.replace(options, out=pathlib.Path(out), training=tuple(given))
        launch.run(point["optimizer"], point_options)
        return records.read(point_options.out).final_validation_loss


def main():
    args = parse_arguments()
    launch.stop_on_signals()
    sweep = load()
    options = launch.Options(steps=args.steps, out=pathlib.Path(), owners=args.owners,
                             trainers=args.trainers, build=args.build)
    for lr, adamw_lr, decay, norm in itertools.product(args.lr, args.adamw_lr, args.weight_decay,
                                                       args.max_grad_norm):
        point = {"optimizer": args.optimizer, "lr": lr, "weight_decay": decay,
                 "max_grad_norm": norm, "steps": args.steps}
        if adamw_lr is not None:
            point["adamw_lr"] = adamw_lr
        same = [run for run in sweep["runs"] if point.items() <= run.items()]
        if same and not args.redo:
            print(f"known: {json.dumps(same[0])}")
            continue
        result = {**point, "validation_loss": round(measure(point, options), 4)}
        sweep["runs"] = [run for run in sweep["runs"] if run not in same] + [result]
        save(sweep)
        print(f"result: {json.dumps(result)}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except launch.RunFailed as failure:
        raise SystemExit(f"sweep.py: {failure}") from failure
