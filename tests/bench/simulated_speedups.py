#!/usr/bin/env python3
"""Prints the table of scheduler/simulator/README.md: what dmuonctl simulate predicts for two models.

    tests/bench/simulated_speedups.py build/release/bin/dmuonctl [--tokens N]
"""

import argparse
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ("pi0-3b", "qwen2.5-7b")
GPUS = (8, 16, 32, 64, 128, 256)


def simulate(program, model, gpus, tokens, cluster):
    done = subprocess.run(
        [program, "simulate", "--spec", ROOT / f"deploy/models/{model}.json", "--cluster", cluster,
         "--gpus", str(gpus), "--tokens", str(tokens), "--dtype", "bf16", "--json"],
        check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def row(result):
    systems, ratios = result["systems"], result["comparison"]
    def ms(part):
        return " / ".join(f"{1e3 * systems[name][part]:.1f}"
                          for name in ("adamw", "gather", "dmuond"))

    added = systems["gather"]["added_s"] / systems["dmuond"]["added_s"]
    return [result["model"], str(result["gpus"]), ms("optimizer_step_s"), ms("added_s"),
            ms("step_s"), f"{ratios['optimizer_step_speedup']:.1f}x", f"{added:.1f}x",
            f"{ratios['step_speedup']:.2f}x", f"{100 * (ratios['step_over_adamw'] - 1):+.1f}%"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dmuonctl")
    parser.add_argument("--tokens", type=int, default=8192, help="per GPU and step")
    parser.add_argument("--cluster", default=ROOT / "deploy/clusters/a800-8x32.json")
    arguments = parser.parse_args()
    head = ["model", "GPUs", "optimizer step, ms", "added, ms", "step, ms", "optimizer step",
            "added", "end to end", "against AdamW"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for model in MODELS:
        for gpus in GPUS:
            result = simulate(arguments.dmuonctl, model, gpus, arguments.tokens, arguments.cluster)
            print("| " + " | ".join(row(result)) + " |", flush=True)


if __name__ == "__main__":
    main()
