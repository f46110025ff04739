"""The wire between the processes of a rank and their launcher: Unix sockets in a private folder, a JSON object a line.

    warden -> launcher   hello {"role": "warden", "rank", "pid"}; the launcher answers with three file descriptors,
                         which the warden puts in the place of 0, 1 and 2, so lines of different ranks cannot mix
    warden -> launcher   {"event": "started", "pid"}              the rank's own process
                         {"event": "orphaned"}                    the mpiexec above this rank has gone
                         {"event": "ended", "status", "relayed", "at"}   what waitpid said; the signal passed on to it
    launcher -> warden   b"leave\\n"                               end as the rank ended: mpiexec may know now
    rank -> launcher     hello {"role": "rank", "rank", "pid"}
                         {"event": "failed", ...} | {"event": "done"} | {"event": "exec", "stays"}
    rank -> launcher     hello {"role": "stacks", "rank", "pid"}, then text of faulthandler, as the process dies

Times ("at") are of CLOCK_MONOTONIC, which all processes of a host share. The warden outlives the rank: however a rank
dies, somebody who knows how says so. A closed socket is never taken for news of the rank.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from typing import Any

SOCKET_NAME = "s"
STREAMS = (0, 1, 2)
LEAVE = b"leave\n"
_HELLO_TIMEOUT_S = 60.0


class Channel:
    """A process's end. role: "warden", "rank" or "stacks"."""

    def __init__(self, folder: str, role: str, rank: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_HELLO_TIMEOUT_S)
        self._socket.connect(os.path.join(folder, SOCKET_NAME))
        self.tell("hello", role=role, rank=rank, pid=os.getpid())
        if role != "warden":  # which waits for its streams, with a limit
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
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the launcher is gone: nobody to tell
            self._socket.sendall(line)

    def receive(self) -> bytes:
        """What the launcher says; b"" once it is gone."""
        try:
            return self._socket.recv(64)
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        self._socket.close()


class Link:
    """The launcher's end of one connection: cuts what arrives into messages and lines of plain text."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.closed = False
        self._pending = b""

    def receive(self) -> tuple[list[dict[str, Any]], str]:
        """(messages, text of faulthandler) that have arrived; sets `closed` at the end."""
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return [], ""
        except ConnectionResetError:
            data = b""
        self.closed = not data
        *lines, self._pending = (self._pending + (data or b"\n")).split(b"\n")
        messages = [json.loads(line) for line in lines if line.startswith(b"{")]
        text = [line.decode(errors="replace") + "\n" for line in lines if line and not line.startswith(b"{")]
        return messages, "".join(text)

    def hand_over(self, descriptors: tuple[int, int, int]) -> None:
        """Give the warden its stdin, stdout and stderr."""
        self._send(lambda: socket.send_fds(self.socket, [b"!"], descriptors))

    def leave(self) -> None:
        """Let the warden end."""
        self._send(lambda: self.socket.send(LEAVE))

    def _send(self, send: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has died: its closed link says so
            send()


def listen(folder: str) -> socket.socket:
    """The socket on which wardens and ranks say hello."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(os.path.join(folder, SOCKET_NAME))
    listener.listen(1024)
    listener.setblocking(False)
    return listener
