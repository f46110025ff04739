"""The command `distcompile`, also `python -m distcompile`: the list of its commands.

    distcompile parity model.py:factory                              are the gradients right?
    distcompile-run -n 2 -m distcompile parity model.py:factory      the same on two ranks
    distcompile tune, replay, timeline, run, env, cache                 see `distcompile --help`

In: the command line. Out: an exit code: 0; 1 if what was asked failed (parity names the first differing parameter); 2
for misuse; 141, as of a program that SIGPIPE ends, if who reads the output has gone (`distcompile cache list | head`).
A command is a row of COMMANDS; its options and what it runs stand in its own room, loaded when it is asked for.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module

from distcompile.commands.options import Parser
from distcompile.surface.torch_version import MEANT, OWN

_OTHERS = """
started in other ways:
  distcompile-run -n 2 train.py          run a program on two ranks; its options: distcompile-run --help
  distcompile-run --check -n 2           is this machine fit? MPI, speed, binding, compiler, cache
  distcompile-run -n 2 -m distcompile.demo         train a small GPT on two ranks
  python -m distcompile.as_torch train.py          run a script that imports torch, as it is
"""


_READER_IS_GONE = 128 + 13


@dataclass(frozen=True, slots=True)
class Command:
    """One command. module: has `add_arguments(parser)`, unless it takes none, and `run(options) -> exit code`."""

    name: str
    module: str
    help: str
    takes_options: bool = True


COMMANDS = (
    Command("parity", "distcompile.parity.command", "are compiled gradients right? against eager and float64"),
    Command("tune", "distcompile.tuning.command", "which bucket plan is fastest on these ranks?"),
    Command("replay", "distcompile.commands.replay", "a dump, run again from one of its stages on: does each hold?"),
    Command("timeline", "distcompile.commands.timeline", "what a program compiled, and when: a DISTCOMPILE_TRACE"),
    Command("run", "distcompile.package.command", "a model that was compiled ahead of time, on arrays of files"),
    Command("env", "distcompile.commands.environment", "what is here: what a bug report needs", takes_options=False),
    Command("cache", "distcompile.commands.stored", "compiled code that is stored: size, list, clear, export, import"),
)


def build_parser(wanted: str = "") -> argparse.ArgumentParser:
    """The command line. wanted: the command whose options are needed, for they load its room; "": all of them."""
    description = "Data-parallel training, compiled: proofs, tuning, and what is here."
    parser = Parser(
        prog="distcompile",
        description=description,
        epilog=_OTHERS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"distcompile {OWN} (torch's names as of {MEANT})")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in COMMANDS:
        made = commands.add_parser(command.name, help=command.help, description=command.help)
        if command.takes_options and wanted in ("", command.name):
            import_module(command.module).add_arguments(made)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code. On several ranks other errors end the job with a traceback."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = build_parser(next((word for word in words if not word.startswith("-")), "none"))
    options = parser.parse_args(words)
    if options.command is None:
        parser.print_help()
        return 0
    module = next(command.module for command in COMMANDS if command.name == options.command)
    run: Callable[[argparse.Namespace], int] = import_module(module).run
    try:
        code = run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        return _READER_IS_GONE
    return code


def _reader_is_gone() -> bool:
    """Whether stdout is what broke; then what is left for it goes nowhere, so that Python ends without a word."""
    try:
        descriptor = sys.stdout.fileno()
    except OSError:  # no file of the system's
        return False
    asked = select.poll()
    asked.register(descriptor, 0)  # errors only
    if not asked.poll(0):
        return False
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
    return True


if __name__ == "__main__":
    sys.exit(main())
