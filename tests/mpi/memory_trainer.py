"""Trains for 200 steps and prints resident bytes at steps 20 and 200: its own and, on trainer 0,
each owner's."""

import argparse
import gc
import os

import grpc

import dmuond
import model
from dmuond._generated import admin_pb2, admin_pb2_grpc

EARLY, LATE = 20, 200


def own_bytes():
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


class OwnerBytes:
    """Asks the daemon; one connection for all questions."""

    def __init__(self, address):
        self._channel = grpc.insecure_channel(
            address, options=(("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)))
        self._admin = admin_pb2_grpc.AdminStub(self._channel)

    def __call__(self):
        # Read from /proc: what owners report of themselves is a heartbeat old.
        for owner in self._admin.Status(admin_pb2.StatusRequest(), timeout=10).owners:
            with open(f"/proc/{owner.pid}/statm", encoding="ascii") as statm:
                yield f"owner{owner.rank}", int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--channel", required=True)
    parser.add_argument("--trainer", type=int, default=-1)
    options = parser.parse_args()
    trainer = options.trainer
    if options.channel == "mpi":
        from mpi4py import MPI
        dmuond.join_mpi_job()
        trainer = MPI.COMM_WORLD.Get_rank() - 2
    seen = {}
    gradients = [model.gradients(step, trainer) for step in range(4)]
    with dmuond.Session.open(model.spec(), trainer=trainer, trainers=2,
                             parameters=model.parameters(), address=options.address,
                             channel=options.channel) as session:
        owner_bytes = OwnerBytes(options.address) if trainer == 0 else None
        list(owner_bytes() if owner_bytes else ())  # connects now, not between the readings
        for step in range(1, LATE + 1):
            session.begin_step()
            session.push_all(gradients[step % 4])
            session.step()
            if step in (EARLY, LATE):
                seen.setdefault(f"trainer{trainer}", []).append(own_bytes())
                for who, size in owner_bytes() if owner_bytes else ():
                    seen.setdefault(who, []).append(size)
    # In one write: mpirun may put another rank's output between two.
    lines = (f"resident {who} {early} {late}\n" for who, (early, late) in seen.items())
    os.write(1, "".join(lines).encode())


if __name__ == "__main__":
    main()
