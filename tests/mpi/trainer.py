"""One trainer rank: runs every case of a module on every channel, then ends the daemon."""

import argparse
import importlib
import sys
import traceback

import numpy as np
from mpi4py import MPI

import dmuond
import grpc
from dmuond._generated import admin_pb2, admin_pb2_grpc

CHANNELS = ("mpi", "grpc")


class Context:
    """What a case needs: who this trainer is, and where results go."""

    def __init__(self, address, comm, owners, channel):
        self.address = address
        self.comm = comm  # of the trainers
        self.trainer = comm.Get_rank()
        self.trainers = comm.Get_size()
        self.owners = owners
        self.channel = channel
        self.results = {}  # name -> array, bitwise equal over launches of one kind

    def open(self, spec, parameters, **options):
        session = dmuond.Session.open(
            spec, trainer=self.trainer, trainers=self.trainers, parameters=parameters,
            address=self.address, channel=self.channel, **options)
        assert session.channel == self.channel, session.channel
        return session

    def record(self, name, arrays):
        """Keeps arrays for the comparison over launches; `name` tells what they depend on."""
        for key, array in arrays.items():
            array, key = np.array(array), f"{name}/{key}"
            before = self.results.setdefault(key, array)
            assert before.tobytes() == array.tobytes(), f"{key} differs within a launch"

    def concatenate(self, arrays):
        """The row ranges of all trainers, put together."""
        parts = self.comm.allgather(arrays)
        return {name: np.concatenate([p[name] for p in parts]) for name in arrays}

    def everybody_said(self, word):
        return self.comm.allgather(word)


def drain(address):
    channel = grpc.insecure_channel(address, options=(("grpc.enable_http_proxy", 0),))
    admin_pb2_grpc.AdminStub(channel).Drain(admin_pb2.DrainRequest(), timeout=30)
    channel.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--owners", type=int, required=True)
    parser.add_argument("--cases", required=True)
    parser.add_argument("--result", required=True)
    options = parser.parse_args()
    dmuond.join_mpi_job()
    world = MPI.COMM_WORLD
    cases = importlib.import_module(options.cases)
    # The launcher starts the owners first, so they have the lowest ranks.
    owners, trainers = options.owners, world.Get_size() - options.owners
    group = world.Get_group().Incl(range(owners, owners + trainers))
    comm = world.Create_group(group)
    trainer = comm.Get_rank()
    results = {}
    for channel in CHANNELS:
        for case in cases.CASES:
            context = Context(options.address, comm, owners, channel)
            if trainer == 0:
                print(f"{channel}: {case.__name__}", flush=True)
            case(context)
            for key, value in context.results.items():  # equal cases of one launch agree already
                results[f"{channel}/{key}"] = value
    if trainer == 0:
        np.savez(options.result, **results)
        drain(options.address)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)
