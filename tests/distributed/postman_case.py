"""The postman of messages between GPUs (collectives/nccl/postman.py) on any transport, also on MPI ranks.

NCCL is played by `Moves`: a send or receive is done on the spot, by our thread, which sits in it until the other end
is there, as a kernel does on its stream: two ranks that enqueue messages in different orders would hang.
"""

from __future__ import annotations

import ctypes
import random
from typing import Any

import numpy as np

from collectives import Communicator
from collectives.nccl.postman import Postman

TAG = -7  # of the bytes themselves; those of letters and of user's messages are others: see `messages_of_gpus`
LIMIT_S = 30.0


class Moves:
    """NCCL as one rank sees it: a communicator's number says which rank is at the other end."""

    def __init__(self, host: Communicator) -> None:
        self.host, self.ids = host, 0

    def version(self) -> int:
        return 22809

    def unique_id(self) -> bytes:
        self.ids += 1
        return f"{self.host.rank}.{self.ids}".encode().ljust(128, b" ")

    def init(self, world_size: int, unique_id: bytes, rank: int) -> int:
        """The ends tell each other who they are; they come at the same time, or this hangs."""
        lower = int(unique_id.split(b".")[0])
        if rank == 0:
            told = np.zeros(1, np.int64)
            work = self.host.launch_receive(told, None, TAG)
            work.wait(LIMIT_S)
            return 1 + int(told[0])
        self.host.launch_send(np.array([self.host.rank]), lower, TAG).wait(LIMIT_S)
        return 1 + lower

    def send(self, address: int, nbytes: int, dtype: int, peer: int, comm: int, stream: int) -> None:
        self.host.launch_send(_bytes(address, nbytes).copy(), comm - 1, TAG - 1).wait(LIMIT_S)
        self.host.launch_receive(np.zeros(1), comm - 1, TAG - 2).wait(LIMIT_S)  # it has run there

    def receive(self, address: int, nbytes: int, dtype: int, peer: int, comm: int, stream: int) -> None:
        self.host.launch_receive(_bytes(address, nbytes), comm - 1, TAG - 1).wait(LIMIT_S)
        self.host.launch_send(np.zeros(1), comm - 1, TAG - 2)

    def async_error(self, comm: int) -> str:
        return ""

    def abort(self, comm: int) -> None:
        return None

    def group_start(self) -> None:
        return None

    group_end = group_start


class Instant:
    """A device whose work is done when it is told."""

    index = 0

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def use(self) -> None:
        return None

    def current(self) -> int:
        return 0

    new_stream = current

    def pointer(self, stream: int) -> int:
        return stream

    def address(self, array: Any) -> int:
        return int(array.ctypes.data)

    def record(self, stream: int) -> object:
        return object()

    def wait(self, stream: int, event: object) -> None:
        return None

    def is_done(self, event: object) -> bool:
        return True

    def identity(self) -> int:
        return 100 + self.rank


def _bytes(address: int, nbytes: int) -> Any:
    return np.frombuffer((ctypes.c_char * nbytes).from_address(address), np.uint8)


def messages_of_gpus_are_put_into_one_order(world: Communicator) -> None:
    plan = random.Random(world.world_size)
    ranks = range(world.world_size)
    # tags 10 and up: tokens of tag t have tag -2 - t, which must not be that of the bytes
    messages = [(a, b, 10 + plan.randrange(3), plan.randrange(4000)) for a in ranks for b in ranks if a != b] * 3
    own, mine = random.Random(world.rank), [m for m in messages if world.rank in m[:2]]
    errors: list[Any] = []
    postman = Postman(
        world, Moves(world), Instant(world.rank), give_up=errors.append, broken=lambda: None  # type: ignore[arg-type]
    )  # fmt: skip
    own.shuffle(mine)
    works: list[tuple[Any, Any, Any]] = []
    for source, target, tag, n in mine:
        if source == world.rank:
            works.append((postman.send(np.full(n, 10 * source + target), target, tag), None, None))
        else:
            got = np.full(n, -1)
            works.append((postman.receive(got, source, tag), got, 10 * source + target))
    own.shuffle(works)
    for work, got, expected in works:
        work.wait(LIMIT_S)
        assert got is None or (got == expected).all()
    postman.drain(LIMIT_S)
    world.barrier()
    postman.stop()
    assert not errors
