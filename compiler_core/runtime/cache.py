"""Content-addressed cache of compiled artefacts, safe for many processes at once.

    DIR/v1/ab/abcdef.../manifest.json   what is in the entry, and the digest of each other file
    DIR/v1/ab/abcdef.../*               the files: shared object, generated source
    DIR/v1/locks/abcdef....lock         held by the one process that builds that entry

In: a key (sha256 hex of all that decides the artefact) and a builder. Out: `Entry`: checked files and their manifest.
Invariants: an entry appears whole, by one rename; it is read only if every file has the digest that the manifest names
(a shared object that was cut short would crash the process that loads it). Of N processes that miss, one builds and the
others wait for it; the lock belongs to a process, so a builder that dies lets the next one in.
A damaged entry is rebuilt, and said so once. Where DIR is full, read-only, not ours or out of order, its good entries
are read all the same, new ones go to the next of `places.roots()`, and that is said once. What was used longest ago
goes when there is too much (`bound.py`); the manifest has what an entry is for, for who takes it elsewhere
(`portable.py`). Other hosts of a job may be asked before one builds (`hosts`).
Raises: CacheError if no folder can take an entry, or a file of one is lost while it is in use.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from compiler_core import log
from compiler_core.config import config
from compiler_core.errors import CacheError, CompilerNotFoundError
from compiler_core.records import dataclass
from compiler_core.runtime import bound, places
from compiler_core.timeline import mark

FORMAT = "v1"
_CORE = Path(__file__).resolve().parent.parent
_MANIFEST = "manifest.json"
# rooms below compiler_core/ that no code generator imports, as a test finds: what they make comes as a graph's text
_APART = ("bytecode", "capture", "eager", "numpy_trace")

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """One checked artefact: the folder with its files, and what the builder wrote down about it."""

    folder: Path
    manifest: Manifest

    def file(self, name: str) -> Path:
        return self.folder / name

    def read(self, name: str) -> bytes:
        """The bytes of one file. Raises CacheError if it has gone since the entry was checked."""
        try:
            return self.file(name).read_bytes()
        except OSError as error:
            raise CacheError(
                f"{name} of a compiled artefact cannot be read",
                where=str(self.folder),
                got=str(error),
                remedy="do not clear the cache while programs run; start again, and it is rebuilt",
            ) from error

    def link(self, name: str, place: Path) -> None:
        """Put one file at `place`, too: as another name of it, where there can be one."""
        place.unlink(missing_ok=True)
        try:
            os.link(self.file(name), place)
        except OSError:  # another file system, or one without links
            shutil.copy(self.file(name), place)


Builder = Callable[[Path], Manifest]  # writes files into the folder, returns what to remember


class Asked:
    """A request to other hosts. code: writes what one of them had; None: it is to be built here, and given."""

    def __init__(self, code: Builder | None = None, give: Callable[[Entry], None] | None = None) -> None:
        self.code, self._give = code, give

    def give(self, entry: Entry) -> None:
        """Let others have what was built."""
        if self._give is not None:
            self._give(entry)


class Elsewhere(Protocol):
    """Who hands compiled code from host to host (`code_exchange.py`)."""

    def ask(self, key: str) -> AbstractContextManager[Asked]: ...


class _Hosts:
    """others: None where no other host is asked."""

    others: Elsewhere | None = None


hosts = _Hosts()
USED: dict[str, Entry] = {}  # what this process has taken or built, by key, in that order


class DamagedEntry(Exception):
    """An entry whose files are not what its manifest says; never leaves the cache's modules."""


def make_key(parts: Mapping[str, str]) -> str:
    """The hex digest of named texts. Order does not matter; names and texts cannot run into each other."""
    return sha256(json.dumps(dict(sorted(parts.items()))).encode()).hexdigest()


@cache
def generator_fingerprint() -> str:
    """Digest of the compiler's own source: a changed pass, lowering or code generator makes new keys."""
    digest, read = sha256(), memoryview(bytearray(1 << 18))
    for name in sorted(_generator_names()):
        digest.update(b"%s\n" % name.encode())
        file = os.open(f"{_CORE}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            while nbytes := os.readv(file, [read]):
                digest.update(read[:nbytes])
        finally:
            os.close(file)
    return digest.hexdigest()


def origin() -> dict[str, str]:
    """What code that is made here is for, in words: artefacts of another CPU, compiler, C library or version differ."""
    from compiler_core.runtime.toolchain import cpu_identity, find_toolchain

    try:
        compiler = find_toolchain().identity
    except CompilerNotFoundError:
        compiler = "none"
    return {
        "CPU": cpu_identity(),
        "C++ compiler": compiler,
        "C library": "-".join(platform.libc_ver()),
        "version of distcompile": generator_fingerprint()[:16],
    }


def generator_sources() -> list[Path]:
    """The files that may decide what code is made of a graph: all of compiler_core/ but the rooms in _APART."""
    return [_CORE / name for name in sorted(_generator_names())]


def _generator_names(inside: str = "") -> Iterator[str]:
    """The same, as from compiler_core/, in no order. A warm start looks through all of them."""
    with os.scandir(_CORE / inside) as entries:
        for entry in entries:
            name = f"{inside}{entry.name}"
            if name.endswith(".py"):
                yield name
            elif name not in _APART and entry.name != "__pycache__" and entry.is_dir():
                yield from _generator_names(f"{name}/")


def load_or_build(key: str, build: Builder) -> Entry:
    """The entry of `key`, made by `build(folder)` if it is not there.

    With `config.use_cache` off it is built anew each time. Raises CacheError, and what `build` raises but OSError.
    """
    if not config.use_cache:
        return _build_apart(build)
    found = find(key)
    if found is not None:
        log.emit("cache", f"hit {key[:16]}")
        return found
    made = USED[key] = _build_somewhere(key, build)
    return made


def keep(key: str, build: Builder) -> bool:
    """Store an entry that was made elsewhere, where `origin()` is the same; False if it is here. Raises CacheError."""
    if find(key, takes=False) is not None:
        return False
    _build_somewhere(key, build, "taken")
    return True


def _build_somewhere(key: str, build: Builder, word: str = "miss") -> Entry:
    """word: what the log says of it."""
    failures: list[str] = []
    for number in range(places.ROOTS):
        try:
            return _build_in(places.root(number), key, build, word)
        except OSError as error:
            failures.append(str(error))
            log.warn_once(
                f"cache directory {config.cache_dir}",
                f"the artefact cache {config.cache_dir} cannot be written ({error}): compiled code goes to a folder"
                " in the temporary directory; set DISTCOMPILE_CACHE_DIR to a directory that can",
            )
    raise _nowhere(failures)


def find(key: str, *, takes: bool = True) -> Entry | None:
    """The entry of `key`, if it is there. takes: this process uses it."""
    for root in places.lasting_roots() if config.use_cache else ():
        found = _read(_place(root, key))
        if found is not None:
            if takes:
                _note_use(found)
                USED[key] = found
                mark("cache", "hit", key[:16])
            return found
    return None


def _note_use(entry: Entry) -> None:
    """The folder's time says when it was used last, to whom clears the cache. A folder that is read-only keeps its."""
    with suppress(OSError):
        os.utime(entry.folder)


def _place(root: Path, key: str) -> Path:
    return root / FORMAT / key[:2] / key


def _build_apart(build: Builder) -> Entry:
    try:
        folder = Path(tempfile.mkdtemp(dir=places.private_folder()))
        return Entry(folder, build(folder))
    except OSError as error:
        raise _nowhere([str(error)]) from error


def _nowhere(failures: list[str]) -> CacheError:
    return CacheError(
        "compiled code can be stored nowhere",
        got="; ".join(dict.fromkeys(failures)),
        remedy="free space, or set DISTCOMPILE_CACHE_DIR and TMPDIR to directories that can be written",
    )


def _build_in(root: Path, key: str, build: Builder, word: str) -> Entry:
    """Build the entry in the folder `root`, or wait for who does. Raises OSError if it cannot be stored there."""
    places.check_usable(root)
    place = _place(root, key)
    locks = root / FORMAT / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with places.builder_lock(locks / f"{key}.lock") as is_alone:
        found = _read(place)  # another process may have built it while we waited
        if found is not None:
            log.emit("cache", f"hit {key[:16]} after waiting for its builder")
            return found
        with _asked(key, word) as asked:
            if asked is not None and asked.code is not None:
                build, word = asked.code, "taken"
            log.emit("cache", f"{word} {key[:16]}")
            mark("cache", word, key[:16])
            made = build_and_publish(place, build, is_alone=is_alone)
            if asked is not None:
                asked.give(made)
    bound.hold(root, made.folder, USED)
    return made


def _asked(key: str, word: str) -> AbstractContextManager[Asked | None]:
    return hosts.others.ask(key) if hosts.others is not None and word == "miss" else nullcontext()


def build_and_publish(place: Path, build: Builder, *, is_alone: bool) -> Entry:
    """Build beside `place`, then rename. is_alone: what earlier builders of this entry left is of dead ones."""
    place.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".building-{place.name[:16]}-"
    if is_alone:
        for left in place.parent.glob(f"{prefix}*"):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place.parent))
    try:
        manifest = build(folder)
        _write_manifest(folder, manifest)
        return _publish(folder, place, manifest)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # if it has not become the entry


def _publish(folder: Path, place: Path, manifest: Manifest) -> Entry:
    """Make `folder` the entry, unless another process was quicker; what is damaged is moved aside first."""
    try:
        os.rename(folder, place)
        return Entry(place, manifest)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
    found = _read(place)
    if found is not None:
        return found
    aside = Path(tempfile.mkdtemp(prefix=".damaged-", dir=place.parent))
    os.rename(place, aside / "entry")  # no reader sees it half removed
    shutil.rmtree(aside, ignore_errors=True)
    os.rename(folder, place)
    return Entry(place, manifest)


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    digests = {path.name: _digest(path) for path in sorted(folder.iterdir())}
    content = {"files": digests, "manifest": manifest, "origin": origin()}
    body = json.dumps(content, sort_keys=True)
    text = f"{sha256(body.encode()).hexdigest()}\n{body}\n"
    (folder / _MANIFEST).write_text(text)


def contents(entry: Entry) -> tuple[list[str], dict[str, str] | None]:
    """The names of an entry's files, and what it was made for: None if it does not say. Raises DamagedEntry."""
    content = _checked(entry.folder)
    return list(content["files"]), content.get("origin")


def _read(place: Path) -> Entry | None:
    """The entry at `place`; None if there is none, or, with a warning, if it is damaged."""
    try:
        if not place.is_dir():
            return None
    except OSError:  # a parent that we may not enter
        return None
    try:
        return _read_entry(place)
    except DamagedEntry as damage:
        log.warn_once(f"damaged cache entry {place}", f"damaged cache entry {place} ({damage}); it will be rebuilt")
        return None


def _read_entry(place: Path) -> Entry:
    try:
        return Entry(place, _checked(place)["manifest"])
    except LookupError as error:
        raise DamagedEntry(f"it has no {error}") from error


def _checked(place: Path) -> dict[str, Any]:
    """What the manifest at `place` says, once every file has been held to it. Raises DamagedEntry."""
    try:
        digest, _, body = (place / _MANIFEST).read_text().partition("\n")
        if sha256(body.rstrip("\n").encode()).hexdigest() != digest:
            raise DamagedEntry("its manifest does not match its own digest")
        content: dict[str, Any] = json.loads(body)
        for name, expected in content["files"].items():
            if _digest(place / name) != expected:
                raise DamagedEntry(f"{name} is not what the manifest says")
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise DamagedEntry(f"{type(error).__name__}: {error}") from error
    return content


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
