"""What runs inside each rank: bind, connect to the launcher, run the user's program as `__main__`, say how it ended.

In: `child.py --mpi NAME --size N --bind core|none [--socket PATH] (-m MODULE | SCRIPT) ARGS...`, started by mpiexec.
Out: the program's exit code. Invariant: a rank that fails never reaches MPI_Finalize, which would wait for the others:
it reports, flushes and leaves by `os._exit`, and mpiexec ends the job.
The file is run by path, and forgets its imports before the user's program starts: a user's own `launch.py` wins.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib.util
import os
import signal
import sys
import traceback
import types
from pathlib import Path
from typing import NoReturn

_HERE = Path(__file__).resolve()
sys.path[0] = str(_HERE.parent.parent)
from launch import binding, processes, ranks  # noqa: E402
from launch.channel import Channel  # noqa: E402
from launch.errors import LaunchError  # noqa: E402


def parse(argv: list[str]) -> argparse.Namespace:
    """The launcher's options; `program` holds the user's part, untouched."""
    parser = argparse.ArgumentParser(prog="child.py")
    parser.add_argument("--mpi", required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--bind", default="core")
    parser.add_argument("--socket", default="")
    split = argv.index("--")
    options = parser.parse_args(argv[:split])
    options.program = argv[split + 1 :]
    return options


class Rank:
    """One rank's life: `prepare`, `run`, then exactly one of `finish` and `fail`."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.channel: Channel | None = None

    def prepare(self) -> None:
        """Learn the rank, tell it to the program, connect, bind. Raises WorldSizeError."""
        processes.die_with_parent()
        identity = ranks.identify(self.options.mpi, self.options.size, os.environ)
        os.environ.update(ranks.variables(identity))
        if self.options.socket and os.path.exists(self.options.socket):  # absent on another host
            self.channel = Channel(self.options.socket, identity.rank)
        sys.excepthook = shown_by_the_launcher
        stacks = self.channel.fileno() if self.channel else 2
        faulthandler.enable(stacks)
        faulthandler.register(signal.SIGQUIT, stacks)  # where is it? asked by the launcher, or by `kill -QUIT`
        binding.apply(binding.local_share(identity.local_rank, identity.local_size, self.options.bind))
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    def run(self) -> None:
        """The user's program, as `python -m MODULE` or `python SCRIPT` would run it."""
        program: list[str] = self.options.program
        if program[0] == "-m":
            run_module(program[1], program[2:])
        else:
            run_script(program[0], program[1:])

    def finish(self) -> None:
        """Say that the program ended well; the interpreter then ends as always, MPI_Finalize included."""
        if self.channel:
            self.channel.done()

    def fail(self, error: BaseException) -> NoReturn:
        """Report, let the user's excepthook see an exception, flush, and leave without MPI_Finalize."""
        code, text = exit_code_of(error), "".join(traceback.format_exception(type(error), error, users_frames(error)))
        summary = "".join(traceback.format_exception_only(error)).strip().splitlines()[0]
        if isinstance(error, SystemExit):
            text = "" if isinstance(error.code, int) else f"{error.code}\n"
            summary = f"sys.exit({error.code!r})"
        if self.channel:
            self.channel.failed(code, summary, text)
        else:
            sys.stderr.write(text)
        if not isinstance(error, SystemExit):
            sys.excepthook(type(error), error, users_frames(error))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def exit_code_of(error: BaseException) -> int:
    """The exit code that Python gives a process that ends by `error`."""
    if isinstance(error, SystemExit):
        return error.code & 0xFF if isinstance(error.code, int) else 1
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def is_success(error: SystemExit) -> bool:
    return error.code is None or error.code == 0


def users_frames(error: BaseException) -> types.TracebackType | None:
    """The error's traceback from the user's first frame on."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename == __file__:
        frame = frame.tb_next
    return frame


def shown_by_the_launcher(*_: object) -> None:
    """The excepthook that a program finds and may chain to: its traceback is on its way already."""


def new_main(path: str, loader_spec: object) -> types.ModuleType:
    """A fresh `__main__`, in place."""
    main = types.ModuleType("__main__")
    main.__file__ = path
    main.__builtins__ = __builtins__  # type: ignore[attr-defined]
    main.__spec__ = loader_spec  # type: ignore[assignment]
    sys.modules["__main__"] = main
    return main


def run_script(path: str, arguments: list[str]) -> None:
    """`python path arguments...`."""
    sys.argv[:] = [path, *arguments]
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    source = Path(path).read_bytes()
    main = new_main(path, None)
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)


def run_module(name: str, arguments: list[str]) -> None:
    """`python -m name arguments...`."""
    sys.argv[:] = [name, *arguments]
    sys.path[0] = os.getcwd()
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"no module {name!r} that can be run", name=name)
    code = spec.loader.get_code(spec.name)  # type: ignore[attr-defined]
    sys.argv[0] = spec.origin or name
    main = new_main(sys.argv[0], spec)
    main.__package__ = spec.parent
    exec(code, main.__dict__)


def forget_launcher() -> None:
    """Leave no trace of this package to the user's imports."""
    for name in [name for name in sys.modules if name == "launch" or name.startswith("launch.")]:
        del sys.modules[name]


def main(argv: list[str]) -> None:
    """Run one rank."""
    rank = Rank(parse(argv))
    try:
        rank.prepare()
        forget_launcher()
        rank.run()
    except SystemExit as error:
        if not is_success(error):
            rank.fail(error)
    except LaunchError as error:
        rank.fail(SystemExit(f"{type(error).__name__}: {error}"))
    except BaseException as error:  # noqa: BLE001  # whatever ended the user's program is reported
        rank.fail(error)
    rank.finish()


if __name__ == "__main__":
    main(sys.argv[1:])
