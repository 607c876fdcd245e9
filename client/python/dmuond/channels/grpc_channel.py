"""Bucket messages as streamed chunks over the daemon's gRPC connection."""

from __future__ import annotations

import grpc
import numpy as np

from dmuond import control, errors, message
from dmuond._generated import control_pb2, data_pb2

CHUNK_BYTES = 1 << 20


class GrpcChannel:
    send_threads = 2

    def __init__(self, connection: control.Connection, session: int, trainer: int):
        self._connection = connection
        self._session = session
        self._trainer = trainer

    def send(self, bucket, data: np.ndarray) -> None:
        view = memoryview(data)
        chunks = (data_pb2.Chunk(data=bytes(view[at:at + CHUNK_BYTES]))
                  for at in range(0, len(view), CHUNK_BYTES))
        self._connection.call(self._connection.data.Push, chunks, f"push of bucket {bucket.number}",
                              control.TRANSFER_SECONDS)

    def receive(self, buckets, generation: int) -> None:
        what = "fetch of published parameters"
        self._connection.check_process()
        request = data_pb2.FetchRequest(
            session=self._session, trainer=self._trainer, generation=generation)
        stream = self._connection.data.Fetch(request, timeout=control.TRANSFER_SECONDS)
        try:
            chunks = (np.frombuffer(chunk.data, np.uint8) for chunk in stream)
            for bucket in buckets:
                if bucket.payload_bytes:
                    size = _receive_message(chunks, bucket)
                    bucket.check_published(size, self._session, generation)
            if next(chunks, None) is not None:
                raise errors.ProtocolError(f"{what}: more buckets than the daemon announced")
        except grpc.RpcError as rpc_error:
            raise control.error_from(rpc_error, what) from None
        finally:
            stream.cancel()

    def close(self) -> None:
        """Nothing to do: the connection belongs to the session."""


def _receive_message(chunks, bucket) -> int:
    """Reads one message into the bucket's buffer; returns its size in bytes."""
    received, expected = 0, message.HEADER_BYTES
    while received < expected:
        chunk = next(chunks, None)
        if chunk is None:
            raise errors.ProtocolError(
                f"published bucket {bucket.number}: the stream ended after {received} bytes")
        if received + len(chunk) > len(bucket.buffer):
            raise errors.ProtocolError(
                f"published bucket {bucket.number}: more than its {len(bucket.buffer)} bytes")
        bucket.buffer[received:received + len(chunk)] = chunk
        received += len(chunk)
        if expected == message.HEADER_BYTES and received >= expected:
            header = message.Header.unpack_from(bucket.buffer)
            expected = message.message_bytes(header.entries, header.payload_bytes)
    return received
