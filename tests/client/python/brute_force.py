"""What the packed layout must be, element by element, straight from its definition."""

import itertools
import math
import random


def piece_elements(piece):
    """Flat parameter indices of a piece (base, rows, cols, row_stride), row-major."""
    base, rows, cols, row_stride = piece
    return [base + i * row_stride + j for i in range(rows) for j in range(cols)]


def region_elements(shape, start, extent):
    """Flat parameter indices of a box, in the box's row-major order."""
    result = []
    for coordinates in itertools.product(*(range(s, s + e) for s, e in zip(start, extent))):
        flat = 0
        for coordinate, size in zip(coordinates, shape):
            flat = flat * size + coordinate
        result.append(flat)
    return result


def pieces_of_views(shape):
    """Named pieces that the views make of a parameter of two to four dimensions."""
    rows, cols = shape[0], math.prod(shape[1:])
    pieces = {"matrix or flatten": [(0, rows, cols, cols)]}
    if len(shape) == 3:
        size = shape[1] * shape[2]
        pieces["stack"] = [(e * size, shape[1], shape[2], shape[2]) for e in range(shape[0])]
    if rows >= 3:
        pieces["split_rows"] = [(0, 2, cols, cols), (2 * cols, rows - 2, cols, cols)]
    if cols >= 3:
        pieces["split_cols"] = [(0, rows, 1, cols), (1, rows, cols - 1, cols)]
    if rows % 2 == 0:
        pieces["interleave_rows"] = [(j * cols, rows // 2, cols, 2 * cols) for j in range(2)]
    total = rows * cols
    pieces["elementwise blocks"] = [
        (at, 1, min(7, total - at), min(7, total - at)) for at in range(0, total, 7)]
    return pieces


def random_box(rng: random.Random, shape):
    start, extent = [], []
    for size in shape:
        first = rng.randint(0, size) if rng.random() < 0.6 else 0
        last = rng.randint(first, size) if rng.random() < 0.6 else size
        start.append(first)
        extent.append(last - first)
    return tuple(start), tuple(extent)


def random_piece(rng: random.Random, shape):
    total = math.prod(shape)
    cols = rng.randint(1, total)
    row_stride = rng.randint(cols, total)
    base = rng.randint(0, total - cols)
    rows = rng.randint(1, (total - cols - base) // row_stride + 1)
    return base, rows, cols, row_stride
