"""A trainer that misbehaves as told. As a grpc trainer it is an ordinary process; with --mpi it is
a rank of the owners' job. It prints one line per event, which the tests read."""

import argparse
import os
import signal
import sys
import time

import numpy as np

import dmuond
from dmuond import message

SPEC = {"groups": {"muon": {"precision": "fp32", "form": "direct"}},
        "parameters": [{"name": "w1", "shape": [8, 8]}, {"name": "w2", "shape": [8, 8]},
                       {"name": "b", "shape": [16]}]}


def parameters():
    return {e["name"]: np.ones(e["shape"], np.float32) for e in SPEC["parameters"]}


def gradients(step, trainer):
    rng = np.random.default_rng([step, trainer])
    return {e["name"]: rng.standard_normal(e["shape"]).astype(np.float32)
            for e in SPEC["parameters"]}


def say(*words):
    print(*words, flush=True)


def train(session, trainer, steps):
    for _ in range(steps):
        step = session.begin_step()
        session.push_all(gradients(step, trainer))
        say(session.step().outcome, step)


def send_raw(session, **changes):
    """Sends one gradient message whose header is not what it should be."""
    buckets = [b for b in session._buckets if b.payload_bytes]
    bucket = max(buckets, key=lambda b: b.payload_bytes)
    size = bucket.payload_bytes - changes.pop("less", 0)
    header = dict(kind=message.KIND_GRADIENT, flags=message.FLAG_FINAL,
                  session=session._attachment.session, generation=session._generation,
                  bucket=bucket.number, trainer=session._attachment.trainer, payload_bytes=size,
                  entries=len(bucket.entries))
    header.update(changes)
    data = np.zeros(message.message_bytes(header["entries"], size), np.uint8)
    message.Header(**header).pack_into(data)
    data[message.HEADER_BYTES:message.HEADER_BYTES + 1] = 1  # the first entry is present
    session._channel.send(bucket, data)


def behave(session, trainer, meet):
    """A step whose other trainer misbehaves, once both have begun it."""
    step = session.begin_step()
    meet()
    session.push_all(gradients(step, trainer))
    say(session.step().outcome, step)


def misbehave(session, trainer, how, meet):
    step = session.begin_step()
    meet()
    say("misbehaving", step)
    if how == "silent":
        time.sleep(3600)
    elif how == "kill":
        session.push("w1", gradients(step, trainer)["w1"])
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "bytes":
        send_raw(session, less=64)
    elif how == "bucket":
        send_raw(session, bucket=4711)
    elif how == "stale":
        send_raw(session, generation=session._generation - 1)
        time.sleep(3600)
    else:
        raise ValueError(how)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--trainer", type=int, default=-1)
    parser.add_argument("--trainers", type=int, default=2)
    parser.add_argument("--owners", type=int, default=0, help="with mpi: ranks before the trainers")
    parser.add_argument("--mpi", action="store_true")
    parser.add_argument("--bad", type=int, default=-1, help="which trainer misbehaves")
    parser.add_argument("--how", default="")
    parser.add_argument("--good-steps", type=int, default=1)
    parser.add_argument("--step-timeout", type=float, default=5.0)
    options = parser.parse_args()
    trainer = options.trainer
    meet = lambda: None  # grpc trainers do not know each other
    if options.mpi:
        from mpi4py import MPI
        dmuond.join_mpi_job()
        trainer = MPI.COMM_WORLD.Get_rank() - options.owners
        ranks = range(options.owners, options.owners + options.trainers)
        meet = MPI.COMM_WORLD.Create_group(MPI.COMM_WORLD.Get_group().Incl(ranks)).Barrier
    session = dmuond.Session.open(
        SPEC, trainer=trainer, trainers=options.trainers, parameters=parameters(),
        address=options.address, channel="mpi" if options.mpi else "grpc",
        step_timeout=options.step_timeout)
    say("attached", trainer, os.getpid())
    train(session, trainer, options.good_steps)
    try:
        if trainer == options.bad:
            misbehave(session, trainer, options.how, meet)
            session.step()
        elif options.how:
            behave(session, trainer, meet)
        else:
            train(session, trainer, 1)
    except dmuond.Error as error:
        say(f"trainer {trainer} heard {type(error).__name__}: {error}")
    session.close()


if __name__ == "__main__":
    sys.exit(main())
