"""Everything that arrives at the launcher: hellos and messages of wardens and ranks, and output through pipes.

In: the selector's events. Out: `records`, one a rank, kept up to date; output handed to whoever watches its pipe.
"""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable, Mapping
from functools import partial

from launch.channel import FarAddress, Link, listen, listen_far
from launch.records import RankRecord
from launch.screen.relay import Relay


class Switchboard:
    """The launcher's ears. folder: where the socket is. hears_far: ranks of other hosts too, at `far`."""

    def __init__(self, relay: Relay, folder: str, *, hears_far: bool = False) -> None:
        self.relay = relay
        self.records: dict[int, RankRecord] = {}
        self.open_pipes: set[int] = set()
        self.process_watches: set[int] = set()
        self.selector = selectors.DefaultSelector()
        self.listeners = [listen(folder)]
        self.far: FarAddress | None = None
        if hears_far:
            listener, self.far = listen_far()
            self.listeners.append(listener)
        for listener in self.listeners:
            self.selector.register(listener, selectors.EVENT_READ, partial(self._accept, listener))

    def wait(self, timeout_s: float) -> None:
        """Take in what arrives within `timeout_s`."""
        for key, _ in self.selector.select(timeout=timeout_s):
            key.data()

    def running(self) -> list[int]:
        """The ranks' own processes, on this host, that nobody has said to be over."""
        return [record.pid for record in self.records.values() if record.is_alive and not record.is_far]

    def signal(self, *signums: int) -> None:
        """Send signals to all ranks that nobody has said to be over."""
        for record in self.records.values():
            for signum in signums if record.is_alive else ():
                record.signal(signum)

    def watch(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        """Call `take` with what arrives on a pipe, and with b"" at its end."""
        os.set_blocking(descriptor, False)
        self.open_pipes.add(descriptor)

        def readable() -> None:
            try:
                data = os.read(descriptor, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                self.selector.unregister(descriptor)
                self.open_pipes.discard(descriptor)
                os.close(descriptor)
            take(data)

        self.selector.register(descriptor, selectors.EVENT_READ, readable)

    def watch_end(self, pid: int, ended: Callable[[], None]) -> None:
        """Call `ended` when process `pid` has ended; never, where the kernel does not tell."""
        if not hasattr(os, "pidfd_open"):
            return
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            ended()
            return
        self.process_watches.add(descriptor)

        def readable() -> None:
            self.selector.unregister(descriptor)
            self.process_watches.discard(descriptor)
            os.close(descriptor)
            ended()

        self.selector.register(descriptor, selectors.EVENT_READ, readable)

    def close(self) -> None:
        for descriptor in self.open_pipes | self.process_watches:
            os.close(descriptor)
        for listener in self.listeners:
            listener.close()
        self.selector.close()

    def _accept(self, listener: socket.socket) -> None:
        """Take all who wait: between two rounds a loaded launcher may need long, and what they said would be old."""
        while True:
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                return
            link = Link(connection, is_far=listener is not self.listeners[0])
            self.selector.register(connection, selectors.EVENT_READ, partial(self._hear, link, {}))

    def _hear(self, link: Link, said: dict[str, int | str]) -> None:
        """One readable connection. said: its hello, once it has come."""
        messages, text = link.receive()
        for message in messages:
            if message["event"] == "hello":
                if link.is_far and (self.far is None or message.get("token") != self.far.token):
                    link.closed = True  # a stranger
                    break
                said.update(message)
                self._greet(link, said)
            elif said:
                self.records[int(said["rank"])].take(message)
        if said and text:
            self.records[int(said["rank"])].fault += text
        if link.closed:
            self.selector.unregister(link.socket)
            link.socket.close()
            if said and said["role"] == "warden":
                self.records[int(said["rank"])].lose_warden(is_cut=link.is_cut)

    def _greet(self, link: Link, said: Mapping[str, int | str]) -> None:
        rank = int(said["rank"])
        record = self.records.setdefault(rank, RankRecord(rank, link.is_far))
        if said["role"] == "warden":
            record.warden, record.warden_link = int(said["pid"]), link
            if link.is_far:  # whose streams mpiexec carries
                return
            descriptors, close = self.relay.streams_of(rank, self.watch)
            link.hand_over(descriptors)
            close()
