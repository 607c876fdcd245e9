"""The text that the quickstart trains on, and the batches drawn from it."""

import gzip
import pathlib

import numpy as np
import torch

# The Jargon File, from Debian's package jargon-text: 1.6 million characters, public domain.
DEFAULT_TEXT = "/usr/share/doc/jargon-text/jargon.txt.gz"
BLOCK = 8192  # characters
VALIDATION_EVERY = 10  # every tenth block


def read_text(path):
    """The text of a plain or gzipped UTF-8 file. Raises SystemExit with the cause."""
    file = pathlib.Path(path)
    if not file.exists():
        raise SystemExit(
            f"text {path} is not there: run deploy/install-packages.sh (package jargon-text), "
            "or name a text file with --text")
    data = file.read_bytes()
    try:
        return (gzip.decompress(data) if file.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise SystemExit(f"text {path} cannot be read as UTF-8 text: {error}") from error


class Corpus:
    """Characters as numbers. Every tenth block is for validation, the rest for training."""

    def __init__(self, path=DEFAULT_TEXT):
        text = read_text(path)
        self.alphabet = sorted(set(text))
        numbers = {character: number for number, character in enumerate(self.alphabet)}
        codes = np.array([numbers[character] for character in text], dtype=np.int64)
        place = np.arange(len(codes)) // BLOCK % VALIDATION_EVERY
        self._training = codes[place != VALIDATION_EVERY - 1]
        self._validation = codes[place == VALIDATION_EVERY - 1]
        self.characters = len(codes)
        if len(self._validation) < BLOCK:
            raise SystemExit(f"text {path} has only {len(codes)} characters; at least "
                             f"{BLOCK * VALIDATION_EVERY} are needed for a validation block")

    def training_batch(self, seed, step, size, context, shard):
        """This shard of the step's global batch of `size` windows: (inputs, targets), [B, T].

        The global batch depends on seed and step alone, never on the number of trainers.
        """
        last = len(self._training) - context - 1
        starts = np.random.default_rng([seed, step]).integers(0, last, size)
        return _windows(self._training, starts[shard.slice(size)], context)

    def validation_batches(self, windows, context, shard, at_a_time=16):
        """This shard of `windows` evenly spaced windows, as a list of batches."""
        starts = np.linspace(0, len(self._validation) - context - 1, windows).astype(np.int64)
        mine = starts[shard.slice(windows)]
        return [_windows(self._validation, mine[i:i + at_a_time], context)
                for i in range(0, len(mine), at_a_time)]


class Shard:
    """Part `index` of `count` equal parts."""

    def __init__(self, index, count):
        self.index = index
        self.count = count

    def slice(self, size):
        if size % self.count:
            raise SystemExit(f"a batch of {size} windows does not divide evenly among "
                             f"{self.count} trainers; choose --trainers or --batch to fit")
        part = size // self.count
        return slice(self.index * part, (self.index + 1) * part)


def _windows(codes, starts, context):
    rows = torch.from_numpy(np.stack([codes[start:start + context + 1] for start in starts]))
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
