"""The command `distcompile parity TARGET`: all judges, on every rank that the launcher started.

In: the command line. Out: an exit code: 0; 1 if parity fails (the first differing parameter is named); 2 for misuse.
`--record FOLDER` keeps what collectives gave each rank; `--replay FOLDER/rank1.collectives` runs that rank alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from distcompile.commands.options import above_zero, amount, at_least, seed, writable, writable_folder

if TYPE_CHECKING:
    from collectives import Communicator
    from distcompile.parity import ParityReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("target", help="package.module:factory or script.py:factory, see distcompile/parity/target.py")
    parser.add_argument("--backend", default="codegen", help="codegen (default), triton, aot_eager or eager")
    parser.add_argument("--seed", type=seed, default=0, help="seed of the default generator")
    parser.add_argument("--factor", type=above_zero, default=4.0, help="err(compiled) may be this times err(eager)")
    parser.add_argument("--ulps", type=amount, default=32.0, help="plus this many units of rounding")
    parser.add_argument(
        "--samples", type=at_least(-1), default=2, help="elements a parameter for differences; -1: none"
    )
    parser.add_argument("--steps", type=at_least(1), default=0, help="training steps to compare, with the optimizer")
    parser.add_argument("--bisect", action="store_true", help="find stage, graph, op and line of a failure")
    parser.add_argument("--limit", type=above_zero, default=60.0, help="seconds for differences, and for the bisection")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--html", type=writable, metavar="FILE", help="write the report as a page")
    parser.add_argument(
        "--record", type=writable_folder, metavar="FOLDER", help="keep what collectives gave every rank"
    )
    parser.add_argument("--replay", metavar="FILE", help="run one recorded rank alone")


def run(options: argparse.Namespace) -> int:
    """`distcompile parity`."""
    from distcompile import distributed, parity
    from distcompile.parity.errors import BackendNameError, RecordingFileError, ReplayError
    from distcompile.parity.target import users_traceback

    try:
        if options.replay:
            return _replay(options)
        distributed.init_process_group()
        try:
            group = distributed.group_or_default(None)
            return _check(options, _recording(group, options.record) if options.record else group)
        finally:
            distributed.destroy_process_group()
    except parity.ParityTargetError as error:
        print(f"{users_traceback(error)}distcompile: {error}", file=sys.stderr)
        return 2
    except (BackendNameError, RecordingFileError, ReplayError) as error:
        print(f"distcompile: {error}", file=sys.stderr)
        return 2


def _recording(group: Communicator, folder: str) -> Communicator:
    from distcompile.parity.replay import RecordingCommunicator

    return RecordingCommunicator(group, Path(folder) / f"rank{group.rank}.collectives")


def _replay(options: argparse.Namespace) -> int:
    from distcompile.distributed import use_communicator
    from distcompile.parity.replay import ReplayCommunicator

    group = ReplayCommunicator(options.replay)
    with use_communicator(group):
        code = _check(options, group)
    for difference in group.differences:
        print(f"replay: {difference}", file=sys.stderr)
    return code


def _check(options: argparse.Namespace, group: Communicator) -> int:
    from distcompile import parity
    from distcompile.parity.replay import RecordingCommunicator, ReplayCommunicator
    from distcompile.parity.target import check_backend_name, load_target
    from distcompile.showing.progress import make_console, progress

    target = load_target(options.target)
    check_backend_name(options.backend)
    judges = parity.Judges(
        samples=None if options.samples < 0 else options.samples,
        steps=options.steps,
        optimizer=target.optimizer,
        bisect=options.bisect,
        limit_s=options.limit,
    )
    is_shown = group.rank == 0 or isinstance(group, ReplayCommunicator)
    with progress(make_console(stderr=True) if is_shown else None, lines_every_s=None) as say:
        report = parity.check(
            target.module,
            *target.inputs,
            loss=target.loss,
            backend=options.backend,
            group=group,
            seed=options.seed,
            tolerance=parity.Tolerance(options.factor, options.ulps),
            judges=judges,
            say=say,
        )
    if isinstance(group, RecordingCommunicator):
        group.flush()
    if is_shown:
        show(report, as_json=options.json, page=options.html)
    return 0 if report.ok else 1


def show(report: ParityReport, *, as_json: bool, page: str | None) -> None:
    """The report on stdout, as a page if asked for; a failing verdict once: the text has it, beside JSON it is told."""
    print(report.to_json() if as_json else report)
    if page:
        report.to_html(page)
    if as_json and not report.ok:
        print(report.verdict(), file=sys.stderr)
