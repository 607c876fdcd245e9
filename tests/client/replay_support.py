"""Runs `dmuonctl replay` on numpy arrays: safetensors files in and out, exit code, step reports."""

import dataclasses
import json
import os
import pathlib
import struct
import subprocess

import numpy as np

DMUONCTL = os.environ["DMUONCTL"]

_DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I64": np.int64}
_NAMES = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", np.dtype(np.uint16): "BF16",
          np.dtype(np.int64): "I64"}


def bf16(values):
    """Values rounded to nearest even, as the 16 bits of bf16 (what uint16 stands for in files)."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def write_safetensors(path, tensors):
    header, data, offset = {}, [], 0
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": _NAMES[np.asarray(array).dtype],
                        "shape": list(np.shape(array)),
                        "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
        data.append(raw)
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def read_safetensors(path):
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    data = raw[8 + length:]
    tensors = {}
    for name, entry in json.loads(raw[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[begin:end], _DTYPES[entry["dtype"]]).reshape(
            entry["shape"])
    return tensors


@dataclasses.dataclass
class Replayed:
    params: dict
    state: dict
    reports: list


def dmuonctl(*arguments):
    return subprocess.run([DMUONCTL, *map(str, arguments)], capture_output=True, text=True,
                          timeout=120, check=False)


class Replayer:
    """Replays in one directory. `spec` is an object (or text, as it stands)."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)

    def write(self, spec, params, grads, state_in=None, steps=None):
        """Writes the files and returns the command line for them."""
        text = spec if isinstance(spec, str) else json.dumps(spec)
        (self.directory / "spec.json").write_text(text)
        write_safetensors(self.directory / "p.safetensors", params)
        arguments = ["replay", "--spec", self.directory / "spec.json",
                     "--params", self.directory / "p.safetensors",
                     "--out", self.directory / "out.safetensors",
                     "--state-out", self.directory / "state.safetensors", "--json"]
        for i, step_grads in enumerate(grads):
            write_safetensors(self.directory / f"g{i}.safetensors", step_grads)
            arguments += ["--grads", self.directory / f"g{i}.safetensors"]
        if state_in is not None:
            write_safetensors(self.directory / "in.safetensors", state_in)
            arguments += ["--state-in", self.directory / "in.safetensors"]
        if steps is not None:
            (self.directory / "steps.json").write_text(
                steps if isinstance(steps, str) else json.dumps(steps))
            arguments += ["--steps", self.directory / "steps.json"]
        return arguments

    def __call__(self, spec, params, grads, state_in=None, steps=None, more=()):
        done = dmuonctl(*self.write(spec, params, grads, state_in, steps), *more)
        assert done.returncode == 0, done.stderr
        return Replayed(read_safetensors(self.directory / "out.safetensors"),
                        read_safetensors(self.directory / "state.safetensors"),
                        [json.loads(line) for line in done.stdout.splitlines()])

    def refusal(self, spec, params, grads, state_in=None, steps=None):
        """The one line on stderr of a run that ends with exit code 2 and writes nothing."""
        return self.refusal_of(self.write(spec, params, grads, state_in, steps))

    def refusal_of(self, arguments):
        done = dmuonctl(*arguments)
        assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert not (self.directory / "out.safetensors").exists()
        assert not (self.directory / "state.safetensors").exists()
        return done.stderr


def same_bits(a, b):
    """Whether two dicts of arrays are equal bit by bit."""
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and a[name].shape == b[name].shape
        and a[name].tobytes() == b[name].tobytes() for name in a)


def relative_error(actual, expected):
    """Frobenius norm of the difference over that of `expected`."""
    expected = np.asarray(expected, np.float64)
    return np.linalg.norm(np.asarray(actual, np.float64) - expected) / np.linalg.norm(expected)


# fp32 in the direct form: what cases.md's tolerances are stated for.
EXACT = {"form": "direct", "precision": "fp32"}


def observe(**options):
    """A muon group whose first step from p = 0 writes exactly -NS(u) into the parameter."""
    return {"lr": 1.0, "weight_decay": 0.0, "scale": "none", **EXACT, **options}
