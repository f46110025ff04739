"""Messages of device arrays between two ranks, by NCCL; matched, and put into one order, by the host.

In: sends and receives, from any thread, in any order. Out: `MessageWork`s.
NCCL knows no tags and pairs messages by order; its kernels wait on the GPU until both ends run. So the ends agree over
MPI first, message by message, by letters of a few words (`Letter`):

    token     sender -> receiver, by the message's tag: MPI matches it, also for a receive from any rank
    READY     receiver -> sender, where the sender is the lower rank of the two: it was matched
    ENGAGE    lower -> higher rank, which answers when it is not engaged itself: ACK. The lower one has enqueued nothing
              since it asked; the higher enqueues the message now, the lower when it has the answer
    REFUSE    receiver -> sender: another dtype or size; the receiver's Work fails, the sender's is skipped, as on MPI

Why nothing hangs: a rank engages in one message at a time, so messages are enqueued in one order that all ranks share,
each rank on one stream: the first of them that is not done has both ends running. Only lower ranks wait for higher ones
to engage, so there is no circle of them either (ordered locks; Havender 1968). A message waits for what its rank's
stream held at the launch, and never for one that was launched later.
A pair of ranks has a communicator of NCCL's of its own, started at its first message; messages that are never waited
for, or never matched, hold nothing up. Our thread sleeps while no message is on its way.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collectives.call import DTYPES, Array
from collectives.checks import dtype_name
from collectives.errors import ClosedError, CollectiveError, ForkedProcessError, NcclError, SharedDeviceError
from collectives.mailbox import message_misfit
from collectives.nccl.cuda import Runtime, Stream
from collectives.nccl.library import DTYPES as NCCL_DTYPES
from collectives.nccl.library import ID_NBYTES, NcclLibrary
from collectives.nccl.message_work import MessageWork
from collectives.nccl.opening import WORDS
from collectives.work import LocalWork, Work

if TYPE_CHECKING:
    from collectives.communicator import Communicator

CONTROL = -1  # the tag of letters; tokens have those below it: no tag of host arrays is negative
READY, ENGAGE, ACK, REFUSE = range(1, 5)
LETTER = 6  # words before the id of a communicator
NWORDS = LETTER + WORDS.size // 8
LOOK_EVERY_S = 0.1  # at what NCCL tells, while messages are on their way
FLYING_S = 0.01  # between two looks at messages on the GPU, whose memory is let go
GRACE_S = 1.0  # at the end, for messages that nobody waits for


@dataclass(eq=False)
class _Pair:
    """What this rank has with `peer`. comm: NCCL's, 0 before the first message; name: its id, once one is chosen.

    expected: letters that will come. letter, words: the one that is awaited.
    """

    peer: int
    comm: int = 0
    name: bytes = b""
    expected: int = 0
    letter: Work | None = None
    words: Any = None


@dataclass(eq=False)
class _Token:
    """A receive whose message is awaited."""

    message: MessageWork
    work: Work
    words: Array


class Postman:
    """The messages of one rank's GPU. give_up: tells the group of an error; broken: the group's, if it has one."""

    def __init__(
        self,
        host: Communicator,
        library: NcclLibrary,
        cuda: Runtime,
        *,
        give_up: Callable[[CollectiveError], None],
        broken: Callable[[], CollectiveError | None],
    ) -> None:
        self.host, self.library, self.cuda = host, library, cuda
        self.rank, self.where = host.rank, f"rank {host.rank} of {host.world_size}"
        self.give_up, self.group_broken = give_up, broken
        self.stream: Stream = cuda.new_stream()
        self.facts = cuda.identity(), library.version()
        self.changed = threading.RLock()
        self.news = threading.Event()
        self.numbers: dict[int, int] = {}  # of the next message to each rank
        self.pairs: dict[int, _Pair] = {}
        self.tokens: list[_Token] = []
        self.known: dict[tuple[int, int, bool], MessageWork] = {}  # by peer, number, whether this rank sends
        self.to_ask: deque[MessageWork] = deque()
        self.asked: deque[MessageWork] = deque()
        self.engaged: MessageWork | None = None
        self.flying: deque[tuple[MessageWork, float]] = deque()
        self.looked_s = 0.0
        self.broken: CollectiveError | None = None
        self.is_closing = False
        self.thread: threading.Thread | None = None

    # -- launching

    def send(self, array: Array, peer: int, tag: int) -> MessageWork:
        """Send `array` to rank `peer`. Waits for nobody."""
        message = self._message(array, peer, tag, is_send=True)
        with self.changed:
            self._check()
            message.number = self.numbers.get(peer, 0)
            self.numbers[peer] = message.number + 1
            self.known[peer, message.number, True] = message
            self._pair(peer).expected += 1  # READY or REFUSE from a higher rank; ENGAGE or REFUSE from a lower one
            facts = DTYPES.index(dtype_name(message.dtype)), message.count, message.number
            self.host.launch_send(np.array([*facts, *self.facts], np.int64), peer, CONTROL - 1 - tag)
            self._wake()
        return message

    def receive(self, array: Array, peer: int | None, tag: int) -> MessageWork:
        """Receive into `array` from rank `peer`, or from any (None). Waits for nobody."""
        message = self._message(array, peer, tag, is_send=False)
        words = np.zeros(5, np.int64)
        with self.changed:
            self._check()
            message.token = self._await(self.host.launch_receive(words, peer, CONTROL - 1 - tag), quick=False)
            self.tokens.append(_Token(message, message.token, words))
            self._wake()
        return message

    def _message(self, array: Array, peer: int | None, tag: int, *, is_send: bool) -> MessageWork:
        limit_s = self.host.timeout_s
        return MessageWork(self.cuda, array, peer, tag, is_send=is_send, rank=self.rank, timeout_s=limit_s)

    def _check(self) -> None:
        broken = self.broken or self.group_broken()
        if broken is not None:
            raise broken

    def _pair(self, peer: int) -> _Pair:
        return self.pairs.setdefault(peer, _Pair(peer))

    def _wake(self) -> None:
        """The caller holds the lock."""
        if self.thread is None:
            self.thread = threading.Thread(target=self._serve, name=f"nccl messages of rank {self.rank}", daemon=True)
            self.thread.start()
        self.news.set()

    # -- our thread

    def _serve(self) -> None:
        self.cuda.use()
        while not self.is_closing and self.broken is None:
            self.news.clear()
            try:
                went = self._step()
                self._watch()
            except CollectiveError as error:
                self.fail(error)
            except Exception as error:  # noqa: BLE001 - whoever waits must learn of it, whatever it is
                self.fail(NcclError("a message could not be enqueued", where=self.where, got=repr(error)))
            else:
                if not went:
                    self.news.wait(FLYING_S if self.flying else LOOK_EVERY_S if self._is_busy() else None)

    def _await(self, work: Work, *, quick: bool) -> Work:
        """`work`, of the host; our thread looks when it ends. quick: somebody waits for it."""
        if isinstance(work, LocalWork):
            work.on_end = self.news.set
            work.is_awaited = quick
        self.news.set()  # it may have ended before
        return work

    def _is_busy(self) -> bool:
        waits = any(pair.expected for pair in self.pairs.values())
        return bool(waits or self.tokens or self.to_ask or self.asked or self.engaged or self.flying)

    def _step(self) -> bool:
        """Look at all that may have come, and go on with one message. Whether anything had."""
        with self.changed:
            tokens, pairs = list(self.tokens), list(self.pairs.values())
        came = [self._look_at_token(token) for token in tokens] + [self._look_at_letter(pair) for pair in pairs]
        went = False
        if self.engaged is None and self.asked:
            self._answer(self.asked.popleft())
            went = True
        elif self.engaged is None and self.to_ask:
            self._ask(self.to_ask.popleft())
            went = True
        return went or any(came)

    def _look_at_token(self, token: _Token) -> bool:
        if not token.work.is_done():
            return False
        with self.changed:
            self.tokens.remove(token)
        message, peer = token.message, token.work.peer
        try:
            token.work.wait(0.0)
        except CollectiveError as error:
            message.fail(error)
            return True
        assert peer is not None
        code, count, message.number, *_ = (int(word) for word in token.words)
        message.peer = peer
        misfit = message_misfit(
            peer, message.tag, sent_dtype=DTYPES[code], sent_count=count, rank=self.rank,
            wanted_dtype=dtype_name(message.dtype), wanted_count=message.count,
        )  # fmt: skip
        if misfit is not None:
            self._write(peer, REFUSE, message)
            message.fail(misfit)
            return True
        message.phase = "waiting until both ends are free for it"
        with self.changed:
            self.known[peer, message.number, False] = message
            if self.rank > peer:
                self._pair(peer).expected += 1  # ENGAGE
        if self.rank > peer:
            self._write(peer, READY, message)
        else:
            self.to_ask.append(message)
        return True

    def _look_at_letter(self, pair: _Pair) -> bool:
        """Take a letter of this pair's, or begin to await one."""
        if pair.letter is None:
            if pair.expected:
                pair.words = np.zeros(NWORDS, np.int64)
                pair.letter = self._await(self.host.launch_receive(pair.words, pair.peer, CONTROL), quick=True)
            return False
        if not pair.letter.is_done():
            return False
        pair.letter.wait(0.0)
        pair.letter = None
        with self.changed:
            pair.expected -= 1
        kind, number, is_from_sender, identity, version, has_name, *name = (int(word) for word in pair.words)
        message = self.known[pair.peer, number, not is_from_sender]
        if has_name and not pair.name:
            pair.name = WORDS.pack(*name)
        if kind == ENGAGE and (identity == self.facts[0] or version != self.facts[1]):
            self._write(pair.peer, ACK, message)  # so that it learns of it, too
        if kind in (ENGAGE, ACK):
            self._check_facts(pair.peer, identity, version)
        if kind == READY:
            self.to_ask.append(message)
        elif kind == ENGAGE:
            self.asked.append(message)
        elif kind == ACK:
            self.engaged = None
            self._enqueue(message)
        else:
            with self.changed:
                del self.known[pair.peer, number, True]
            message.finish(skipped=True)
            message.array = None
        return True

    def _ask(self, message: MessageWork) -> None:
        """As the lower rank: engage, and ask the higher one to."""
        assert message.peer is not None
        pair = self._pair(message.peer)
        if not pair.name:
            pair.name = self.library.unique_id()
        with self.changed:
            self.engaged = message
            pair.expected += 1  # ACK
        self._write(message.peer, ENGAGE, message, pair.name)

    def _answer(self, message: MessageWork) -> None:
        assert message.peer is not None
        self._write(message.peer, ACK, message)
        self._enqueue(message)

    def _write(self, peer: int, kind: int, message: MessageWork, name: bytes = b"") -> None:
        words = WORDS.unpack(name or bytes(ID_NBYTES))
        facts = kind, message.number, int(message.is_send), *self.facts, int(bool(name))
        self.host.launch_send(np.array([*facts, *words], np.int64), peer, CONTROL)

    def _check_facts(self, peer: int, identity: int, version: int) -> None:
        if identity == self.facts[0]:
            raise SharedDeviceError(
                f"ranks {min(peer, self.rank)}, {max(peer, self.rank)} use one GPU",
                where=self.where,
                expected="a GPU for each rank: NCCL does not take two ranks on one",
                remedy="torch.cuda.set_device(local_rank) before the first tensor",
            )
        if version != self.facts[1]:
            raise NcclError(
                "ranks have loaded different versions of NCCL",
                where=self.where,
                got=f"rank {self.rank}: {self.facts[1]}; rank {peer}: {version}",
                remedy="install one nvidia-nccl wheel on all hosts",
            )

    def _enqueue(self, message: MessageWork) -> None:
        """Both ends do this next, or have done it."""
        assert message.peer is not None
        assert message.array is not None
        pair, at = self._pair(message.peer), int(self.rank > message.peer)
        if not pair.comm:
            pair.comm = self.library.init(2, pair.name, at)
        self.cuda.wait(self.stream, message.after)
        if message.nbytes:
            move = self.library.send if message.is_send else self.library.receive
            byte, address = NCCL_DTYPES["uint8"], self.cuda.address(message.array)
            self.library.group_start()
            try:
                move(address, message.nbytes, byte, 1 - at, pair.comm, self.cuda.pointer(self.stream))
            finally:
                self.library.group_end()
        ended = self.cuda.record(self.stream)
        with self.changed:
            del self.known[message.peer, message.number, message.is_send]
            message.enqueued(ended)
            self.flying.append((message, time.perf_counter()))

    def _watch(self) -> None:
        """Find what went wrong; let go of what is done."""
        self._let_go()
        broken = self.group_broken()
        if broken is not None:
            raise broken
        now_s = time.perf_counter()
        flying = list(self.flying)  # who drains takes from it, too
        if not flying or now_s - self.looked_s < LOOK_EVERY_S:
            return
        self.looked_s = now_s
        for pair in list(self.pairs.values()):
            said = self.library.async_error(pair.comm) if pair.comm else ""
            if said:
                raise NcclError(f"NCCL failed in a message with rank {pair.peer}", where=self.where, got=said)
        first, enqueued_s = flying[0]
        if now_s - enqueued_s > self.host.timeout_s:
            raise first.timeout_error(self.host.timeout_s)

    def _let_go(self) -> None:
        with self.changed:
            while self.flying and self.flying[0][0].is_done():
                self.flying.popleft()

    # -- the end

    def fail(self, error: CollectiveError) -> None:
        """End all messages, and later ones, with `error`; the kernels of those in flight end, too."""
        with self.changed:
            if self.broken is not None:
                return
            self.broken = error
            left = [*(t.message for t in self.tokens), *self.known.values(), *(m for m, _ in self.flying)]
        self.news.set()
        self._abort()
        for message in left:
            message.fail(error)
        self.give_up(error)

    def become_forked(self, error: ForkedProcessError) -> None:
        """In a forked child: messages under way end with `error`, and later ones too."""
        self.broken, self.changed = error, threading.RLock()
        left = [*(t.message for t in self.tokens), *self.known.values(), *(m for m, _ in self.flying)]
        for message in left:
            message.fail(error)

    def _abort(self) -> None:
        for pair in self.pairs.values():
            if pair.comm:
                self.library.abort(pair.comm)

    def drain(self, timeout_s: float) -> None:
        """Wait until what was sent, or matched, is done; then end receives that nothing came for with ClosedError."""
        began_s = time.perf_counter()
        while self.broken is None and (self.known or self.flying or self._may_come(began_s)):
            left = [*self.known.values(), *(message for message, _ in self.flying)]
            if left and time.perf_counter() - began_s > timeout_s:
                self.fail(left[0].timeout_error(timeout_s))
            self._let_go()
            time.sleep(50e-6)
        with self.changed:
            tokens, self.tokens = self.tokens, []
        for token in tokens:
            token.message.fail(ClosedError(f"closed before {token.message.what} was done", where=self.where))

    def _may_come(self, began_s: float) -> bool:
        """Whether a message that somebody sent may not have been seen yet."""
        return bool(self.tokens) and time.perf_counter() - began_s < GRACE_S

    def stop(self) -> None:
        """After `drain`: end our thread."""
        with self.changed:
            self.is_closing = True
        self.news.set()
        if self.thread is not None:
            self.thread.join(self.host.timeout_s)

    def free(self) -> None:
        """After `stop`, when all ranks have drained: let NCCL go."""
        if self.broken is None:
            self._abort()
            self.broken = ClosedError("this communicator is closed", where=self.where)
