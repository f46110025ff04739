"""The command `distcompile replay`: what DISTCOMPILE_DUMP wrote of a graph, run again from one of its stages on.

    distcompile replay dump/rank0/Model                     from the captured graph
    distcompile replay dump/rank0/Model --from schedule     from its loop IR, as it stands there, or was edited

In: the command line. Out: a line a stage: it gives what the one before it gives, or not; exit code 0 if all do, 1 if
one does not, 2 if there is no such stage.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from compiler_core.errors import ConfigError
from compiler_core.repro.replay import STAGES, folders, replay


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `distcompile replay`."""
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="a graph's folder in a dump, or a dump of one graph"
    )
    parser.add_argument("--from", dest="stage", choices=STAGES, default="capture", metavar="STAGE",
                        help=f"the stage whose text is taken: {', '.join(STAGES)} (capture)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of the inputs that are made (0)")


def run(options: argparse.Namespace) -> int:
    """Replay, and print what holds."""
    found = folders(options.folder)
    if len(found) != 1:
        print(f"{options.folder} has {len(found)} graphs" + "".join(f"\n  {one}" for one in found), file=sys.stderr)
        return 2
    try:
        replayed = replay(found[0], options.stage, options.seed)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    print(replayed)
    return 0 if replayed.fault is None else 1
