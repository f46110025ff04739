"""The command `distcompile-run`: the launcher's straight line of steps.

    parse -> discover the MPI that mpi4py loads, and its mpiexec -> build the command -> (print it) | supervise -> judge

In: the command line. Out: the job's exit code; 2 for a job that could not be started.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from launch import binding
from launch.errors import LaunchError, MpiexecNotFoundError, MPINotFoundError, UsageError
from launch.mpi_discovery import MPI, discover
from launch.output import Screen, write_all
from launch.ranks import NO_MPI
from launch.supervise import Job, Supervisor
from launch.verdict import judge

_CHILD = Path(__file__).resolve().with_name("child.py")
_DESCRIPTION = "Run a Python program on N MPI ranks, with the MPI that mpi4py loads."


def build_parser() -> argparse.ArgumentParser:
    """The launcher's own options; what follows `-m MODULE` or SCRIPT belongs to the program."""
    parser = argparse.ArgumentParser(
        prog="distcompile-run",
        description=_DESCRIPTION,
        usage="distcompile-run [options] (-m MODULE | SCRIPT) [arguments...]",
        allow_abbrev=False,
    )
    parser.add_argument("-n", "--ranks", type=int, default=1, metavar="N", help="number of ranks (default 1)")
    parser.add_argument(
        "--bind", choices=("core", "none"), default="core", help="bind each rank to its share of the cores"
    )
    parser.add_argument(
        "--no-prefix", action="store_true", help="leave output as it is, without the rank before each line"
    )
    parser.add_argument(
        "--timeout", type=float, default=0.0, metavar="S", help="end the job after S seconds, with every stack"
    )
    parser.add_argument(
        "--grace", type=float, default=3.0, metavar="S", help="seconds from a failure to SIGKILL (default 3)"
    )
    parser.add_argument("--mpiexec", default="", metavar="PATH", help="this mpiexec (refused if of another MPI)")
    parser.add_argument("--hosts", default="", metavar="H1,H2", help="hosts, as mpiexec takes them")
    parser.add_argument("--mpi-args", default="", metavar="ARGS", help="more arguments for mpiexec, as one string")
    parser.add_argument("--dry-run", action="store_true", help="print the command and the environment, and stop")
    return parser


def split_command_line(parser: argparse.ArgumentParser, argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """(launcher's options, the program and its arguments): the program starts at `-m`, or at the first word."""
    takes_value = {name for action in parser._actions if action.nargs is None for name in action.option_strings}
    position = 0
    while position < len(argv) and argv[position].startswith("-") and argv[position] not in ("-m", "--"):
        position += 2 if argv[position] in takes_value else 1
    own, program = list(argv[:position]), list(argv[position:])
    return own, program[1:] if program[:1] == ["--"] else program


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Options, with `program` among them. Raises UsageError."""
    parser = build_parser()
    own, program = split_command_line(parser, argv)
    options = parser.parse_args(own)
    options.program = program
    if options.ranks < 1:
        raise UsageError(f"cannot run on {options.ranks} ranks", expected="-n 1 or more")
    if not program or program == ["-m"]:
        raise UsageError("nothing to run", expected="-m MODULE or SCRIPT", remedy="see distcompile-run --help")
    if program[0] != "-m" and not os.path.isfile(program[0]):
        raise UsageError(
            f"there is no file {program[0]!r}", where=os.getcwd(), expected="a Python script, or -m MODULE"
        )
    return options


def find_mpi(options: argparse.Namespace) -> MPI | None:
    """The MPI to use; None for a single rank on a machine without one. Raises what `discover` raises."""
    try:
        return discover(options.mpiexec)
    except (MPINotFoundError, MpiexecNotFoundError):
        if options.ranks > 1 or options.mpiexec or options.hosts:
            raise
        return None


def mpiexec_arguments(mpi: MPI, options: argparse.Namespace) -> list[str]:
    """Arguments between mpiexec and the program, in the words of that MPI. Binding is ours, so mpiexec's is off."""
    if mpi.family.name == "Open MPI":
        own = ["--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]
        own += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        tag = ["--tag-output"] if mpi.version.startswith("4.") else ["--output", "tag"]
        own += [*tag, "--host", options.hosts] if options.hosts else []
    else:
        own = ["-hosts", options.hosts, "-prepend-rank"] if options.hosts else []
    return ["-n", str(options.ranks), *own, *shlex.split(options.mpi_args)]


def build_command(mpi: MPI | None, options: argparse.Namespace, socket_path: str) -> list[str]:
    """The whole command line of a job."""
    launch = [mpi.mpiexec, *mpiexec_arguments(mpi, options)] if mpi else []
    child = [sys.executable, str(_CHILD), "--mpi", mpi.family.name if mpi else NO_MPI, "--size", str(options.ranks)]
    child += ["--bind", options.bind]
    child += ["--socket", socket_path] if socket_path else []
    return [*launch, *child, "--", *options.program]


def describe(mpi: MPI | None, options: argparse.Namespace) -> str:
    """What --dry-run prints: comments, then one line that a shell runs."""
    lines = [f"# MPI: {mpi}" if mpi else "# MPI: none; one rank runs without mpiexec"]
    for rank in range(0 if options.hosts else options.ranks):
        share = binding.local_share(rank, options.ranks, options.bind)
        where = f"cpus {','.join(map(str, share.cpus))}" if share.cpus else "not bound"
        own = " ".join(f"{k}={v}" for k, v in binding.thread_environment(share.threads, os.environ).items())
        lines.append(f"# rank {rank}: {where}; {own or 'thread counts as in your environment'}")
    if options.hosts:
        lines.append("# each host's ranks share its cores")
    return "\n".join([*lines, shlex.join(build_command(mpi, options, "")), ""])


def environment(screen_columns: int) -> dict[str, str]:
    """The ranks' environment: ours, and the width left to a progress bar if a terminal shows it behind a prefix."""
    added = {"DISTCOMPILE_RUN_COLUMNS": str(screen_columns)} if screen_columns else {}
    return {**os.environ, **added}


def run(mpi: MPI | None, options: argparse.Namespace) -> int:
    """Supervise the job and say how it ended."""
    prefix = options.ranks > 1 and not options.no_prefix
    terminal = prefix and os.isatty(1)
    screen = Screen(options.ranks, write_all, terminal)
    columns = shutil.get_terminal_size().columns - len(screen.prefix(0)) - 1 if terminal else 0
    job = Job(
        command=lambda path: build_command(mpi, options, path),
        environment=environment(columns),
        size=options.ranks,
        prefix=prefix,
        show_mpiexec=bool(options.hosts),
        grace_s=options.grace,
        timeout_s=options.timeout,
    )
    code, words = judge(Supervisor(job, screen).run())
    screen.message(words)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `distcompile-run`. Returns the exit code."""
    try:
        options = parse(sys.argv[1:] if argv is None else argv)
        mpi = find_mpi(options)
        if options.dry_run:
            sys.stdout.write(describe(mpi, options))
            return 0
        return run(mpi, options)
    except LaunchError as error:
        sys.stderr.write(f"distcompile-run: {type(error).__name__}: {error}\n")
        return 2
    except BrokenPipeError:  # whoever read our output has gone; the job has been ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
