"""Do all ranks share a host's memory? If so: the board on which they meet.

In: an object channel over the ranks. Out: `Host`, or None on all ranks if one cannot reach rank 0's memory (another
host, another container). Method: rank 0 makes a memfd and tells process, descriptor and a random token; the others open
it through /proc and look for the token. Ranks with other host names or network namespaces are on other hosts, though
memory may be in reach: so two hosts can be played on one machine, and what they say goes over their link.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collectives.arena import address_of
from collectives.over_mpi.objects import ObjectChannel

TOKEN_NBYTES = 16


@dataclass(frozen=True, slots=True)
class Host:
    """The board (its memory and address), all ranks' process ids, and whether each rank can have a core of its own."""

    board: mmap.mmap
    address: int
    processes: tuple[int, ...]
    has_core_for_each: bool


def open_host(channel: ObjectChannel, nbytes: int, timeout_s: float) -> Host | None:
    """The board of `nbytes`, mapped by all ranks. Collective."""
    mine, offer = _offer(nbytes) if channel.rank == 0 and hasattr(os, "memfd_create") else (None, None)
    said = channel.all_gather((os.getpid(), offer, _cores(), _name()), timeout_s)
    is_here = _name() == said[0][3]
    board = mine or (_open(said[0][0], said[0][1], nbytes) if is_here else None)
    reached = channel.all_gather(board is not None, timeout_s)  # after this, nobody needs the descriptor
    if mine is not None and offer is not None:
        os.close(offer[0])
    if board is None or not all(reached):
        return None
    cores = frozenset[int]().union(*(row[2] for row in said))
    address = address_of(np.frombuffer(board, np.uint8))
    return Host(board, address, tuple(row[0] for row in said), len(cores) >= len(said))


def _name() -> tuple[str, int]:
    """What tells this host from another: its name, and its network where that has a number."""
    network = "/proc/self/ns/net"
    return socket.gethostname(), os.stat(network).st_ino if os.path.exists(network) else 0


def identity() -> bytes:
    """Eight bytes that ranks have in common if they are on one host, since its last start, and only then."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    said = f"{_name()} {boot.read_text() if boot.exists() else ''}"
    return hashlib.sha256(said.encode()).digest()[:8]


def _cores() -> frozenset[int]:
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset({0})


def _offer(nbytes: int) -> tuple[mmap.mmap, tuple[int, bytes]]:
    token = secrets.token_bytes(TOKEN_NBYTES)
    descriptor = os.memfd_create("distcompile-board", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, nbytes)
    board = mmap.mmap(descriptor, nbytes)
    board[:TOKEN_NBYTES] = token
    return board, (descriptor, token)


def _open(process: int, offer: tuple[int, bytes] | None, nbytes: int) -> mmap.mmap | None:
    """Rank 0's board; None if it is out of reach, or is not what rank 0 offered (another host's process)."""
    if offer is None:
        return None
    descriptor, token = offer
    try:
        opened = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
        try:
            board = mmap.mmap(opened, nbytes)
        finally:
            os.close(opened)
    except (OSError, ValueError):
        return None
    return board if board[:TOKEN_NBYTES] == token else None
