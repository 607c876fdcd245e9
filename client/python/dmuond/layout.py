"""Where the elements of a bucket entry lie in the trainer's array.

A piece is a strided matrix inside a parameter: element (i, j) is element base + i*row_stride + j of
the parameter, counted row-major. A trainer holds a box of the parameter (its region) as an array of
the box's shape. An entry packs the piece's elements that lie in the box, in the piece's row-major
order. All counts here are elements.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np


@dataclasses.dataclass(frozen=True)
class Piece:
    base: int
    rows: int
    cols: int
    row_stride: int


@dataclasses.dataclass(frozen=True)
class Region:
    """A box of a parameter; any extent 0: empty."""

    start: tuple[int, ...]
    extent: tuple[int, ...]

    @classmethod
    def whole(cls, shape) -> Region:
        return cls((0,) * len(shape), tuple(shape))


@dataclasses.dataclass(frozen=True)
class Segment:
    """`rows` runs of `length` elements, `stride` apart in the array, back to back in the entry."""

    packed: int
    local: int
    rows: int
    length: int
    stride: int


def intersect(shape, region: Region, piece: Piece) -> list[Segment]:
    """The part of `piece` that lies in `region`, in packed order."""
    if 0 in region.extent or piece.rows == 0 or piece.cols == 0:
        return []
    if not shape:  # a scalar
        shape, region = (1,), Region((0,), (1,))
    if piece.rows == 1:  # its row stride means nothing
        piece = dataclasses.replace(piece, row_stride=piece.cols)
    start, extent = region.start, region.extent
    # Behind the last dimension that the region cuts, the box is contiguous: it consists of one
    # window in each row of `width` elements, for those rows that lie in the leading dimensions.
    cut = max((d for d in range(len(shape)) if extent[d] < shape[d]), default=0)
    inner = math.prod(shape[cut + 1:])
    begin, window = start[cut] * inner, extent[cut] * inner
    if cut == 0:
        return _in_interval(begin, begin + window, piece)
    outer = (shape[:cut], start[:cut], extent[:cut])
    return _in_box(outer, shape[cut] * inner, begin, window, piece)


def _in_interval(low: int, high: int, piece: Piece) -> list[Segment]:
    """The region is the elements low..high: whole rows in the middle, cut ones at the ends."""
    # Rows inside_begin..inside_end lie in the interval as a whole.
    inside_begin = min(max(0, -((piece.base - low) // piece.row_stride)), piece.rows)
    inside_end = (high - piece.cols - piece.base) // piece.row_stride + 1
    inside_end = max(0, min(inside_end, piece.rows))
    segments: list[Segment] = []
    packed = 0

    def add(first: int, last: int, rows: int) -> None:
        nonlocal packed
        if last > first:
            segments.append(
                Segment(packed, first - low, rows, last - first, piece.row_stride))
            packed += rows * (last - first)

    def add_cut_row(row: int) -> None:
        if 0 <= row < piece.rows:
            first = piece.base + row * piece.row_stride
            add(max(low, first), min(high, first + piece.cols), 1)

    if inside_begin > inside_end:  # one row contains the interval
        add_cut_row(inside_end)
        return segments
    add_cut_row(inside_begin - 1)
    if inside_end > inside_begin:
        first = piece.base + inside_begin * piece.row_stride
        add(first, first + piece.cols, inside_end - inside_begin)
    add_cut_row(inside_end)
    return segments


def _in_box(outer, width: int, begin: int, window: int, piece: Piece) -> list[Segment]:
    """The region is a window of each row of `width` elements whose index is in the box `outer`."""
    first = piece.base + np.arange(piece.rows, dtype=np.int64) * piece.row_stride
    low_row = first // width
    touched = (first + piece.cols - 1) // width - low_row + 1
    piece_row = np.repeat(np.arange(piece.rows), touched)
    nth = np.arange(touched.sum()) - np.repeat(np.cumsum(touched) - touched, touched)
    row = low_row[piece_row] + nth
    window_begin = row * width + begin
    run_begin = np.maximum(first[piece_row], window_begin)
    run_end = np.minimum(first[piece_row] + piece.cols, window_begin + window)
    keep = run_end > run_begin
    local_row = np.zeros_like(row)
    rest, factor = row, 1
    for size, start, extent in zip(*(reversed(dims) for dims in outer)):
        rest, coordinate = np.divmod(rest, size)
        keep &= (coordinate >= start) & (coordinate < start + extent)
        local_row += (coordinate - start) * factor
        factor *= extent
    local = local_row * window + run_begin - window_begin
    return _group(local[keep], (run_end - run_begin)[keep])


def _group(local: np.ndarray, length: np.ndarray) -> list[Segment]:
    """Joins consecutive runs of one length and one distance into segments."""
    segments: list[Segment] = []
    distance = np.diff(local)
    new_length = np.diff(length) != 0
    # Run k breaks a regular series when its length or its distance differs from run k-1's.
    breaks = np.flatnonzero(new_length[1:] | (np.diff(distance) != 0)) + 2
    packed = position = 0
    while position < len(local):
        rows, size = 1, int(length[position])
        stride = size
        if position + 1 < len(local) and not new_length[position]:
            stride = int(distance[position])
            after = breaks[np.searchsorted(breaks, position + 2):]
            rows = int(after[0] if len(after) else len(local)) - position
        segments.append(Segment(packed, int(local[position]), rows, size, stride))
        packed += rows * size
        position += rows
    return segments


def strided(flat: np.ndarray, segment: Segment) -> np.ndarray:
    """The segment's elements in a flat C-contiguous array, as a view of (rows, length)."""
    if segment.rows == 1 or segment.stride == segment.length:
        size = segment.rows * segment.length
        return flat[segment.local:segment.local + size].reshape(segment.rows, segment.length)
    item = flat.itemsize
    return np.ndarray((segment.rows, segment.length), flat.dtype, flat,
                      segment.local * item, (segment.stride * item, item))
