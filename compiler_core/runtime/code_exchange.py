"""Compiled code from other hosts of a job: who needs an artefact asks before it compiles, and gives what it compiled.

In: the address and the secret of the job's code server (`code_server.py`), a key of the cache. Out: `Exchange`, which
the cache asks once an artefact is nowhere on this host, while it holds this host's lock for the key.

    server -> asker    32 random bytes, in a frame, as all that follows: 8 bytes of length, then these
    asker -> server    32 random bytes, then HMAC-SHA256 (secret, both of them)
    server -> asker    HMAC-SHA256 (secret, both the other way round): each knows that the other has the secret

From here on each frame ends with the HMAC-SHA256 of who says it, as which, and what (`Channel`): nobody on the way can
put other code in its place.

    asker -> server    JSON {"key", "origin"}: code is of one origin (`cache.origin`)
    server -> asker    code of `portable.py`; or nothing: nobody has it, so build it
    asker -> server    what was built, as code; or the end of the connection: it failed

Nobody waits in a circle: an asker waits for the one that builds its key, who waits for others only where its build
needs other keys. One whose build fails, or that dies, ends its connection, and the next asker builds, and says itself
what fails. An asker that loses the server, or has waited as long as for a lock of this host, builds, and says so once.
The secret travels over MPI, never over these connections. Who has it can send code that runs. Nothing is encrypted.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from compiler_core import log
from compiler_core.errors import CacheError
from compiler_core.records import dataclass
from compiler_core.runtime import cache, places, portable

NONCE_NBYTES = SEAL_NBYTES = 32
GREETING_S = 20.0  # for a stranger to prove who he is
MOST_NBYTES = 1 << 32
_CONNECT_S = 3.0
_LENGTH = struct.Struct("!Q")


def send(line: socket.socket, data: bytes) -> None:
    """One frame. Raises OSError."""
    line.sendall(_LENGTH.pack(len(data)) + data)


def receive(line: socket.socket, most: int = MOST_NBYTES) -> bytes:
    """One frame of up to `most` bytes. Raises OSError, also at the end of the connection."""
    (nbytes,) = _LENGTH.unpack(_exactly(line, _LENGTH.size))
    if nbytes > most:
        raise OSError(f"a frame of {nbytes} bytes")
    return _exactly(line, nbytes)


def _exactly(line: socket.socket, nbytes: int) -> bytes:
    data = bytearray()
    while len(data) < nbytes:
        part = line.recv(min(nbytes - len(data), 1 << 20))
        if not part:
            raise ConnectionResetError("the connection has ended")
        data += part
    return bytes(data)


def proof(secret: bytes, *nonces: bytes) -> bytes:
    """What shows that one has the secret."""
    return hmac.digest(secret, b"".join(nonces), "sha256")


class Channel:
    """A connection between two that have shown each other the secret. nonces: theirs, the server's first.

    Frames are told apart by who sends them and by their number, so none can be sent again, or back.
    """

    def __init__(self, line: socket.socket, secret: bytes, nonces: bytes, *, is_server: bool) -> None:
        self.line, self._key = line, proof(secret, b"frames", nonces)
        self._out, self._in = (b"server", b"asker") if is_server else (b"asker", b"server")
        self._sent = self._received = 0

    def send(self, data: bytes) -> None:
        """One frame. Raises OSError."""
        send(self.line, data + self._seal(self._out, self._sent, data))
        self._sent += 1

    def receive(self, most: int = MOST_NBYTES) -> bytes:
        """One frame. Raises OSError, also for one that the other end did not send so."""
        said = receive(self.line, most + SEAL_NBYTES)
        data, seal = said[:-SEAL_NBYTES], said[-SEAL_NBYTES:]
        if not hmac.compare_digest(seal, self._seal(self._in, self._received, data)):
            raise OSError("a frame was changed on its way")
        self._received += 1
        return data

    def _seal(self, who: bytes, number: int, data: bytes) -> bytes:
        return proof(self._key, who, _LENGTH.pack(number), data)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a job's code server is. host: of its host, as `hosts` are told apart there; secret: the job's."""

    host: str
    addresses: tuple[str, ...]
    port: int
    secret: bytes


class Exchange:
    """What the cache asks. host: this one's, as in `Address`."""

    def __init__(self, server: Address, host: str) -> None:
        near = ("127.0.0.1",) if host == server.host else ()
        self.server, self.addresses = server, (*near, *server.addresses)
        self.is_lost = False

    @contextmanager
    def ask(self, key: str) -> Iterator[cache.Asked]:
        """Within the block this process has the artefact, or is the one that builds it."""
        channel = self._open()
        try:
            yield cache.Asked() if channel is None else self._ask(channel, key)
        finally:
            if channel is not None:
                channel.line.close()

    def _open(self) -> Channel | None:
        if self.is_lost:
            return None
        failures: list[str] = []
        for address in self.addresses:
            try:
                return greet(address, self.server.port, self.server.secret)
            except OSError as error:
                failures.append(f"{address}: {error}")
        self._lose("; ".join(failures))
        return None

    def _ask(self, channel: Channel, key: str) -> cache.Asked:
        try:
            channel.send(json.dumps({"key": key, "origin": cache.origin()}).encode())
            channel.line.settimeout(places.LOCK_LIMIT_S)
            data = channel.receive()
            code = portable.writer_of(data, key) if data else None
        except (OSError, CacheError) as error:
            self._lose(str(error))
            return cache.Asked()
        return cache.Asked(code, None if data else lambda entry: self._give(channel, key, entry))

    def _give(self, channel: Channel, key: str, entry: cache.Entry) -> None:
        try:
            channel.send(portable.pack({key: entry})[0])
        except OSError as error:
            self._lose(str(error))

    def _lose(self, why: str) -> None:
        self.is_lost = True
        what = f"the code server of rank 0's host is lost ({why}): this host compiles what it needs by itself"
        log.warn_once(f"code server {self.server.port}", what)


def greet(address: str, port: int, secret: bytes) -> Channel:
    """A connection to a server that has the secret. Raises OSError."""
    line = socket.create_connection((address, port), _CONNECT_S)
    try:
        line.settimeout(GREETING_S)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        theirs, mine = receive(line, NONCE_NBYTES), secrets.token_bytes(NONCE_NBYTES)
        send(line, mine + proof(secret, theirs, mine))
        if not hmac.compare_digest(receive(line, NONCE_NBYTES), proof(secret, mine, theirs)):
            raise OSError("it is another job's")
        return Channel(line, secret, theirs + mine, is_server=False)
    except BaseException:
        line.close()
        raise
