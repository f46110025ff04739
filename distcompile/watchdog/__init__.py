"""The watchdog: every rank's status board, and what is made of it when somebody waits too long.

In: `DISTCOMPILE_BOARD` (the launcher's file for this rank; without it an anonymous one), the process group. Out: the
board, kept up to date; errors and warnings that say what the missing ranks are doing. On by default where there are
several ranks; `DISTCOMPILE_WATCHDOG_S=0` turns it off, another number is the time limit of waits that were given none.
    status.py   what this rank does, written as it goes     peers.py   the others'
    watch.py    decisions in a wait: gone, compiling, hanging
The file itself is launch/board.py, which the launcher reads.
"""

from __future__ import annotations

import atexit
import os
import secrets
import sys
import tempfile
from types import TracebackType
from typing import TYPE_CHECKING

from collectives import observer
from compiler_core import observe
from compiler_core.config import config
from distcompile.watchdog.peers import Answerer, Card, Peers, host_key, life_of, local_addresses
from distcompile.watchdog.status import Status
from distcompile.watchdog.watch import Watchdog
from launch import board as boards

if TYPE_CHECKING:
    from collectives import Communicator

PATH_VARIABLE = "DISTCOMPILE_BOARD"  # set by the launcher, for this process

_status: Status | None = None
_path = ""
_answerer: Answerer | None = None


def limit_s() -> float | None:
    """What DISTCOMPILE_WATCHDOG_S says, in seconds: 0 for off; None if it is not set. Raises ConfigError."""
    return config.watchdog_s


def status() -> Status | None:
    """This process's status; None if it keeps no board."""
    return _status


def begin_step(step: int) -> None:
    """A synchronised backward begins, the `step`-th of its kind."""
    if _status is not None:
        _status.begin_step(step)


def end_step() -> None:
    """Its buckets are all reduced."""
    if _status is not None:
        _status.end_step()


def start() -> Status | None:
    """Begin to keep this process's board: the launcher's, or one of its own. Idempotent; None if turned off."""
    global _status, _path
    if _status is not None or limit_s() == 0:
        return _status
    board, _path = _open_board()
    _status = Status(board)
    observe.install(_status)
    _note_the_end()
    os.register_at_fork(after_in_child=_forget)
    return _status


def attach(communicator: Communicator) -> None:
    """Exchange boards with the ranks of the world. Collective; `detach` undoes it."""
    global _answerer
    own = start()
    is_on = all(communicator.all_gather_object(own is not None))
    if own is None or not is_on:
        return
    secret = communicator.broadcast_object(secrets.token_bytes(16))
    reader = boards.Reader.open(_path)
    own.board.words[2] = communicator.rank
    _answerer = Answerer(reader, secret)
    card = Card(host_key(), _path, os.getpid(), life_of(os.getpid())[1], local_addresses(), _answerer.port)
    peers = Peers(communicator.rank, communicator.all_gather_object(card), secret)
    communicator.all_gather_object(None)  # all have mapped all boards
    observer.install(Watchdog(own, peers, has_launcher=PATH_VARIABLE in os.environ))


def detach() -> None:
    """Before the group is closed: ask and answer no more."""
    global _answerer
    observer.install(observer.Observer())
    if _answerer is not None:
        _answerer.close()
        _answerer = None


def _open_board() -> tuple[boards.Board, str]:
    """The board and a path by which others can open it: an anonymous file, so that nothing is left behind."""
    told = os.environ.get(PATH_VARIABLE, "")
    if told and _is_ours(told):
        return boards.reopen(told), told
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("distcompile status", os.MFD_CLOEXEC)
        return boards.create_in(descriptor, 0), f"/proc/{os.getpid()}/fd/{descriptor}"
    descriptor, path = tempfile.mkstemp(prefix="distcompile-status-")
    atexit.register(_remove, path)
    return boards.create_in(descriptor, 0), path


def _remove(path: str) -> None:
    os.unlink(path)


def _is_ours(path: str) -> bool:
    """Whether the launcher made that board for this process, and not for one above, whose environment it inherited."""
    try:
        return boards.read(path).process == os.getpid()
    except (OSError, boards.BoardError):
        return False


def _note_the_end() -> None:
    """Have an uncaught exception, and the end of the program, written on the board."""
    shown = sys.excepthook

    def note(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if _status is not None:
            _status.exception(error, is_last=True)
        shown(kind, error, trace)

    sys.excepthook = note
    atexit.register(_finish)


def _finish() -> None:
    if _status is not None:
        _status.finish()


def _forget() -> None:
    """A forked child is not this rank: it writes on no board, and asks and answers nobody."""
    global _status, _answerer
    _status = _answerer = None
    atexit.unregister(_remove)
    observe.install(None)
    observer.install(observer.Observer())
