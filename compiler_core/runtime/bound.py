"""The size of the artefact cache, held to `config.cache_limit`: what was used longest ago goes.

In: the folder that has just received an entry. Out: nothing; entries are gone where there was too much.
Method: a process counts what lies there once, at its first new entry, and adds what it stores; at the limit it looks
again, and takes away the entries used longest ago until a tenth of the limit is free, so that it is not done each time.
Invariants: what this process uses stays, and so does what any process took in the last KEPT_S seconds: it may be
reading it now. So the limit may be passed for that long, and by what several processes store side by side.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from compiler_core import log
from compiler_core.config import config

if TYPE_CHECKING:
    from compiler_core.runtime.stock import Stored

KEPT_S = 600.0
_MIB = 1 << 20
_ROOM = 0.9  # what of the limit is left when entries have gone
_counted: dict[Path, int] = {}  # bytes in each folder, as far as this process knows


def hold(root: Path, new: Path, used: Collection[str]) -> None:
    """`new`, in the cache's folder `root`, has been stored. used: the keys of entries that must stay."""
    from compiler_core.runtime import stock

    limit = config.cache_limit * _MIB
    if not limit:
        return
    with suppress(OSError):  # it is another's, or went meanwhile: then it is not ours to make smaller
        if root in _counted:
            _counted[root] += sum(path.stat().st_size for path in new.iterdir())
            if _counted[root] <= limit:
                return
        entries = stock.stored([root])
        total = sum(entry.nbytes for entry in entries)
        if total > limit:
            going = [*_going(entries, total - int(limit * _ROOM), {*used, new.name})]
            stock.remove(entry.folder for entry in going)
            total -= sum(entry.nbytes for entry in going)
            log.emit("cache", f"{len(going)} entries, used longest ago, are taken away: {total} bytes are left")
        _counted[root] = total


def _going(entries: list[Stored], excess: int, used: Collection[str]) -> Iterator[Stored]:
    """Entries that may go, until `excess` bytes have gone. entries: the one used last first."""
    now_s = time.time()
    for entry in reversed(entries):
        if excess <= 0 or now_s - entry.used_s < KEPT_S:
            return
        if entry.key not in used:
            excess -= entry.nbytes
            yield entry
