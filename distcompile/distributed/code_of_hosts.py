"""Hosts of a job that have no common cache share what they compile: a server on rank 0's host, told of by MPI.

In: the communicator of all ranks. Out: the cache asks that server (`compiler_core/runtime/code_exchange.py`), where
there are several hosts, or caches. Collectives happen here alone, when the group is made, and none while ranks compile:
they may compile what they like, in any order.
A host whose code differs from rank 0's (its CPU, compiler, C library) compiles for itself and those like it, and says
so once.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

from collectives import Communicator
from collectives.host import identity
from compiler_core import log
from compiler_core.config import Config, config
from compiler_core.runtime import cache, code_server
from compiler_core.runtime.code_exchange import Address, Exchange
from distcompile.watchdog.peers import local_addresses


class _Running:
    """The server that this process has started."""

    server: subprocess.Popen[bytes] | None = None


_running = _Running()


def attach(communicator: Communicator) -> None:
    """Share compiled code from now on, if there are several hosts. Collective; `detach` undoes it."""
    host = identity().hex()
    where = (host, str(config.cache_dir.absolute())) if config.use_cache and config.share_code else None
    places = communicator.all_gather_object(where)
    if len({place for place in places if place is not None}) < 2 or places[0] is None:
        return
    origin = cache.origin()
    offer = (_start(host), origin) if communicator.rank == 0 else None
    address, theirs = communicator.broadcast_object(offer)
    if where is None or address is None:
        return
    cache.hosts.others = Exchange(address, host)
    others = [what for what in origin if origin[what] != theirs.get(what)]
    if others and places.index(where) == communicator.rank:  # one of a host says it
        what = "; ".join(f"{name}: {origin[name]}, there {theirs.get(name)}" for name in others)
        log.warn_once("code of hosts", f"this host does not share compiled code with rank 0's, which is other: {what}")


def detach() -> None:
    """Ask no more. On rank 0: end the server."""
    cache.hosts.others = None
    server, _running.server = _running.server, None
    if server is not None and server.stdin is not None:
        server.stdin.close()
        server.wait()


def _start(host: str) -> Address | None:
    """The server, started; None, said, where that fails."""
    secret = secrets.token_bytes(32)
    folder = Path(code_server.__file__).resolve().parents[2]
    text = f"import sys; sys.path[:0] = [{str(folder)!r}]; from compiler_core.runtime.code_server import main; main()"
    try:
        server = subprocess.Popen(
            [sys.executable, "-P", "-c", text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, Config.cache_dir.env: str(config.cache_dir.absolute())},
        )
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(secret.hex().encode() + b"\n")
        server.stdin.flush()
        port = int(server.stdout.readline())
    except (OSError, ValueError) as error:
        log.warn_once("code of hosts", f"hosts share no compiled code: the code server does not start ({error})")
        return None
    _running.server = server
    return Address(host, local_addresses(), port, secret)
