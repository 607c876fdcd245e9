"""Joining a session: control connection, layout, lease and data channel."""

from __future__ import annotations

import dataclasses
import logging

from dmuond import control, errors
from dmuond._generated import control_pb2
from dmuond.bucket import Bucket
from dmuond.channels import mpi_channel
from dmuond.channels.grpc_channel import GrpcChannel

_log = logging.getLogger("dmuond")


@dataclasses.dataclass
class Attachment:
    """What attaching to a session resulted in."""

    session: int
    trainer: int
    channel_name: str
    channel: object
    lease: control.Lease
    buckets: list[Bucket]
    resumed: bool
    next_step: int
    generation: int


def attach(address: str, opening, request, parameters, connect_seconds: float):
    """Opens the session and attaches to it; returns (Connection, Attachment). Raises Error.

    `opening` and `request` are the OpenSession and Attach requests without what is learnt here.
    """
    request.mpi_rank = _mpi_rank(request.channel)
    connection = control.Connection(address, connect_seconds)
    try:
        return connection, _attach(connection, opening, request, parameters)
    except BaseException:
        connection.close()
        raise


def _mpi_rank(channel: int) -> int:
    """This process's rank in the owners' MPI job, -1 when it need not or cannot use channel mpi."""
    if channel == control_pb2.CHANNEL_MPI:
        return mpi_channel.data_communicator().rank
    if channel == control_pb2.CHANNEL_AUTO and mpi_channel.running_in_job():
        communicator = mpi_channel.join_job()
        return -1 if communicator is None else communicator.rank
    return -1


def _attach(connection, opening, request, parameters) -> Attachment:
    opened = connection.call(connection.control.OpenSession, opening, "opening the session")
    request.session = opened.session
    request.parameters.extend(parameters)
    for parameter in parameters.values():
        region = parameter.region
        if region.extent != parameter.shape:
            request.regions.add(parameter=parameter.index, start=region.start,
                                extent=region.extent, contribution=request.contribution)
    reply = connection.call(connection.control.Attach, request,
                            f"attaching trainer {request.trainer}")
    buckets = _buckets_of(reply, list(parameters.values()))
    lease = control.Lease(connection, opened.session, request.trainer)
    name = control_pb2.Channel.Name(reply.channel).removeprefix("CHANNEL_").lower()
    _log.info("session %d, trainer %d of %d: %d owners, channel %s (%s), plan %s", opened.session,
              request.trainer, opening.trainers, opened.owners, name, reply.channel_reason,
              opened.plan_hash)
    return Attachment(
        session=opened.session, trainer=request.trainer, channel_name=name,
        channel=_make_channel(reply.channel, connection, lease, opened.session, request.trainer),
        lease=lease, buckets=buckets, resumed=reply.resumed, next_step=reply.next_step,
        generation=reply.generation)


def _buckets_of(reply, parameters) -> list[Bucket]:
    """The buckets in publish order; tells each parameter where its entries are."""
    shapes = [p.shape for p in parameters]
    regions = [p.region for p in parameters]
    buckets = []
    for proto in reply.buckets:
        bucket = Bucket(proto, shapes, regions)
        buckets.append(bucket)
        for number, entry in enumerate(bucket.entries):
            parameters[entry.parameter].places.append((bucket, number))
    return buckets


def _make_channel(channel: int, connection, lease, session: int, trainer: int):
    if channel == control_pb2.CHANNEL_GRPC:
        return GrpcChannel(connection, session, trainer)
    if channel == control_pb2.CHANNEL_MPI:
        return mpi_channel.MpiChannel(session, lease, control.TRANSFER_SECONDS)
    raise errors.ProtocolError(
        f"the daemon chose channel {channel}, which this client does not have: "
        "ask for one with channel=")
