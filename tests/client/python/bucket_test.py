import struct

import brute_force
import numpy as np
import pytest
from dmuond import errors, layout, message
from dmuond._generated import control_pb2
from dmuond.bucket import Bucket

# Three parameters of one bucket: a column piece of a row shard in fp32, an elementwise block in
# bf16, and a piece that misses the region.
SHAPES = [(6, 5), (40,), (4, 4)]
REGIONS = [((2, 0), (3, 5)), ((0,), (40,)), ((0, 0), (2, 4))]
PIECES = [(1, 6, 3, 5), (8, 1, 9, 9), (8, 2, 4, 4)]
DTYPES = ["fp32", "bf16", "fp32"]
COUNTS = [9, 9, 0]
OFFSETS = [0, 64, 128]


def make_bucket(**changes):
    entries = [control_pb2.BucketEntry(parameter=p, base=base, rows=rows, cols=cols,
                                       row_stride=stride, offset=OFFSETS[p], count=COUNTS[p],
                                       dtype=DTYPES[p])
               for p, (base, rows, cols, stride) in enumerate(PIECES)]
    for name, value in changes.items():
        setattr(entries[0], name, value)
    proto = control_pb2.Bucket(bucket=7, owner=1, owner_mpi_rank=3, payload_bytes=128,
                               entries=entries)
    return Bucket(proto, SHAPES, [layout.Region(*region) for region in REGIONS])


def arrays():
    """Flat bits of each region: recognisable values, every element another one."""
    bits = [np.uint32, np.uint16, np.uint32]
    return [(1000 * p + np.arange(np.prod(region[1]))).astype(bits[p])
            for p, region in enumerate(REGIONS)]


def packed_values(parameter):
    flat = arrays()[parameter]
    at = {element: i for i, element in enumerate(
        brute_force.region_elements(SHAPES[parameter], *REGIONS[parameter]))}
    return [int(flat[at[e]]) for e in brute_force.piece_elements(PIECES[parameter]) if e in at]


def sealed(bucket, present=(0, 1, 2)):
    bucket.begin_step()
    for entry in range(3):
        if entry in present:
            bucket.stage(entry, arrays()[entry], True)
        else:
            bucket.declare_absent(entry)
    return bytes(bucket.seal(message.KIND_GRADIENT, bucket.final(), 11, 12, 13))


def test_packs_what_the_layout_says():
    data = sealed(make_bucket())
    assert len(data) == 64 + 64 + 128
    assert data[64:128] == bytes([0b111]) + bytes(63)
    assert list(struct.unpack_from("<9I", data, 128)) == packed_values(0)
    assert list(struct.unpack_from("<9H", data, 128 + 64)) == packed_values(1)
    assert message.Header.unpack_from(data) == message.Header(1, 1, 11, 12, 7, 13, 128, 3)


def test_absent_entries_have_no_presence_bit():
    assert sealed(make_bucket(), present=(1,))[64:128] == bytes([0b010]) + bytes(63)


def test_a_bucket_without_any_gradient_has_no_payload():
    data = sealed(make_bucket(), present=())
    assert len(data) == 128 and data[64:] == bytes(64)
    assert message.Header.unpack_from(data).payload_bytes == 0


def test_complete_when_all_entries_are_new_or_final():
    bucket = make_bucket()
    bucket.begin_step()
    for entry, final in ((0, False), (1, True)):
        bucket.stage(entry, arrays()[entry], final)
        assert not bucket.complete()
    bucket.declare_absent(2)
    assert bucket.complete() and not bucket.final()
    bucket.seal(message.KIND_GRADIENT, bucket.final(), 1, 1, 0)
    assert not bucket.complete() and not bucket.sent_final
    bucket.stage(0, arrays()[0], True)
    assert bucket.complete() and bucket.final()
    bucket.seal(message.KIND_GRADIENT, bucket.final(), 1, 1, 0)
    assert bucket.sent_final


def publish(target, present=0b111, **changes):
    """Puts a published message into the bucket's buffer, as an owner would write it."""
    fields = {"kind": message.KIND_PUBLISHED, "flags": 1, "session": 11, "generation": 12,
              "bucket": 7, "trainer": 13, "payload_bytes": 128, "entries": 3, **changes}
    message.Header(**fields).pack_into(target.buffer)
    target.buffer[64:128] = 0
    target.buffer[64] = present
    target.buffer[128:].view(np.uint32)[:9] = 500 + np.arange(9)
    target.buffer[192:].view(np.uint16)[:9] = 700 + np.arange(9)


def test_unpacks_present_entries_in_place_and_nothing_else():
    bucket, flats = make_bucket(), arrays()
    publish(bucket, present=0b001)
    bucket.check_published(256, 11, 12)
    bucket.unpack(flats)
    expected = arrays()
    at = {e: i for i, e in enumerate(brute_force.region_elements(SHAPES[0], *REGIONS[0]))}
    wanted = [e for e in brute_force.piece_elements(PIECES[0]) if e in at]
    for value, element in enumerate(wanted, start=500):
        expected[0][at[element]] = value
    for flat, want in zip(flats, expected):
        assert flat.tolist() == want.tolist()
    bucket.buffer[64] = 0b010
    bucket.unpack(flats)
    expected[1][8:17] = 700 + np.arange(9)
    assert flats[1].tolist() == expected[1].tolist()


@pytest.mark.parametrize("changes, words", [
    ({"generation": 13}, "generation 13 instead of 12"),
    ({"bucket": 6}, "bucket 6 instead of 7"),
    ({"kind": 1}, "kind 1 instead of 3"),
    ({"entries": 4}, "entries 4 instead of 3"),
    ({"payload_bytes": 64}, "size 256 instead of 192"),
    ({"magic": 1}, "magic 1 instead of"),
    ({"session": 1}, "session 1 instead of 11"),
])
def test_refuses_a_published_message_that_is_not_its_own(changes, words):
    bucket = make_bucket()
    publish(bucket, **changes)
    with pytest.raises(errors.ProtocolError, match=words):
        bucket.check_published(256, 11, 12)


def test_refuses_a_published_message_that_is_too_short():
    with pytest.raises(errors.ProtocolError, match="10 bytes, too short"):
        make_bucket().check_published(10, 11, 12)


@pytest.mark.parametrize("changes", [{"count": 8}, {"dtype": "fp64"}, {"offset": 128}])
def test_refuses_a_layout_that_does_not_fit(changes):
    with pytest.raises(errors.ProtocolError, match="layout of parameter 0 does not fit"):
        make_bucket(**changes)
