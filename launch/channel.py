"""The wire between a rank and its launcher: a Unix socket in a private folder.

    rank -> launcher   {"event": "hello", "rank", "pid"}           then, from the launcher, two file descriptors:
    launcher -> rank   b"!" + [stdout, stderr]                     the rank puts them in the place of 1 and 2
    rank -> launcher   {"event": "failed", "exit_code", "summary", "traceback"} | {"event": "done"}
    rank -> launcher   any other line: text of faulthandler, written by a dying process

One JSON object a line. Because each rank has pipes of its own, lines of different ranks cannot mix, and C code's output
is caught as well. A closed socket without "done" or "failed" means that the process died (or became another by exec).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from dataclasses import dataclass, field
from typing import Any

_HELLO_TIMEOUT_S = 30.0


class Channel:
    """A rank's end."""

    def __init__(self, path: str, rank: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_HELLO_TIMEOUT_S)
        self._socket.connect(path)
        self._send({"event": "hello", "rank": rank, "pid": os.getpid()})
        _, descriptors, _, _ = socket.recv_fds(self._socket, 1, 2)
        for descriptor, target in zip(descriptors, (1, 2)):
            os.dup2(descriptor, target)
            os.close(descriptor)
        self._socket.settimeout(None)

    def fileno(self) -> int:
        return self._socket.fileno()

    def failed(self, exit_code: int, summary: str, traceback: str) -> None:
        """Tell the launcher that this rank ends with `exit_code`, and why."""
        self._send({"event": "failed", "exit_code": exit_code, "summary": summary, "traceback": traceback})

    def done(self) -> None:
        """Tell the launcher that the program came to its end."""
        self._send({"event": "done"})

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the launcher is gone: nobody to tell
            self._socket.sendall(json.dumps(message).encode() + b"\n")


@dataclass
class RankLink:
    """The launcher's end of one rank, and what the rank has said so far. Times are of time.monotonic()."""

    socket: socket.socket
    rank: int = -1  # until it has said hello
    pid: int = 0
    done: bool = False
    closed_at: float | None = None
    failed_at: float | None = None
    exit_code: int = 0
    summary: str = ""
    traceback: str = ""
    fault: str = ""
    _pending: bytes = field(default=b"", repr=False)

    @property
    def died(self) -> bool:
        """The process went away without saying why."""
        return self.closed_at is not None and not self.done and self.failed_at is None

    def receive(self) -> bool:
        """Take in what has arrived. True when the hello has just come; sets `closed_at` at the end."""
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            data = b""
        if not data:
            self.closed_at = time.monotonic()
            self.fault += self._pending.decode(errors="replace")
            return False
        *lines, self._pending = (self._pending + data).split(b"\n")
        was_silent = self.pid == 0
        for line in lines:
            self._take(line)
        return was_silent and self.pid != 0

    def _take(self, line: bytes) -> None:
        if not line.startswith(b"{"):
            self.fault += line.decode(errors="replace") + "\n"
            return
        message = json.loads(line)
        if message["event"] == "hello":
            self.rank, self.pid = message["rank"], message["pid"]
        elif message["event"] == "done":
            self.done = True
        else:
            self.failed_at = time.monotonic()
            self.exit_code, self.summary = message["exit_code"], message["summary"]
            self.traceback = message["traceback"]

    def hand_over(self, stdout: int, stderr: int) -> None:
        """Give the rank its stdout and stderr."""
        socket.send_fds(self.socket, [b"!"], [stdout, stderr])


def listen(path: str) -> socket.socket:
    """The socket on which ranks say hello."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(1024)
    listener.setblocking(False)
    return listener
