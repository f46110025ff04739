"""The command `distcompile cache`: what is stored of earlier compilations, and clearing it away.

    distcompile cache [size]                    where it is, how many entries, how many bytes
    distcompile cache list                      an entry a line, the one used last first
    distcompile cache prune --days 30           take away what no process has used for that long
    distcompile cache prune --to 500            take away the oldest until 500 MiB are left
    distcompile cache clear                     take everything away

In: the command line. Out: text; exit code 0, or 2 if the cache is no folder. What is taken away is compiled again when
it is needed, and nothing else lies there. Raises OSError where the folder may not be written.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from distcompile.commands.options import amount

if TYPE_CHECKING:
    from compiler_core.runtime.stock import Stored

DESCRIPTION = "what is stored of earlier compilations: size, list, prune, clear"
FOLDERS = """which folders:
  DISTCOMPILE_CACHE_DIR, if it is set, and no other; else the one below $XDG_CACHE_HOME or ~/.cache, and that in the
  temporary directory where code goes while the first cannot be written. `distcompile cache size` names them.
"""
_DAY_S = 86400.0
_MIB = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `distcompile cache`."""
    parser.epilog, parser.formatter_class = FOLDERS, argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("size", help="where it is, how many entries, how many bytes (what happens without an action)")
    actions.add_parser("list", help="an entry a line, the one used last first")
    prune = actions.add_parser("prune", help="take away what is old")
    prune.add_argument("--days", type=amount, metavar="N", help="what no process has used for N days")
    prune.add_argument("--to", type=amount, metavar="MIB", help="the oldest, until MIB are left")
    actions.add_parser("clear", help="take everything away; it is compiled again when it is needed")


def run(options: argparse.Namespace) -> int:
    """`distcompile cache`."""
    from compiler_core.runtime import places

    for root in places.kept_roots():
        if root.exists() and not root.is_dir():
            print(f"distcompile: the cache {root} is no folder: set DISTCOMPILE_CACHE_DIR to one", file=sys.stderr)
            return 2
    return ACTIONS[options.action or "size"](options)


def _size(options: argparse.Namespace) -> int:
    from compiler_core.runtime import places, stock

    entries, left = stock.stored(), stock.left_overs()
    for root in places.kept_roots():
        print(f"folder:   {root}")
    print(f"entries:  {len(entries)}, {size_text(_nbytes(entries))}")
    if left:
        print(f"left by processes that died: {len(left)} folders; `distcompile cache prune` takes them away")
    return 0


def _list(options: argparse.Namespace) -> int:
    from compiler_core.runtime import stock

    for entry in stock.stored():
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used_s))
        print(f"{entry.key[:16]}  {size_text(entry.nbytes):>10}  used {used}  {entry.what}")
    return 0


def _prune(options: argparse.Namespace) -> int:
    from compiler_core.runtime import stock

    kept, old = _parted(stock.stored(), options, time.time())
    code = _take_away(old, kept)
    if options.days is None and options.to is None:
        print("without --days N or --to MIB only what processes that died have left is taken away", file=sys.stderr)
    return code


def _parted(entries: Sequence[Stored], options: argparse.Namespace, now_s: float) -> tuple[list[Stored], list[Stored]]:
    """(what stays, what goes). entries: the one used last first."""
    kept: list[Stored] = []
    old: list[Stored] = []
    for entry in entries:
        is_old = options.days is not None and now_s - entry.used_s > options.days * _DAY_S
        is_too_much = options.to is not None and _nbytes(kept) + entry.nbytes > options.to * _MIB
        (old if is_old or is_too_much or old else kept).append(entry)
    return kept, old


def _clear(options: argparse.Namespace) -> int:
    from compiler_core.runtime import stock

    return _take_away(stock.stored(), [])


def _take_away(entries: Sequence[Stored], kept: Sequence[Stored]) -> int:
    from compiler_core.runtime import stock

    stock.remove([entry.folder for entry in entries] + stock.left_overs())
    print(f"taken away: {len(entries)} entries, {size_text(_nbytes(entries))}; left: {len(kept)}")
    return 0


def _nbytes(entries: Sequence[Stored]) -> int:
    return sum(entry.nbytes for entry in entries)


def size_text(nbytes: int) -> str:
    """In MiB, or KiB below one."""
    return f"{nbytes / _MIB:,.1f} MiB" if nbytes >= _MIB else f"{nbytes / 1024:.0f} KiB"


ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "size": _size,
    "list": _list,
    "prune": _prune,
    "clear": _clear,
}
