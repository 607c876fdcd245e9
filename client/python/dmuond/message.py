"""The bucket message, byte for byte as proto/bucket_message.h describes it."""

from __future__ import annotations

import dataclasses
import struct

ALIGNMENT = 64
MAGIC = 0x42554D44  # "DMUB"
VERSION = 1
HEADER_BYTES = 64

KIND_GRADIENT = 1
KIND_INITIAL = 2
KIND_PUBLISHED = 3

FLAG_FINAL = 1

_HEADER = struct.Struct("<IHBBQQIIQI20x")
assert _HEADER.size == HEADER_BYTES


@dataclasses.dataclass(frozen=True)
class Header:
    """The 64 bytes in front of every bucket message."""

    kind: int
    flags: int
    session: int
    generation: int
    bucket: int
    trainer: int
    payload_bytes: int
    entries: int
    magic: int = MAGIC
    version: int = VERSION

    def pack_into(self, buffer) -> None:
        _HEADER.pack_into(
            buffer, 0, self.magic, self.version, self.kind, self.flags, self.session,
            self.generation, self.bucket, self.trainer, self.payload_bytes, self.entries)

    @classmethod
    def unpack_from(cls, buffer) -> Header:
        (magic, version, kind, flags, session, generation, bucket, trainer, payload_bytes,
         entries) = _HEADER.unpack_from(buffer, 0)
        return cls(kind, flags, session, generation, bucket, trainer, payload_bytes, entries,
                   magic, version)


def round_up(size: int) -> int:
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def presence_bytes(entries: int) -> int:
    return round_up((entries + 7) // 8)


def message_bytes(entries: int, payload_bytes: int) -> int:
    return HEADER_BYTES + presence_bytes(entries) + payload_bytes
