"""The command `distcompile cache`: what is stored of earlier compilations, and clearing it away.

    distcompile cache [size]                    where it is, how many entries, how many bytes
    distcompile cache list                      an entry a line, the one used last first
    distcompile cache prune --days 30           take away what no process has used for that long
    distcompile cache prune --to 500            take away the oldest until 500 MiB are left
    distcompile cache clear                     take everything away
    distcompile cache export FILE               all that is stored, as one file for other machines of this kind
    distcompile cache import FILE               put such a file's artefacts into the cache

In: the command line. Out: text; exit code 0; 1 if a file's artefacts are for another kind of machine, all of them; 2 if
the cache is off or no folder, or the file no file of artefacts. What is taken away is compiled again when
it is needed, and nothing else lies there. Raises OSError where the folder may not be written.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from distcompile.commands.options import amount

if TYPE_CHECKING:
    from compiler_core.runtime.stock import Stored

DESCRIPTION = "what is stored of earlier compilations: size, list, prune, clear, export, import"
FOLDERS = """which folders:
  DISTCOMPILE_CACHE_DIR, if it is set, and no other; else the one below $XDG_CACHE_HOME or ~/.cache, and that in the
  temporary directory where code goes while the first cannot be written. `distcompile cache size` names them.
  DISTCOMPILE_CACHE_LIMIT (MiB) is how much they may hold.

what export writes:
  machine code for this kind of CPU, this C++ compiler, C library and version of distcompile. import takes nothing that
  was made for another. Take files only from those whose programs you would run.
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
    written = actions.add_parser("export", help="all that is stored, as one file for other machines of this kind")
    written.add_argument("file", type=Path, metavar="FILE", help="the file to write")
    read = actions.add_parser(
        "import", help="put an exported file's artefacts into the cache; only from who is trusted"
    )
    read.add_argument("file", type=Path, metavar="FILE", help="a file of `export` or of save_cache_artifacts()")


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


def _export(options: argparse.Namespace) -> int:
    from compiler_core.config import config
    from compiler_core.runtime import portable, stock
    from compiler_core.runtime.cache import find

    if not config.use_cache:
        return _misuse("DISTCOMPILE_CACHE=0 turns the cache off: nothing is written")
    entries = stock.stored()
    found = {entry.key: find(entry.key, takes=False) for entry in entries}
    data, packed = portable.pack({key: entry for key, entry in found.items() if entry is not None})
    try:
        _write_whole(options.file, data)
    except OSError as error:
        return _misuse(f"{options.file} cannot be written: {error.strerror}")
    print(f"{options.file}: {len(packed)} entries, {size_text(len(data))}")
    if len(packed) < len(entries):
        print(f"{len(entries) - len(packed)} are left out: damaged, or stored by an earlier version", file=sys.stderr)
    return 0


def _write_whole(place: Path, data: bytes) -> None:
    """The file appears by one rename, or not at all. Raises OSError."""
    temporary = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, place)
    finally:
        temporary.unlink(missing_ok=True)


def _import(options: argparse.Namespace) -> int:
    from compiler_core.config import config
    from compiler_core.errors import CacheError
    from compiler_core.runtime import portable

    if not config.use_cache:
        return _misuse("DISTCOMPILE_CACHE=0 turns the cache off: nothing is taken")
    try:
        taken = portable.take([*portable.unpack(options.file.read_bytes())])
    except OSError as error:
        return _misuse(f"{options.file} cannot be read: {error.strerror}")
    except CacheError as error:
        return _misuse(f"{options.file}: {error.what}: {error.got}")
    for complaint in taken.complaints():
        print(complaint, file=sys.stderr)
    print(f"taken: {len(taken.new)} entries; here already: {len(taken.known)}")
    return 1 if taken.ignored and not (taken.new or taken.known) else 0


def _misuse(what: str) -> int:
    print(f"distcompile: {what}", file=sys.stderr)
    return 2


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
    "export": _export,
    "import": _import,
}
