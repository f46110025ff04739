"""Forked children in tests: what one returns or raises, and every way in which it might take its parent's place."""

from __future__ import annotations

import os
import pickle
import select
import signal
from collections.abc import Callable
from typing import Any

import numpy as np

from collectives import Communicator

LIMIT_S = 60.0
Use = Callable[[], object]


def in_child(function: Use) -> Any:
    """What `function()` returns in a forked child; of an error, its class and text. "hangs" after LIMIT_S seconds."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = function()
        except BaseException as error:  # noqa: BLE001  # told to the parent, whatever it is
            said = f"{type(error).__name__}: {error}"
        os.write(writer, pickle.dumps(said))
        os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], LIMIT_S)
    if not ready:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raw = os.read(reader, 1 << 16) if ready else b""
    os.close(reader)
    return pickle.loads(raw) if raw else "hangs"


def uses(world: Communicator) -> dict[str, Use]:
    """Whatever reaches other ranks, by name."""
    array, peer = np.ones(8, np.float32), (world.rank + 1) % world.world_size
    return {
        "all_reduce": lambda: world.all_reduce(array),
        "all_reduce_async": lambda: world.all_reduce_async(array),
        "held": lambda: world.all_reduce_async(array, held=True),
        "broadcast": lambda: world.broadcast(array),
        "barrier": world.barrier,
        "gate": lambda: world.open_gate((1, 2), 1),
        "send": lambda: world.send_async(array, peer),
        "receive": lambda: world.receive_async(array, peer),
        "all_gather_object": lambda: world.all_gather_object(1),
        "broadcast_object": lambda: world.broadcast_object(1),
        "subgroup": lambda: world.subgroup(range(world.world_size)),
        "abort": lambda: world.abort(3),
    }
