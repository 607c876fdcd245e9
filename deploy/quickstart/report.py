#!/usr/bin/python3
"""Compares a dmuond run with an AdamW run: a table, report.json and loss.png."""

import argparse
import json
import pathlib

import records


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True,
                        help="holds the two runs, in adamw/ and dmuond/; the results go here")
    return parser.parse_args()


def print_table(adamw, muon):
    print("\nvalidation loss, nats per character, at equal steps")
    print(f"{'step':>6} {'AdamW':>9} {'Muon':>9} {'difference':>11}")
    for (step, theirs, _), (_, ours, _) in zip(adamw.validation, muon.validation):
        print(f"{step:6} {theirs:9.4f} {ours:9.4f} {ours - theirs:+11.4f}")
    print()
    print(f"{'':24} {'AdamW':>9} {'Muon (dmuond)':>14}")
    for title, value in (("training seconds", lambda run: f"{run.seconds:.1f}"),
                         ("tokens per second", lambda run: f"{run.tokens_per_second:.0f}"),
                         ("optimizer ms per step", lambda run: f"{run.optimizer_ms:.1f}"),
                         ("learning rate", lambda run: f"{run.settings['lr']:g}")):
        print(f"{title:24} {value(adamw):>9} {value(muon):>14}")
    print("(optimizer ms: AdamW's averaging of gradients is in its backward pass and not counted;\n"
          " dmuond's is counted)\n")


def verdict(adamw, muon):
    """One sentence: when Muon reached what AdamW ended with."""
    target = adamw.final_validation_loss
    reached = muon.reaches(target)
    if reached is None:
        return (f"Muon did not reach AdamW's final validation loss {target:.4f}: "
                f"it ended at {muon.final_validation_loss:.4f}")
    step, seconds = reached
    return (f"Muon reached AdamW's final validation loss {target:.4f} at step {step} of "
            f"{adamw.settings['steps']} ({step / adamw.settings['steps']:.0%}), after "
            f"{seconds:.1f} s of training; AdamW needed {adamw.seconds:.1f} s")


def write_json(path, adamw, muon):
    def of(run):
        return {"settings": run.settings, "validation": run.validation, "seconds": run.seconds,
                "final_validation_loss": run.final_validation_loss,
                "optimizer_ms": run.optimizer_ms, "tokens_per_second": run.tokens_per_second}

    reached = muon.reaches(adamw.final_validation_loss)
    path.write_text(json.dumps({"adamw": of(adamw), "dmuond": of(muon),
                                "muon_reaches_adamw_final_at": reached}, indent=1) + "\n",
                    encoding="utf-8")


def draw(path, adamw, muon):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    for run, name, colour in ((adamw, "AdamW", "tab:gray"), (muon, "Muon (dmuond)", "tab:red")):
        steps, losses, seconds = zip(*run.validation)
        panels[0].plot(*zip(*run.training), color=colour, alpha=0.2, linewidth=0.8)
        panels[0].plot(steps, losses, color=colour, marker=".", label=name)
        panels[1].plot(seconds, losses, color=colour, marker=".", label=name)
    for panel, label in zip(panels, ("step", "seconds of training")):
        panel.axhline(adamw.final_validation_loss, color="tab:gray", linestyle=":", linewidth=1)
        panel.set_xlabel(label)
        panel.grid(alpha=0.3)
        panel.legend()
    panels[0].set_ylabel("validation loss, nats per character (pale: training)")
    lowest = min(muon.final_validation_loss, adamw.final_validation_loss)
    panels[0].set_ylim(lowest - 0.1, min(max(adamw.validation[0][1], lowest + 0.5), lowest + 1.5))
    figure.suptitle("Character-level GPT, same seed, batches and schedule")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    out = parse_arguments().out
    adamw, muon = (records.read(out / name) for name in ("adamw", "dmuond"))
    if adamw.settings["steps"] != muon.settings["steps"]:
        raise SystemExit(f"{out} holds runs of different lengths; run quickstart.sh again")
    print_table(adamw, muon)
    print(verdict(adamw, muon))
    write_json(out / "report.json", adamw, muon)
    draw(out / "loss.png", adamw, muon)
    print(f"loss curves: {out / 'loss.png'}; figures: {out / 'report.json'}")


if __name__ == "__main__":
    main()
