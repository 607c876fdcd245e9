import random

import brute_force
import numpy as np
import pytest
from dmuond import layout

SHAPES = [(5,), (6, 7), (4, 9), (12, 1), (1, 12), (4, 3, 5), (2, 6, 4), (4, 3, 2, 3), (6, 1, 3, 2)]


def packed_by_layout(shape, start, extent, piece):
    """Which parameter element the code puts at each packed position."""
    local = np.array(brute_force.region_elements(shape, start, extent), np.int64)
    segments = layout.intersect(shape, layout.Region(start, extent), layout.Piece(*piece))
    packed = []
    for segment in segments:
        assert segment.packed == len(packed)
        packed += layout.strided(local, segment).ravel().tolist()
    return packed


def expected(shape, start, extent, piece):
    inside = set(brute_force.region_elements(shape, start, extent))
    return [flat for flat in brute_force.piece_elements(piece) if flat in inside]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_view_meets_every_kind_of_region(shape):
    rng = random.Random(str(shape))
    boxes = [((0,) * len(shape), shape)]
    boxes += [((first,) + (0,) * (len(shape) - 1), (count,) + shape[1:])
              for first in range(shape[0]) for count in range(shape[0] - first + 1)]
    boxes += [brute_force.random_box(rng, shape) for _ in range(60)]
    for name, pieces in brute_force.pieces_of_views(shape).items():
        for piece in pieces:
            for start, extent in boxes:
                assert packed_by_layout(shape, start, extent, piece) == expected(
                    shape, start, extent, piece), (name, piece, start, extent)


def test_random_pieces_meet_random_boxes():
    rng = random.Random(1)
    for _ in range(4000):
        shape = tuple(rng.randint(1, 6) for _ in range(rng.randint(1, 4)))
        start, extent = brute_force.random_box(rng, shape)
        piece = brute_force.random_piece(rng, shape)
        assert packed_by_layout(shape, start, extent, piece) == expected(
            shape, start, extent, piece), (shape, start, extent, piece)


def test_scalar_parameter():
    segments = layout.intersect((), layout.Region((), ()), layout.Piece(0, 1, 1, 1))
    assert segments == [layout.Segment(0, 0, 1, 1, 1)]


def test_row_stride_of_a_single_row_means_nothing():
    for row_stride in (0, 3, 100):
        assert packed_by_layout((4, 5), (1, 0), (2, 5), (3, 1, 9, row_stride)) == list(range(5, 12))


def test_regular_meetings_stay_few_segments():
    # Column shards of a tall matrix: thousands of runs, one strided copy.
    region = layout.Region((0, 16), (5000, 8))
    assert layout.intersect((5000, 32), region, layout.Piece(0, 5000, 32, 32)) == [
        layout.Segment(0, 0, 5000, 8, 8)]
    # Interleaved rows of a row shard.
    region = layout.Region((1, 0), (4001, 32))
    assert layout.intersect((5000, 32), region, layout.Piece(32, 2500, 32, 64)) == [
        layout.Segment(0, 0, 2001, 32, 64)]
