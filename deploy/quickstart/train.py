#!/usr/bin/python3
"""One trainer of the quickstart: trains the small GPT on its shard of every batch.

Run one process per trainer. `--optimizer dmuond` sends gradients to running owners, which average
them; `--optimizer adamw` is the baseline, torch's DistributedDataParallel over gloo with
torch.optim.AdamW. Model, seed, batches, schedule and steps are the same for both.
Each trainer writes DIR/trainer-R.jsonl, one object per step; trainer 0 also prints progress.
"""

import argparse
import json
import pathlib
import resource
import time

import torch

import data
import optimizers
from model import GPT, ModelConfig, loss_of, parameter_count

EVALUATIONS = 12
PROGRESS_LINES = 24  # at least, in runs that are long enough
MOST_STEPS_WITHOUT_PROGRESS = 20


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--optimizer", choices=("dmuond", "adamw"), required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="where the records go")
    parser.add_argument("--trainer", type=int, default=0, help="this trainer's rank")
    parser.add_argument("--trainers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=24, help="windows per step, all trainers")
    parser.add_argument("--validation", type=int, default=192, help="validation windows")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--text", default=data.DEFAULT_TEXT)
    parser.add_argument("--threads", type=int, default=1, help="torch threads of this trainer")
    parser.add_argument("--address", help="the owners' control socket, unix:PATH (dmuond)")
    parser.add_argument("--channel", choices=("grpc", "mpi"), default="grpc")
    parser.add_argument("--rendezvous", help="a file that the trainers share (adamw)")
    parser.add_argument("--lr", type=float, help="default: the best of sweep.json")
    parser.add_argument("--adamw-lr", type=float, help="dmuond's AdamW parameters; same default")
    parser.add_argument("--weight-decay", type=float, help="default: the best of sweep.json")
    parser.add_argument("--max-grad-norm", type=float, help="clipping, 0 for none; same default")
    args = parser.parse_args()
    if args.steps < 1 or not 0 <= args.trainer < args.trainers:
        parser.error("--steps must be positive and --trainer below --trainers")
    return args


class Record:
    """The trainer's JSON lines, and the time it spent training (evaluations excluded)."""

    def __init__(self, args):
        self._args = args
        self._file = open(args.out / f"trainer-{args.trainer}.jsonl", "w", encoding="utf-8",
                          buffering=1)
        self._validation_loss = None
        self.seconds = 0.0

    def write(self, **fields):
        self._file.write(json.dumps(fields) + "\n")

    def step(self, step, loss, seconds, optimizer_seconds):
        self.seconds += seconds
        rate = self._args.batch * ModelConfig.context / seconds
        self.write(step=step, loss=loss, seconds=round(self.seconds, 4),
                   tokens_per_second=round(rate, 1),
                   optimizer_ms=round(optimizer_seconds * 1e3, 3))
        every = max(1, min(self._args.steps // PROGRESS_LINES, MOST_STEPS_WITHOUT_PROGRESS))
        if self._args.trainer == 0 and (step % every == 0 or step == self._args.steps):
            print(f"{self._args.optimizer:6}  step {step:4}/{self._args.steps}  loss {loss:.4f}  "
                  f"validation {self._validation_loss:.4f}  {rate:6.0f} tokens/s  "
                  f"optimizer {optimizer_seconds * 1e3:6.1f} ms", flush=True)

    def validation(self, step, loss, windows):
        self._validation_loss = loss
        self.write(step=step, validation_loss=loss, windows=windows,
                   seconds=round(self.seconds, 4))

    def finish(self, model, settings):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.write(finished=True, optimizer=self._args.optimizer, steps=self._args.steps,
                   trainers=self._args.trainers, channel=self._args.channel,
                   parameters=parameter_count(model), peak_rss_kib=peak, **settings)
        self._file.close()


def evaluate(model, batches):
    """Mean loss over this trainer's validation windows."""
    with torch.no_grad():
        weighted = [(loss_of(model, batch).item(), len(batch[0])) for batch in batches]
    return sum(loss * size for loss, size in weighted) / sum(size for _, size in weighted)


def train(args, corpus, model, optimizer, record):
    shard = data.Shard(args.trainer, args.trainers)
    validation = corpus.validation_batches(args.validation, ModelConfig.context, shard)
    windows = sum(len(batch[0]) for batch in validation)
    record.validation(0, evaluate(model, validation), windows)
    for step in range(1, args.steps + 1):
        batch = corpus.training_batch(args.seed, step, args.batch, ModelConfig.context, shard)
        start = time.monotonic()
        loss = loss_of(optimizer.model, batch)
        loss.backward()
        before_step = time.monotonic()
        optimizer.step()
        end = time.monotonic()
        record.step(step, loss.item(), end - start, end - before_step)
        if step % max(1, args.steps // EVALUATIONS) == 0 or step == args.steps:
            record.validation(step, evaluate(model, validation), windows)


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    corpus = data.Corpus(args.text)
    torch.manual_seed(args.seed)
    model = GPT(ModelConfig(vocabulary=len(corpus.alphabet)))
    args.out.mkdir(parents=True, exist_ok=True)
    record = Record(args)
    if args.trainer == 0:
        print(f"{args.optimizer}: {parameter_count(model):,} parameters, "
              f"{corpus.characters:,} characters of text, {args.trainers} trainers", flush=True)
    with optimizers.create(args, model) as optimizer:
        train(args, corpus, model, optimizer, record)
        record.finish(model, optimizer.settings)


if __name__ == "__main__":
    main()
