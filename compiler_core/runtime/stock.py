"""What lies in the cache of compiled artefacts, and how it is cleared away.

In: the folders that are counted and cleared (`places.kept_roots`). Out: `Stored`, one per entry;
`remove`, which takes entries away whole: first by a rename, so that no reader finds half of one.
Invariants: nothing is touched that the cache did not make; an entry that a process is building now stays.
A program that has loaded an entry goes on with it; one that is about to read its files starts again (CacheError).
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from compiler_core.records import dataclass
from compiler_core.runtime import places
from compiler_core.runtime.cache import FORMAT

_KEY = re.compile("[0-9a-f]{64}")
_LEFT = re.compile(r"\.(building-(?P<key>[0-9a-f]{16})-|damaged-|removed-)")
_KINDS = {
    "kernels.so": "compiled graph",
    "eager.so": "kernels of eager code",
    "engine.so": "communication engine",
    "draws.so": "random numbers",
    "mersenne.so": "random numbers",
    "mersenne_seldom.so": "random numbers",
    "pool.so": "threads",
}


@dataclass(frozen=True, slots=True)
class Stored:
    """One entry. used_s: when a process last took it, seconds since the epoch. what: in words."""

    folder: Path
    nbytes: int
    used_s: float
    what: str

    @property
    def key(self) -> str:
        return self.folder.name


def stored(roots: Sequence[Path] | None = None) -> list[Stored]:
    """Every entry, the one used last first. roots: the folders to look in; None: those that are counted and cleared."""
    found = [_looked_at(folder) for folder in _folders(_KEY, roots)]
    return sorted((entry for entry in found if entry is not None), key=lambda entry: entry.used_s, reverse=True)


def left_overs() -> list[Path]:
    """What builders that died, and damaged entries, left; not what is being built now."""
    return [folder for folder in _folders(_LEFT) if not _is_being_built(folder)]


def remove(folders: Iterable[Path]) -> None:
    """Take entries or left-overs away. Raises OSError if one cannot be."""
    for folder in folders:
        aside = Path(tempfile.mkdtemp(prefix=".removed-", dir=folder.parent))
        with suppress(FileNotFoundError):  # another process was quicker
            os.rename(folder, aside / "entry")
        shutil.rmtree(aside)


def _folders(name: re.Pattern[str], roots: Sequence[Path] | None = None) -> Iterator[Path]:
    for root in places.kept_roots() if roots is None else roots:
        for shelf in sorted((root / FORMAT).glob("[0-9a-f][0-9a-f]")):
            yield from (entry for entry in sorted(shelf.iterdir()) if name.match(entry.name) and entry.is_dir())


def _looked_at(folder: Path) -> Stored | None:
    """None if it went meanwhile. Of a file that several entries have each counts its part."""
    try:
        facts = {path.name: path.stat() for path in folder.iterdir()}
        used_s = folder.stat().st_mtime
    except FileNotFoundError:
        return None
    nbytes = sum(fact.st_size // fact.st_nlink for fact in facts.values())
    return Stored(folder, nbytes, used_s, kind_of(facts))


def kind_of(files: Iterable[str]) -> str:
    """What an entry of these files is, in words."""
    names = set(files)
    return next((kind for file, kind in _KINDS.items() if file in names), ", ".join(sorted(names)))


def _is_being_built(folder: Path) -> bool:
    """Whether a process holds the lock of the entry that `folder` is to become."""
    found = _LEFT.match(folder.name)
    key = found["key"] if found else None
    if key is None:
        return False
    return any(_is_held(lock) for lock in (folder.parents[1] / "locks").glob(f"{key}*.lock"))


def _is_held(lock: Path) -> bool:
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held; or there are no locks here, and nobody can tell
            return True
    return False
