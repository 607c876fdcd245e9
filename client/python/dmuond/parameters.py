"""The trainer's arrays and how they match the session spec; everything is checked before a call."""

from __future__ import annotations

import difflib
import json

import numpy as np

from dmuond import errors, layout
from dmuond.bucket import BITS


def suggest(name: str, known) -> str:
    """"; did you mean ...?" for the closest known names, or nothing."""
    close = difflib.get_close_matches(str(name), list(known), n=3)
    return f"; did you mean {' or '.join(repr(c) for c in close)}?" if close else ""


def load_spec(spec) -> tuple[str, list[dict]]:
    """The spec's JSON text and its parameter entries, from a dict or a JSON text."""
    text = spec if isinstance(spec, str) else json.dumps(spec)
    try:
        parameters = json.loads(text)["parameters"]
        if not all(isinstance(p["name"], str) and list(p["shape"]) is not None for p in parameters):
            raise TypeError("a parameter's name is not a text")
    except (ValueError, TypeError, KeyError) as error:
        raise errors.InvalidArgument(
            f"session spec: not JSON with a list 'parameters' of objects with name and shape: "
            f"{error!r}") from None
    return text, parameters


def _dtype_name(array: np.ndarray) -> str:
    """The spec's spelling; bf16 is uint16 (or int16) bit patterns, or ml_dtypes' type."""
    names = {"float32": "fp32", "float16": "fp16", "uint16": "bf16", "int16": "bf16",
             "bfloat16": "bf16"}
    name = array.dtype.name if array.dtype.isnative else array.dtype.str
    return names.get(name, name)


class Parameter:
    """One parameter of this trainer: its array, which published values are written into."""

    def __init__(self, index: int, entry: dict, array: np.ndarray, region: layout.Region):
        self.index = index
        self.name = entry["name"]
        self.dtype = entry.get("dtype", "fp32")
        self.shape = tuple(entry["shape"])
        self.region = region
        self.array = array
        self.places: list[tuple] = []  # (bucket, entry number), set when the layout is known
        self._check_array(array, "parameter")
        if not array.flags.writeable:
            raise errors.InvalidArgument(
                f"parameter '{self.name}': its array is read-only, but updated values are written "
                "into it: pass a writable array")

    def _check_array(self, array: np.ndarray, what: str) -> None:
        if tuple(array.shape) != self.region.extent:
            raise errors.InvalidArgument(
                f"{what} '{self.name}': shape {list(array.shape)} instead of "
                f"{list(self.region.extent)}, this trainer's region of {list(self.shape)}")
        if _dtype_name(array) != self.dtype or self.dtype not in BITS:
            raise errors.InvalidArgument(
                f"{what} '{self.name}': dtype {array.dtype} instead of {self.dtype} (bf16 is "
                "passed as uint16 bit patterns): convert it, or change dtype in the spec")

    def bits_of(self, array, what: str) -> np.ndarray:
        """The array's elements as flat bits; copies only when it is not C-contiguous."""
        array = np.asarray(array)
        self._check_array(array, what)
        return np.ascontiguousarray(array).reshape(-1).view(BITS[self.dtype])

    def write_back(self, bits: np.ndarray) -> None:
        """Copies bits (from bits_of) into the array, unless they are its own memory."""
        if not np.may_share_memory(bits, self.array):
            self.array[...] = bits.view(self.array.dtype).reshape(self.array.shape)


def _region_of(name: str, shape, regions) -> layout.Region:
    if name not in regions:
        return layout.Region.whole(shape)
    start, extent = (tuple(int(n) for n in part) for part in regions[name])
    if not len(start) == len(extent) == len(shape):
        raise errors.InvalidArgument(
            f"region of '{name}': start {list(start)} and extent {list(extent)} need one number "
            f"for each of the {len(shape)} dimensions")
    for dim, (first, count, size) in enumerate(zip(start, extent, shape)):
        if first < 0 or count < 0 or first + count > size:
            raise errors.InvalidArgument(
                f"region of '{name}': {first}..{first + count} in dimension {dim} is outside "
                f"0..{size}")
    return layout.Region(start, extent)


def match_parameters(entries, arrays, regions) -> dict[str, Parameter]:
    """Pairs spec entries and arrays, in the order of `arrays`. Raises InvalidArgument."""
    by_name = {entry["name"]: entry for entry in entries}
    regions = regions or {}
    for name in arrays:
        if name not in by_name:
            raise errors.InvalidArgument(
                f"parameter '{name}' is not in the session spec{suggest(name, by_name)}")
    for name in by_name:
        if name not in arrays:
            raise errors.InvalidArgument(
                f"parameter '{name}' of the session spec was not given{suggest(name, arrays)}")
    for name in regions:
        if name not in by_name:
            raise errors.InvalidArgument(
                f"region of '{name}': no such parameter{suggest(name, by_name)}")
    return {
        name: Parameter(index, by_name[name], np.asarray(array),
                        _region_of(name, tuple(by_name[name]["shape"]), regions))
        for index, (name, array) in enumerate(arrays.items())}
