"""What runs inside each rank: connect to the launcher, fork the rank from its warden, bind, run the user's program as
`__main__`, say how it ended.

In: `child.py --mpi NAME --size N [--folder PATH] [--far ADDRESS] [--set NAME=VALUE]... -- PROGRAM`, started by mpiexec;
PROGRAM is `-m MODULE` or SCRIPT, and its arguments. Out: its exit code. Invariant: a rank that fails never reaches
MPI_Finalize, which would wait for the others: it reports, flushes and leaves by `os._exit`; the launcher ends the job.
What the program forks is not the rank: it says nothing.
An exception says of itself whether it only tells of another rank's failure: its class, or one in its chain of causes,
has `is_consequence = True`. The file is run by path.
"""

from __future__ import annotations

import argparse
import atexit
import faulthandler
import os
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

_HERE = Path(__file__).resolve()
_SHORTENS = "distcompile.showing.traces"  # has fold(error)
sys.path[0] = str(_HERE.parent.parent)
from launch import board, boards, processes, program, ranks, warden  # noqa: E402
from launch.board import Board, Phase, Reader, Where  # noqa: E402
from launch.channel import Channel, FarAddress  # noqa: E402
from launch.errors import LaunchError  # noqa: E402
from launch.machine import binding, gpus  # noqa: E402


def parse(argv: list[str]) -> argparse.Namespace:
    """The launcher's options; `program` holds the user's part, untouched."""
    parser = argparse.ArgumentParser(prog="child.py")
    parser.add_argument("--mpi", required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--bind", default="core")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--folder", default="")
    parser.add_argument("--far", default="")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--no-python", action="store_true")
    split = argv.index("--")
    options = parser.parse_args(argv[:split])
    options.program = argv[split + 1 :]
    return options


class Rank:
    """One rank's life: `prepare`, `run`, then exactly one of `finish` and `fail`."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.channel: Channel | None = None
        self.stacks: Channel | None = None
        self.board: Board | None = None
        self.has_finished = self.is_forked = False

    def prepare(self) -> None:
        """Learn the rank, tell it to the program, connect, leave the warden behind, bind. Raises WorldSizeError."""
        options = self.options
        identity = ranks.identify(options.mpi, options.size, os.environ)
        os.environ.update(ranks.variables(identity))
        os.environ.update(gpus.choice(identity.local_rank, os.environ))
        os.environ.update(gpus.alike(several_hosts=identity.local_size < identity.size, environ=os.environ))
        os.environ.update(setting.split("=", 1) for setting in options.set)
        os.environ.setdefault("UCX_DEBUG_SIGNO", "0")  # else UCX, beneath MPI, has ranks wait for a debugger at SIGHUP
        ranks.restore_tmpdir(os.environ)
        processes.restore_file_limit()
        folder = options.folder if os.path.isdir(options.folder) else ""  # absent on another host
        where = folder or (FarAddress.parse(options.far) if options.far else "")
        above = warden_channel(where, identity.rank) if where else None
        if above is not None and folder:
            above.take_streams()
        warden.fork(above)
        if above is not None:
            self.channel = Channel(where, "rank", identity.rank)
            self.stacks = Channel(where, "stacks", identity.rank)
            os.environ["DISTCOMPILE_LAUNCHER"] = "1"  # ends the job when a rank fails: no MPI_Abort is needed
        if folder:
            os.environ["DISTCOMPILE_SCRATCH"] = folder
            os.environ["DISTCOMPILE_BOARD"] = boards.path_of(folder, identity.rank)
            self.board = board.create(boards.path_of(folder, identity.rank), identity.rank)
        if not options.no_python:
            os.environ["DISTCOMPILE_RANK_PROCESS"] = str(os.getpid())  # what it starts is not the rank
        self._watch_endings()
        share = binding.local_share(identity.local_rank, identity.local_size, options.bind, options.threads)
        binding.apply(share, wanted=options.threads > 0)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    def _watch_endings(self) -> None:
        """Have crashes write their stacks, and the program's `exec` be known for what it is."""
        atexit.register(self._say_done)
        sys.excepthook = self._show
        self._write_stacks_to(self.stacks.fileno() if self.stacks else 2)
        self.exec = os.execv, os.execve
        if self.channel is not None:
            os.execv, os.execve = told(self.channel, os.execv), told(self.channel, os.execve)
        os.register_at_fork(after_in_child=self._become_forked)

    def _write_stacks_to(self, descriptor: int) -> None:
        faulthandler.enable(descriptor)
        faulthandler.register(signal.SIGQUIT, descriptor)  # where is it? asked by the launcher, or by `kill -QUIT`

    def _become_forked(self) -> None:
        """A process that the program forked is not the rank: it ends as any Python process does, and tells nobody."""
        self.is_forked, self.channel, self.board = True, None, None
        os.execv, os.execve = self.exec
        self._write_stacks_to(2)

    def _show(self, kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
        """The excepthook that a program finds and may chain to: a rank's traceback is on its way already."""
        if self.is_forked:
            sys.__excepthook__(kind, error, trace)

    def run(self) -> None:
        """The user's program."""
        if self.board is not None:
            self.board.write(Where.MAIN, Phase.USER_CODE, board.now_ns())
        program.run(self.options.program, python=not self.options.no_python)

    def finish(self) -> None:
        """The program ended well; the interpreter then ends as always, MPI_Finalize included."""
        self.has_finished = True

    def _say_done(self) -> None:
        """Runs after all exit functions of the program: one that leaves by `os._exit` never gets here."""
        if self.channel and self.has_finished:
            self.channel.tell("done")

    def fail(self, error: BaseException) -> NoReturn:
        """Report, let the user's excepthook see an exception, flush, and leave without MPI_Finalize."""
        shorten(error)
        code, text = exit_code_of(error), "".join(traceback.format_exception(type(error), error, users_frames(error)))
        text += missing_torch(error)
        summary = "".join(traceback.format_exception_only(error)).strip().splitlines()[0]
        if isinstance(error, SystemExit):
            text = "" if isinstance(error.code, int) else f"{error.code}\n"
            summary = f"sys.exit({error.code!r})"
        if self.board is not None:
            self.board.exception(summary, place_of(error), Reader(self.board.memory).snapshot().main.step)
        if self.channel:
            facts = {"exit_code": code, "summary": summary, "traceback": text, "place": place_of(error)}
            self.channel.tell("failed", **facts, consequence=is_consequence(error), suspect=is_suspect(error))
        else:
            sys.stderr.write(text)
        if not isinstance(error, SystemExit):
            sys.excepthook(type(error), error, users_frames(error))
        self._leave(code)

    def end_forked(self, error: BaseException | None) -> NoReturn:
        """The end of a process that the program forked, with Python's words and code, but without MPI_Finalize."""
        if error is not None:
            shorten(error)
        if error is not None and not isinstance(error, SystemExit):
            sys.excepthook(type(error), error, users_frames(error))
        elif error is not None and not isinstance(error.code, (int, types.NoneType)):
            sys.stderr.write(f"{error.code}\n")
        threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter: other threads, exit functions
        atexit._run_exitfuncs()
        self._leave(0 if error is None else exit_code_of(error))

    @staticmethod
    def _leave(code: int) -> NoReturn:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def warden_channel(where: str | FarAddress, rank: int) -> Channel | None:
    """The warden's channel; None, said on stderr, if this host cannot reach the launcher: it learns less then."""
    try:
        return Channel(where, "warden", rank)
    except OSError as error:
        if not isinstance(where, FarAddress):
            raise
        sys.stderr.write(f"distcompile-run: rank {rank} cannot reach the launcher at {where.hosts}: {error}\n")
        return None


def told(channel: Channel, call: Callable[..., Any]) -> Callable[..., Any]:
    """`os.execv` or `os.execve`, announced: the process goes on as another program, whose exit code then counts."""

    def announced(*arguments: Any) -> Any:
        channel.tell("exec", stays=False)
        try:
            return call(*arguments)
        finally:
            channel.tell("exec", stays=True)  # reached if there was no such program

    return announced


def exit_code_of(error: BaseException) -> int:
    """The exit code that Python gives a process that ends by `error`."""
    if isinstance(error, SystemExit):
        return (error.code or 0) & 0xFF if isinstance(error.code, (int, types.NoneType)) else 1
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def is_success(error: BaseException) -> bool:
    return isinstance(error, SystemExit) and (error.code is None or error.code == 0)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and those that led to it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def is_consequence(error: BaseException) -> bool:
    """Whether the error says that it only tells of another rank's failure."""
    return any(getattr(each, "is_consequence", False) is True for each in chain(error))


def is_suspect(error: BaseException) -> bool:
    """Whether a rank's death elsewhere may look like this: operating system, timeouts, MPI."""
    kinds = (OSError, EOFError)
    return any(isinstance(each, kinds) or type(each).__module__.startswith("mpi4py") for each in chain(error))


def shorten(error: BaseException) -> None:
    """Leave distcompile's own frames out of the error's traceback, if the program has loaded what can do that."""
    loaded = sys.modules.get(_SHORTENS)
    if loaded is not None:
        error.__traceback__ = users_frames(error)
        loaded.fold(error)


def missing_torch(error: BaseException) -> str:
    """What to do about a program that imports torch where there is none; empty if that is not what happened."""
    names = [each.name or "" for each in chain(error) if isinstance(each, ModuleNotFoundError)]
    if not any(name == "torch" or name.startswith("torch.") for name in names):
        return ""
    return "  what to do: distcompile-run --as-torch runs it with distcompile in torch's place; or pip install torch\n"


def users_frames(error: BaseException) -> types.TracebackType | None:
    """The error's traceback from the user's first frame on."""
    ours = {__file__, program.__file__}
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename in ours:
        frame = frame.tb_next
    return frame


def place_of(error: BaseException) -> str:
    """`train.py:88`: the last line of the user's program in the traceback; empty if there is none."""
    main = getattr(sys.modules["__main__"], "__file__", None)
    lines = traceback.extract_tb(users_frames(error))
    mine = [line for line in lines if line.filename == main] or lines
    return f"{os.path.basename(mine[-1].filename)}:{mine[-1].lineno}" if mine else ""


def main(argv: list[str]) -> None:
    """Run one rank."""
    rank = Rank(parse(argv))
    try:
        rank.prepare()
        rank.run()
    except LaunchError as error:
        rank.fail(SystemExit(f"{type(error).__name__}: {error}"))
    except BaseException as error:  # noqa: BLE001  # whatever ended the user's program is reported
        if rank.is_forked:
            rank.end_forked(error)
        if not is_success(error):
            rank.fail(error)
    if rank.is_forked:
        rank.end_forked(None)
    rank.finish()


if __name__ == "__main__":
    main(sys.argv[1:])
