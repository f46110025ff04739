"""The wire between the processes of a rank and their launcher: a JSON object a line, over a Unix socket in a private
folder, or, from hosts that do not have the folder, over TCP.

    warden -> launcher   hello {"role": "warden", "rank", "pid"}; the launcher answers with three file descriptors,
                         which the warden puts in the place of 0, 1 and 2, so lines of different ranks cannot mix
    warden -> launcher   {"event": "started", "pid"}              the rank's own process
                         {"event": "orphaned"}                    the mpiexec above this rank has gone
                         {"event": "ended", "status", "relayed", "at"}   what waitpid said; the signal passed on to it
    launcher -> warden   b"leave\\n"                               end as the rank ended: mpiexec may know now
                         b"signal 15\\n"                           pass it on to the rank (of another host)
    rank -> launcher     hello {"role": "rank", "rank", "pid"}
                         {"event": "failed", ...} | {"event": "done"} | {"event": "exec", "stays"}
    rank -> launcher     hello {"role": "stacks", "rank", "pid"}, then text of faulthandler, as the process dies

Times ("at") are of CLOCK_MONOTONIC, which all processes of a host share; what another host tells is timed as it
arrives. Over TCP no streams are handed over (mpiexec carries them), and a hello carries the job's token; who has none
is not heard. Both ends ask every few seconds whether the other host is there. The warden outlives the rank: however a
rank dies, somebody who knows how says so. A closed socket is never taken for news of the rank.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

SOCKET_NAME = "s"
STREAMS = (0, 1, 2)
LEAVE, SIGNAL = b"leave\n", b"signal %d\n"
_HELLO_TIMEOUT_S = 60.0
_CONNECT_TIMEOUT_S = 3.0
_TOKEN_NBYTES = 16
_SIOCGIFADDR = 0x8915


@dataclass(frozen=True, slots=True)
class FarAddress:
    """Where the launcher hears other hosts. As a word: `TOKEN@PORT@HOST,HOST`."""

    token: str
    port: int
    hosts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.token}@{self.port}@{','.join(self.hosts)}"

    @staticmethod
    def parse(word: str) -> FarAddress:
        """The inverse of str()."""
        token, port, hosts = word.split("@", 2)
        return FarAddress(token, int(port), tuple(hosts.split(",")))


class Channel:
    """A process's end. role: "warden", "rank" or "stacks". where: the job's folder, or the launcher's address.

    Raises OSError if the launcher cannot be reached.
    """

    def __init__(self, where: str | FarAddress, role: str, rank: int) -> None:
        more: dict[str, str] = {}
        if isinstance(where, FarAddress):
            self._socket, more = _reach(where), {"token": where.token}
        else:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(_HELLO_TIMEOUT_S)
            self._socket.connect(os.path.join(where, SOCKET_NAME))
        self.tell("hello", role=role, rank=rank, pid=os.getpid(), **more)
        if role != "warden" or more:  # one of this host waits for its streams, with a limit
            self._socket.settimeout(None)

    def fileno(self) -> int:
        return self._socket.fileno()

    def take_streams(self) -> None:
        """Put the launcher's stdin, stdout and stderr in the place of ours."""
        _, descriptors, _, _ = socket.recv_fds(self._socket, 1, len(STREAMS))
        for descriptor, target in zip(descriptors, STREAMS, strict=True):
            os.dup2(descriptor, target)
            os.close(descriptor)
        self._socket.settimeout(None)

    def tell(self, event: str, **facts: Any) -> None:
        """Send one event, stamped with the time."""
        line = json.dumps({"event": event, "at": time.monotonic(), **facts}).encode() + b"\n"
        with contextlib.suppress(OSError):  # the launcher is gone, or out of reach: nobody to tell
            self._socket.sendall(line)

    def receive(self) -> bytes:
        """What the launcher says; b"" once it is gone, or out of reach."""
        try:
            return self._socket.recv(64)
        except OSError:
            return b""

    def close(self) -> None:
        self._socket.close()


def _message(line: bytes) -> dict[str, Any]:
    """The message of one line; empty for a stranger's."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and "event" in found else {}


def _reach(launcher: FarAddress) -> socket.socket:
    """A connection to the launcher by the first of its addresses that answers. Raises OSError."""
    failure = OSError("the launcher told no address")
    for host in launcher.hosts:
        try:
            reached = socket.create_connection((host, launcher.port), _CONNECT_TIMEOUT_S)
            keep_alive(reached)
            return reached
        except OSError as error:
            failure = error
    raise failure


class Link:
    """The launcher's end of one connection: cuts what arrives into messages and lines of plain text.

    is_far: from another host. is_cut: it ended without a word of the other end: the network, or that host, is down.
    """

    def __init__(self, connection: socket.socket, *, is_far: bool = False) -> None:
        connection.setblocking(False)
        self.socket, self.is_far = connection, is_far
        self.closed = self.is_cut = False
        self._pending = b""

    def receive(self) -> tuple[list[dict[str, Any]], str]:
        """(messages, text of faulthandler) that have arrived; sets `closed` at the end."""
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return [], ""
        except OSError as error:
            data, self.is_cut = b"", not isinstance(error, ConnectionResetError)
        self.closed = not data
        *lines, self._pending = (self._pending + (data or b"\n")).split(b"\n")
        messages = [message for line in lines if line.startswith(b"{") and (message := _message(line))]
        text = [line.decode(errors="replace") + "\n" for line in lines if line and not line.startswith(b"{")]
        if self.is_far:
            messages = [message | {"at": time.monotonic()} for message in messages]
        return messages, "".join(text)

    def hand_over(self, descriptors: tuple[int, int, int]) -> None:
        """Give the warden its stdin, stdout and stderr."""
        self._send(lambda: socket.send_fds(self.socket, [b"!"], descriptors))

    def leave(self) -> None:
        """Let the warden end."""
        self._send(lambda: self.socket.send(LEAVE))

    def signal(self, signum: int) -> None:
        """Have the warden pass a signal on."""
        self._send(lambda: self.socket.send(SIGNAL % signum))

    def _send(self, send: Any) -> None:
        with contextlib.suppress(OSError):  # it has died, or is out of reach: its closed link says so
            send()


def listen(folder: str) -> socket.socket:
    """The socket on which wardens and ranks say hello."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(os.path.join(folder, SOCKET_NAME))
    listener.listen(1024)
    listener.setblocking(False)
    return listener


def listen_far() -> tuple[socket.socket, FarAddress]:
    """A socket for the ranks of other hosts, and what to tell them of it."""
    listener = socket.create_server(("", 0), backlog=1024)
    listener.setblocking(False)
    keep_alive(listener)  # accepted connections inherit it
    hosts = (*local_addresses(), socket.gethostname())
    return listener, FarAddress(secrets.token_hex(_TOKEN_NBYTES), listener.getsockname()[1], hosts)


def keep_alive(connection: socket.socket) -> None:
    """Have the kernel notice within 13 seconds that the other host went dark."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def local_addresses() -> tuple[str, ...]:
    """The IPv4 addresses of this host's interfaces but the loopback; empty where they cannot be asked for."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an address
                raw = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append(socket.inet_ntoa(raw[20:24]))
    return tuple(address for address in found if not address.startswith("127."))
