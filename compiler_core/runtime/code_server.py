"""The process on rank 0's host that hands compiled code from one host of a job to the others.

In: on stdin, the job's secret, in hex. Out: on stdout, the port. It ends with its stdin, which rank 0 holds, and with
rank 0. Of each key (and origin) one asker builds, and the others wait for it; what it gives is kept in a folder of this
process. What the cache of this host has already is handed out from there. How they talk: `code_exchange.py`.
A process, not a thread of rank 0: an answer must not wait for a rank that is in native code, waiting for who asks.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import select
import socket
import sys
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

from compiler_core.errors import DistCompileError
from compiler_core.runtime import cache, places, portable
from compiler_core.runtime.code_exchange import GREETING_S, NONCE_NBYTES, Channel, proof, receive, send

_ASKED_NBYTES = 1 << 16
_LOOK_S = 1.0


class Shelf:
    """What has been given, and what is being built, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.changed = folder, threading.Condition()
        self.building: set[str] = set()

    def take(self, name: str) -> bytes:
        """The code; nothing if it is the asker's to build: nobody has it, or who was at it has failed."""
        place = self.folder / name
        with self.changed:
            while name in self.building:
                self.changed.wait()
            if place.exists():
                return place.read_bytes()
            self.building.add(name)
            return b""

    def put(self, name: str, code: bytes) -> None:
        """What was built; nothing if that failed."""
        with self.changed:
            if code:
                (self.folder / name).write_bytes(code)
            self.building.discard(name)
            self.changed.notify_all()


class Server:
    """origin: what code of this host's cache is for."""

    def __init__(self, secret: bytes, folder: Path) -> None:
        self.secret, self.shelf, self.origin = secret, Shelf(folder), cache.origin()
        self.listener = socket.create_server(("", 0), backlog=1024)
        self.port: int = self.listener.getsockname()[1]

    def serve(self) -> None:
        """Answer, each asker in a thread."""
        while True:
            line, _ = self.listener.accept()
            threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def _answer(self, line: socket.socket) -> None:
        with line, contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # strangers, and who has gone
            line.settimeout(GREETING_S)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            mine = secrets.token_bytes(NONCE_NBYTES)
            send(line, mine)
            said = receive(line, 2 * NONCE_NBYTES)
            theirs, shown = said[:NONCE_NBYTES], said[NONCE_NBYTES:]
            if not hmac.compare_digest(shown, proof(self.secret, mine, theirs)):
                return
            send(line, proof(self.secret, theirs, mine))
            channel = Channel(line, self.secret, mine + theirs, is_server=True)
            self._hand_out(channel, json.loads(channel.receive(_ASKED_NBYTES)))

    def _hand_out(self, channel: Channel, asked: dict[str, Any]) -> None:
        key, origin = asked["key"], asked["origin"]
        name = sha256(json.dumps([key, origin], sort_keys=True).encode()).hexdigest()
        channel.line.settimeout(None)
        code = self._kept(key) if origin == self.origin else b""
        code = code or self.shelf.take(name)
        if code:
            channel.send(code)
            return
        try:
            channel.send(b"")
            code = channel.receive()
        finally:
            self.shelf.put(name, code)

    def _kept(self, key: str) -> bytes:
        """What this host's cache has."""
        with contextlib.suppress(DistCompileError):
            entry = cache.find(key, takes=False)
            packed = portable.pack({key: entry}) if entry is not None else (b"", [])
            return packed[0] if packed[1] else b""
        return b""


def main() -> None:
    """See the head of this file."""
    parent = os.getppid()
    server = Server(bytes.fromhex(sys.stdin.readline()), places.private_folder())
    print(server.port, flush=True)
    threading.Thread(target=server.serve, daemon=True).start()
    while os.getppid() == parent:
        if select.select([sys.stdin], [], [], _LOOK_S)[0] and not os.read(sys.stdin.fileno(), 64):
            break


if __name__ == "__main__":
    main()
