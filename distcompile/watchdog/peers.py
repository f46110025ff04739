"""What the other ranks are doing: their boards where they can be mapped, a question over UDP where they cannot.

In: every rank's `Card` (exchanged once, when the group is made). Out: a `Report` of a rank, whatever state it is in.
Ranks of one host (one kernel and one process namespace) map each other's boards at the start: they stay readable when
their rank is stopped or dead. A rank elsewhere answers datagrams, from a thread, on a port that it told; each question
carries the job's secret, so that nobody else is answered. A question may also ask it to write its Python stacks to
stderr. No answer within ANSWER_S is an answer too: stopped, gone, or out of reach.
"""

from __future__ import annotations

import math
import os
import secrets
import select
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.board import BoardError, Phase, Reader, Snapshot, left, now_ns

ANSWER_S = 0.7
STACK_LINES = 20
LONGEST_COMPILE_S = 3600.0
_LONGEST = 4096  # bytes of a datagram
_QUESTION = 33  # bytes: the secret, what is asked, the rank, the question's number
_HEAD = struct.Struct("=?d")
_SIOCGIFADDR = 0x8915
_STATE, _STACKS = b"?", b"!"


@dataclass(frozen=True, slots=True)
class Card:
    """Where a rank's board is. key: same for processes that see each other. born: the process's start, in ticks."""

    key: str
    path: str
    process: int
    born: int
    addresses: tuple[str, ...]
    port: int


@dataclass(frozen=True, slots=True)
class Report:
    """What is known of a rank now. is_gone: it will come to no further collective. compiled_s_ago: 0: it is at it."""

    sentence: str
    is_gone: bool
    compiled_s_ago: float


def host_key() -> str:
    """Equal for two processes that can look at each other's files under /proc; "" where there is no /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')} {os.readlink('/proc/self/ns/mnt')}"
    except OSError:
        return ""


def life_of(process: int) -> tuple[str, int]:
    """(state letter, start in ticks) of a process; ("", 0) if there is none."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return "", 0
    return fields[0], int(fields[19])


def local_addresses() -> tuple[str, ...]:
    """The IPv4 addresses of this host's interfaces, loopback last."""
    import fcntl

    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                raw = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # an interface without an IPv4 address
            found.append(socket.inet_ntoa(raw[20:24]))
    return tuple(sorted(found, key=lambda address: address.startswith("127."))) or ("127.0.0.1",)


class Answerer:
    """The thread that answers other hosts' questions about this rank's board. secret: the job's, of 16 bytes."""

    def __init__(self, reader: Reader, secret: bytes) -> None:
        self.reader, self.secret = reader, secret
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("", 0))
        self.port: int = self.socket.getsockname()[1]
        self.ending = False
        self.thread = threading.Thread(target=self._serve, name="distcompile answers", daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        last = b""
        while not self.ending:
            question, asker = self.socket.recvfrom(_LONGEST)
            if question[:16] != self.secret or len(question) < _QUESTION or question == last:
                continue  # a stranger's, or the same one by another of our addresses
            last = question
            if question[16:17] == _STACKS:
                write_stack()
            snapshot = self.reader.snapshot()
            gone = snapshot.main.phase is Phase.EXCEPTION
            head = question[17:25] + _HEAD.pack(gone, compiled_s_ago(snapshot, now_ns()))
            self.socket.sendto(head + describe(snapshot, "").encode()[: _LONGEST - 32], asker)

    def close(self) -> None:
        """End the thread: a datagram to ourselves wakes it."""
        self.ending = True
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", ("127.0.0.1", self.port))
        self.thread.join(1.0)
        self.socket.close()


def write_stack() -> None:
    """Where this process's main thread is, to stderr."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    lines = traceback.format_stack(frame, limit=STACK_LINES) if frame is not None else []
    sys.stderr.write(f"process {os.getpid()} is here:\n{''.join(lines)}")
    sys.stderr.flush()


def compiled_s_ago(snapshot: Snapshot, now: int) -> float:
    """Seconds since the rank last compiled: 0 if it is at it, and lives; infinite if it never was.

    A single step that takes longer than LONGEST_COMPILE_S does not count.
    """
    main = snapshot.main
    if main.phase is Phase.COMPILING:
        return 0.0 if not snapshot.is_stale(now) and now - main.since_ns < LONGEST_COMPILE_S * 1e9 else math.inf
    return (now - snapshot.compiled_ns) / 1e9 if snapshot.compiled_ns else math.inf


def describe(snapshot: Snapshot, state: str) -> str:
    """The sentence of a board whose process is in the kernel's `state` ("": not known)."""
    text = snapshot.sentence(now_ns())
    if state in ("T", "t"):
        return f"{text.split('; no sign of life')[0]}; its process {snapshot.process} is stopped (SIGSTOP)"
    return text


class Peers:
    """All ranks of one group, by rank. cards: everyone's."""

    def __init__(self, rank: int, cards: Sequence[Card], secret: bytes) -> None:
        self.rank, self.cards, self.secret = rank, list(cards), secret
        self.readers: dict[int, Reader] = {}
        mine = cards[rank]
        for peer, card in enumerate(cards):
            if mine.key and card.key == mine.key:
                self._map(peer, card)

    def _map(self, peer: int, card: Card) -> None:
        """Map a peer's board, if the file is its; otherwise it is asked by datagram."""
        try:
            reader = Reader.open(card.path)
        except (OSError, BoardError):
            return
        if reader.snapshot().process == card.process:
            self.readers[peer] = reader

    def close(self) -> None:
        """Give the mapped boards up."""
        self.readers = {}

    def reports(self, ranks: Sequence[int], *, with_stacks: bool = False) -> dict[int, Report]:
        """What those ranks are doing, by rank. with_stacks: they write their stacks to stderr, if they can."""
        far = [r for r in ranks if with_stacks or r not in self.readers]
        told = self._ask(far, with_stacks) if far else {}
        return {**told, **{r: self._local(r, self.readers[r]) for r in ranks if r in self.readers}}

    def _local(self, rank: int, reader: Reader) -> Report:
        snapshot, card = reader.snapshot(), self.cards[rank]
        state, born = life_of(card.process)
        is_dead = state in ("", "Z", "X") or born != card.born
        phase = snapshot.main.phase
        if snapshot.exception is not None and (is_dead or phase is Phase.EXCEPTION):
            text = left(rank, snapshot.exception)
        elif is_dead and phase is not Phase.FINISHED:
            last = snapshot.sentence(snapshot.beat_ns).removeprefix(f"rank {rank} ")
            text = f"rank {rank}'s process {card.process} is gone; at its last sign of life it {last}"
        else:
            text = describe(snapshot, state)
        is_gone = is_dead or phase is Phase.EXCEPTION  # one that has finished still closes its group
        is_idle = is_dead or state in ("T", "t")
        return Report(text, is_gone, math.inf if is_idle else compiled_s_ago(snapshot, now_ns()))

    def _ask(self, ranks: Sequence[int], with_stacks: bool) -> dict[int, Report]:
        """Questions to ranks of other hosts, all at once."""
        silent = "does not answer: stopped, gone, or its host is out of reach"
        found = {r: Report(f"rank {r} {silent}", False, math.inf) for r in ranks}
        number = secrets.token_bytes(8)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.bind(("", 0))
            for rank in ranks:
                question = self.secret + (_STACKS if with_stacks else _STATE) + struct.pack("q", rank) + number
                for address in self.cards[rank].addresses[:8]:
                    _send(asking, question, (address, self.cards[rank].port))
            deadline_s, waiting = time.monotonic() + ANSWER_S, set(ranks)
            while waiting and (left_s := deadline_s - time.monotonic()) > 0:
                if select.select([asking], [], [], left_s)[0]:
                    rank, report = _answer(asking.recv(_LONGEST))
                    if rank in waiting:
                        waiting.discard(rank)
                        found[rank] = report
        return found


def _send(asking: socket.socket, question: bytes, where: tuple[str, int]) -> None:
    try:
        asking.sendto(question, where)
    except OSError:  # no route to that one of its addresses; silence is what is told then
        return


def _answer(raw: bytes) -> tuple[int, Report]:
    if len(raw) < 8 + _HEAD.size:
        return -1, Report("", False, math.inf)
    (rank,) = struct.unpack_from("q", raw)
    is_gone, ago_s = _HEAD.unpack_from(raw, 8)
    return rank, Report(raw[8 + _HEAD.size :].decode(errors="replace"), is_gone, ago_s)
