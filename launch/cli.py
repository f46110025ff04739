"""The command `distcompile-run`: the launcher's straight line of steps.

    parse -> discover the MPI that mpi4py loads, and its mpiexec -> claim cores -> (print the command) |
    supervise -> judge -> (start again)

In: the command line. Out: the job's exit code; 2 for a job that could not be started.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from launch import command, restarts
from launch.errors import CoreRegistryError, LaunchError, MpiexecNotFoundError, MPINotFoundError
from launch.machine import binding, gpus, room
from launch.machine.cores import VARIABLE, CoreClaim, registry_folder
from launch.machine.mpi_discovery import MPI, discover
from launch.options import JobSettings, parse
from launch.ranks import NAMES
from launch.screen.output import Screen, Writer
from launch.screen.relay import Relay
from launch.screen.verdict import first_line, judge
from launch.supervise import Job, Supervisor

_ME = "distcompile-run:"


def find_mpi(settings: JobSettings) -> MPI | None:
    """The MPI to use; None for a single rank on a machine without one. Raises what `discover` raises."""
    try:
        return discover(settings.mpiexec, settings.mpi)
    except (MPINotFoundError, MpiexecNotFoundError):
        if settings.ranks > 1 or settings.mpiexec or settings.is_remote or settings.mpi != "auto":
            raise
        return None


def shortages(settings: JobSettings) -> list[str]:
    """What this host has too little of for a job that stays on it. Raises TooManyRanksError where it cannot start."""
    if settings.is_remote:
        return []
    room.check(settings.ranks)
    few_cpus = room.shortage(settings.ranks, settings.threads, room.usable_cpus(settings.bind))
    return [words for words in (few_cpus, gpus.shortage(settings.ranks)) if words]


def claim_cores(settings: JobSettings, claim: CoreClaim) -> tuple[JobSettings, str]:
    """Settings that name the cores of a job on this host, and what there is to say about them."""
    if settings.bind == "none" or settings.is_remote or not hasattr(os, "sched_setaffinity"):
        return settings, ""
    if settings.bind != "core":
        claim.take_these(binding.cpu_list(settings.bind))
        return settings, ""
    allowed = binding.allowed_cpus()
    wanted = settings.ranks * max(settings.threads, 1)
    cpus = claim.take(allowed, min(wanted, len(allowed)), wanted if settings.threads else 0)
    if cpus:
        return replace(settings, bind=",".join(map(str, cpus))), ""
    words = (
        f"{_ME} other jobs are bound to the cores that this one needs: its ranks are not bound (--bind none says so)\n"
    )
    return replace(settings, bind="none"), words


def describe(mpi: MPI | None, settings: JobSettings) -> str:
    """What --dry-run prints: comments, then one line that a shell runs."""
    lines = [f"# MPI: {mpi}" if mpi else "# MPI: none; one rank runs without mpiexec"]
    lines += [f"# in the allocation of {settings.allocation}: MPI finds the hosts"] if settings.allocation else []
    for rank in range(0 if settings.is_remote else settings.ranks):
        share = binding.local_share(rank, settings.ranks, settings.bind, settings.threads)
        where = f"cpus {','.join(map(str, share.cpus))}" if share.cpus else "not bound"
        threads = binding.thread_environment(share.threads, os.environ, settings.threads > 0)
        own = " ".join(f"{k}={v}" for k, v in threads.items())
        lines.append(f"# rank {rank}: {where}; {own or 'thread counts as in your environment'}")
    if settings.is_remote:
        lines.append("# each host's ranks share its cores")
    own_environment = [f"{name}={value}" for name, value in (mpi.environment.items() if mpi else ())]
    variables = command.rank_variables(settings, 0, command.free_port())
    line = shlex.join(command.build_command(mpi, settings, "", variables))
    prefix = f"env {shlex.join(own_environment)} " if own_environment else ""
    return "\n".join([*lines, prefix + line, ""])


def run_once(mpi: MPI | None, settings: JobSettings, count: int) -> restarts.Attempt:
    """Start the job, stay until it has ended, and say how. count: starts before this one."""
    terminal = settings.prefix and os.isatty(1)
    writer = Writer()
    screen = Screen(settings.ranks, writer, terminal, plain=not settings.prefix)
    columns = shutil.get_terminal_size().columns - len(screen.prefix(0)) - 1 if terminal else 0
    variables = command.rank_variables(settings, count, command.free_port())
    logs = Path(settings.log_dir) / settings.run_id / f"attempt_{count}" if settings.log_dir else None
    relay = Relay(
        screen, settings.prefix, not settings.is_remote, logs, settings.tee, settings.redirects, settings.shown
    )
    job = Job(
        command=lambda folder, far: command.build_command(mpi, settings, folder, variables, far),
        environment=lambda folder: command.environment(mpi, settings, folder, columns),
        size=settings.ranks,
        rank_variable=NAMES[mpi.family.name].rank if mpi else "",
        shows_mpiexec=settings.is_remote,
        grace_s=settings.grace_s,
        signal_grace_s=settings.signal_grace_s,
        save_limit_s=settings.save_limit_s,
        timeout_s=settings.timeout_s,
        stop_limit_s=settings.stop_limit_s,
    )
    supervisor = Supervisor(job, relay)
    writer.idle = supervisor.tick
    outcome = supervisor.run()
    code, words = judge(outcome)
    return restarts.Attempt(code, words, first_line(outcome, words), not (outcome.signum or outcome.timed_out))


def run(mpi: MPI | None, settings: JobSettings) -> int:
    """The job, with its restarts, on cores of its own."""
    try:
        claim = CoreClaim()
        settings, words = claim_cores(settings, claim)
    except OSError as error:
        what = "which cores other jobs are bound to cannot be seen"
        raise CoreRegistryError(
            what,
            where=str(registry_folder()),
            got=str(error),
            remedy=f"remove that folder, or name another in {VARIABLE}",
        ) from error
    try:
        sys.stderr.write(words)
        return restarts.run(lambda count: run_once(mpi, settings, count), settings.max_restarts, say)
    finally:
        claim.release()


def say(text: str, stream: int = 2) -> None:
    """The launcher's own words."""
    Writer()(stream, text.encode(errors="replace"))


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `distcompile-run`. Returns the exit code."""
    try:
        settings = parse(sys.argv[1:] if argv is None else argv)
        for line in (*settings.ignored, *shortages(settings)):
            sys.stderr.write(f"{_ME} {line}\n")
        mpi = find_mpi(settings)
        if settings.dry_run:
            sys.stdout.write(describe(mpi, settings))
            return 0
        if settings.check:
            say(f"{'':8}  launcher    {mpi.mpiexec if mpi else 'none'}, for {mpi or 'one rank without MPI'}\n", 1)
        return run(mpi, settings)
    except LaunchError as error:
        sys.stderr.write(f"{_ME} {type(error).__name__}: {error}\n")
        return 2
    except KeyboardInterrupt:  # between two starts of a job; while one runs, its end says more
        sys.stderr.write(f"{_ME} ended by SIGINT\n")
        return 130
    except BrokenPipeError:  # whoever read our output has gone; the job has been ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
