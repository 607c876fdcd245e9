#!/usr/bin/python3
"""Trains with dmuond, then with AdamW, then compares. quickstart.sh runs this after building."""

import argparse
import pathlib
import subprocess
import sys

import launch


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--owners", type=int, required=True)
    parser.add_argument("--trainers", type=int, required=True)
    parser.add_argument("--channel", choices=("grpc", "mpi"), required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    args = parser.parse_args()
    for name in ("steps", "owners", "trainers"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return args


def main():
    args = parse_arguments()
    launch.stop_on_signals()
    out = args.out.resolve()
    for name in ("loss.png", "report.json"):  # of an earlier run: nobody shall take them for this one's
        (out / name).unlink(missing_ok=True)
    for optimizer in ("dmuond", "adamw"):
        print(f"\n== {optimizer}: {args.trainers} trainers" +
              (f", {args.owners} owners, channel {args.channel}" if optimizer == "dmuond" else
               ", data parallel over gloo"), flush=True)
        launch.run(optimizer, launch.Options(
            steps=args.steps, owners=args.owners, trainers=args.trainers, channel=args.channel,
            build=args.build.resolve(), out=out / optimizer))
    subprocess.run([launch.PYTHON, str(launch.HERE / "report.py"), "--out", str(out)], check=True)


if __name__ == "__main__":
    try:
        main()
    except launch.RunFailed as failure:
        sys.exit(f"quickstart: {failure}")
    except subprocess.CalledProcessError as failure:
        sys.exit(f"quickstart: the report failed: {failure}")
