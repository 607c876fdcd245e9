"""One bucket of this trainer: its message buffer, and what has been pushed in the current step.

The buffer is made once. Gradients are packed into it, published parameters received into it.
"""

from __future__ import annotations

import numpy as np

from dmuond import errors, layout, message

# Bits are copied, never values: every dtype is handled as an unsigned integer of its size.
BITS = {"fp32": np.dtype(np.uint32), "fp16": np.dtype(np.uint16), "bf16": np.dtype(np.uint16)}


class Entry:
    """The part of one piece that lies in this trainer's region, and its place in the payload."""

    def __init__(self, proto, shape, region: layout.Region, payload: np.ndarray):
        self.parameter = proto.parameter
        self._segments = layout.intersect(
            shape, region, layout.Piece(proto.base, proto.rows, proto.cols, proto.row_stride))
        count = sum(s.rows * s.length for s in self._segments)
        bits = BITS.get(proto.dtype)
        end = proto.offset + proto.count * (bits.itemsize if bits else 0)
        if bits is None or count != proto.count or end > len(payload):
            raise errors.ProtocolError(
                f"the daemon's layout of parameter {proto.parameter} does not fit: {proto.count} "
                f"elements of {proto.dtype} at {proto.offset} in {len(payload)} bytes, expected "
                f"{count} elements: use the client of the daemon's version")
        packed = payload[proto.offset:end].view(bits)
        self._packed = [packed[s.packed:s.packed + s.rows * s.length].reshape(s.rows, s.length)
                        for s in self._segments]

    def pack(self, flat: np.ndarray) -> None:
        """From the trainer's flat array of bits into the payload."""
        for segment, packed in zip(self._segments, self._packed):
            np.copyto(packed, layout.strided(flat, segment))

    def unpack(self, flat: np.ndarray) -> None:
        """From the payload into the trainer's flat array of bits."""
        for segment, packed in zip(self._segments, self._packed):
            np.copyto(layout.strided(flat, segment), packed)


class Bucket:
    """Belongs to the session's thread; while a send is in progress, only the sender reads it."""

    def __init__(self, proto, shapes, regions):
        """`shapes` and `regions` by parameter index."""
        self.number = proto.bucket
        self.owner_mpi_rank = proto.owner_mpi_rank
        self.payload_bytes = proto.payload_bytes
        count = len(proto.entries)
        self._body = message.HEADER_BYTES + message.presence_bytes(count)
        self.buffer = np.zeros(message.message_bytes(count, proto.payload_bytes), np.uint8)
        self.entries = [
            Entry(e, shapes[e.parameter], regions[e.parameter], self.buffer[self._body:])
            for e in proto.entries]
        self.begin_step()

    def begin_step(self) -> None:
        self._pushed = [False] * len(self.entries)  # in this step
        self._fresh: set[int] = set()  # entries that are new since the last message
        self._final: set[int] = set()
        self.sent_final = False

    def stage(self, entry: int, flat: np.ndarray, final: bool) -> None:
        """Packs an entry that is not final yet."""
        self.entries[entry].pack(flat)
        self._pushed[entry] = True
        self._mark(entry, final)

    def declare_absent(self, entry: int) -> None:
        self._mark(entry, True)

    def _mark(self, entry: int, final: bool) -> None:
        self._fresh.add(entry)
        if final:
            self._final.add(entry)

    def complete(self) -> bool:
        """Whether a message should go: every entry is final, or is new since the last message."""
        return self.final() or len(self._fresh) == len(self.entries)

    def final(self) -> bool:
        return len(self._final) == len(self.entries)

    def seal(self, kind: int, final: bool, session: int, generation: int,
             trainer: int) -> np.ndarray:
        """Writes header and presence; returns the message's bytes, a view of the buffer."""
        bits = np.packbits(np.array(self._pushed, bool), bitorder="little")
        presence = self.buffer[message.HEADER_BYTES:self._body]
        presence[:] = 0
        presence[:len(bits)] = bits
        payload_bytes = self.payload_bytes if any(self._pushed) else 0
        message.Header(kind, message.FLAG_FINAL if final else 0, session, generation, self.number,
                       trainer, payload_bytes, len(self.entries)).pack_into(self.buffer)
        self._fresh.clear()
        self.sent_final = final
        return self.buffer[:self._body + payload_bytes]

    def check_published(self, size: int, session: int, generation: int) -> None:
        """Checks what was received into the buffer, `size` bytes; raises ProtocolError."""
        if size < self._body:
            raise errors.ProtocolError(
                f"published bucket {self.number}: {size} bytes, too short for its header")
        header = message.Header.unpack_from(self.buffer)
        problems = [
            f"{what} {got} instead of {expected}" for what, got, expected in (
                ("magic", header.magic, message.MAGIC),
                ("version", header.version, message.VERSION),
                ("kind", header.kind, message.KIND_PUBLISHED),
                ("bucket", header.bucket, self.number),
                ("session", header.session, session),
                ("generation", header.generation, generation),
                ("entries", header.entries, len(self.entries)),
                ("size", size, self._body + header.payload_bytes)) if got != expected]
        if problems:
            raise errors.ProtocolError(
                f"published bucket {self.number} is not what was expected: {', '.join(problems)}: "
                "see the daemon's log")

    def unpack(self, flats) -> None:
        """Copies the published entries into the arrays of bits, by parameter index."""
        presence = self.buffer[message.HEADER_BYTES:self._body]
        present = np.unpackbits(presence, bitorder="little")
        for index, entry in enumerate(self.entries):
            if present[index]:
                entry.unpack(flats[entry.parameter])
