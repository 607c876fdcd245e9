"""Reads what the trainers of one run have recorded."""

import dataclasses
import json
import statistics


@dataclasses.dataclass(frozen=True)
class Run:
    """One training run. Losses are nats per character, over all trainers' windows."""

    settings: dict
    validation: list  # (step, loss, seconds of training so far), by step
    training: list  # (step, loss), by step
    optimizer_ms: float  # median over trainer 0's steps, the first few left out
    tokens_per_second: float  # likewise

    @property
    def final_validation_loss(self):
        return self.validation[-1][1]

    @property
    def seconds(self):
        return self.validation[-1][2]

    def reaches(self, loss):
        """(step, seconds) of the first evaluation at or below `loss`, or None."""
        return next(((step, seconds) for step, value, seconds in self.validation if value <= loss),
                    None)


def read(directory):
    """The run whose trainer-*.jsonl files are in `directory`. Raises SystemExit if incomplete."""
    trainers = []
    for path in sorted(directory.glob("trainer-*.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if not lines or not lines[-1].get("finished"):
            raise SystemExit(f"{path} is incomplete: its trainer did not finish")
        trainers.append(lines)
    if not trainers or len(trainers) != trainers[0][-1]["trainers"]:
        raise SystemExit(f"{directory} holds records of {len(trainers)} trainers, not of all")
    steps = [line for line in trainers[0] if "loss" in line]
    settled = steps[min(5, len(steps) - 1):]
    return Run(settings=trainers[0][-1], validation=_validation(trainers),
               training=_training(trainers),
               optimizer_ms=statistics.median(line["optimizer_ms"] for line in settled),
               tokens_per_second=statistics.median(line["tokens_per_second"] for line in settled))


def _validation(trainers):
    points = zip(*([line for line in lines if "validation_loss" in line] for lines in trainers))
    return [(shards[0]["step"],
             sum(shard["validation_loss"] * shard["windows"] for shard in shards) /
             sum(shard["windows"] for shard in shards),
             max(shard["seconds"] for shard in shards)) for shards in points]


def _training(trainers):
    points = zip(*([line for line in lines if "loss" in line] for lines in trainers))
    return [(shards[0]["step"], statistics.fmean(shard["loss"] for shard in shards))
            for shards in points]
