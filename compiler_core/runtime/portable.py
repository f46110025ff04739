"""Compiled artefacts as one file, to be taken to other processes, containers and hosts of the same kind.

    distcompile cache 1\\n                 what the file is, and the version of this form
    DIGEST NBYTES\\n                       of all that follows (sha256, hex), and the table's length
    the table, JSON                       {"entries": {KEY: {"origin", "manifest", "files": {NAME: DIGEST}}},
                                           "parts": [[DIGEST, NBYTES], ...]}
    the parts                             each file's bytes, once, in the table's order

In: entries of the cache. Out: bytes; and bytes, back in the cache, where compiled code finds them by their keys.
Invariants: reading runs nothing of the file: there is no pickle in it. It is taken whole, after its digest, or not
at all; an entry whose origin (CPU, compiler, C library, version) is not this process's is left out, and said.
Limits: the digest finds damage, not malice. Artefacts are machine code, which runs when the function whose they are
is called: take files only from those whose programs you would run.
Raises: CacheError for bytes that are no such file, or a damaged one, or one of another version of the form.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

from compiler_core.errors import CacheError
from compiler_core.records import dataclass
from compiler_core.runtime import cache
from compiler_core.runtime.cache import DamagedEntry, Entry, Manifest
from compiler_core.runtime.stock import kind_of

_MAGIC, _FORM = b"distcompile cache ", b"1"
_NAME, _KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*"), re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Packed:
    """One entry on its way. origin: see `cache.origin`; files: name -> bytes."""

    key: str
    origin: Mapping[str, str]
    manifest: Manifest
    files: Mapping[str, bytes]

    @property
    def kind(self) -> str:
        return kind_of(self.files)


@dataclass(slots=True)
class Taken:
    """What became of the entries of a file. ignored: in words, why -> how many."""

    new: list[Packed] = field(default_factory=list)
    known: list[Packed] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)

    def complaints(self) -> list[str]:
        return [f"{number} of the artefacts are ignored: {why}" for why, number in self.ignored.items()]


def pack(entries: Mapping[str, Entry]) -> tuple[bytes, list[Packed]]:
    """The file of these entries, and what is in it; none of those that went meanwhile, or do not say their origin."""
    packed = [one for key, entry in entries.items() if (one := _packed(key, entry)) is not None]
    parts: dict[str, bytes] = {}
    rows = {one.key: _row(one, parts) for one in packed}
    content = {"entries": rows, "parts": [[digest, len(data)] for digest, data in parts.items()]}
    table = json.dumps(content, sort_keys=True).encode()
    body = b"".join([table, *parts.values()])
    head = f"{sha256(body).hexdigest()} {len(table)}\n".encode()
    return b"".join([_MAGIC, _FORM, b"\n", head, body]), packed


def _packed(key: str, entry: Entry) -> Packed | None:
    try:
        names, origin = cache.contents(entry)
        if origin is None:
            return None
        return Packed(key, origin, entry.manifest, {name: entry.read(name) for name in names})
    except (DamagedEntry, CacheError):
        return None


def _row(one: Packed, parts: dict[str, bytes]) -> dict[str, Any]:
    digests = {name: sha256(data).hexdigest() for name, data in one.files.items()}
    parts.update((digests[name], data) for name, data in one.files.items())
    return {"origin": one.origin, "manifest": one.manifest, "files": digests}


def unpack(data: bytes) -> Iterator[Packed]:
    """The entries of a file. Raises CacheError."""
    table, parts = _opened(data)
    try:
        for key, row in table["entries"].items():
            files = {str(name): parts[digest] for name, digest in row["files"].items()}
            if not _KEY.fullmatch(key) or not all(map(_NAME.fullmatch, files)):
                _refuse("a damaged file", f"an entry {key!r} of {sorted(files)}")
            yield Packed(key, row["origin"], row["manifest"], files)
    except (LookupError, TypeError, AttributeError) as error:
        _refuse("a damaged file", f"its table cannot be read: {type(error).__name__}: {error}")


def _opened(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """(table, digest -> part)."""
    first, _, rest = data.partition(b"\n")
    if not first.startswith(_MAGIC):
        _refuse("no file of compiled artefacts", f"it begins with {data[:16]!r}")
    if first != _MAGIC + _FORM:
        _refuse("a file of another form", f"{first.decode(errors='replace')}; this version reads {_FORM.decode()}")
    head, _, body = rest.partition(b"\n")
    digest, _, length = head.partition(b" ")
    if sha256(body).hexdigest().encode() != digest or not length.isdigit():
        _refuse("a damaged file", f"its {len(body)} bytes do not have the digest that it names")
    try:
        table = json.loads(body[: int(length)])
        position, parts = int(length), {}
        for name, nbytes in table["parts"]:
            parts[name] = body[position : position + nbytes]
            position += nbytes
    except (ValueError, LookupError, TypeError) as error:
        _refuse("a damaged file", f"its table cannot be read: {error}")
    return table, parts


def _refuse(what: str, got: str) -> NoReturn:
    raise CacheError(
        f"this is {what}", got=got, remedy="write it anew by save_cache_artifacts() or `distcompile cache export`"
    )


def take(entries: Iterable[Packed]) -> Taken:
    """Store what was made for a place like this one. Raises CacheError where nothing can be stored."""
    taken, here = Taken(), cache.origin()
    for one in entries:
        why = _differs(one.origin, here)
        if why:
            taken.ignored[why] += 1
        elif cache.keep(one.key, _writer(one)):
            taken.new.append(one)
        else:
            taken.known.append(one)
    return taken


def _writer(one: Packed) -> cache.Builder:
    def write(folder: Path) -> Manifest:
        for name, data in one.files.items():
            (folder / name).write_bytes(data)
        return one.manifest

    return write


def writer_of(data: bytes, key: str) -> cache.Builder | None:
    """What writes the entry of a key that a file has; None if it has none, or not for here. Raises CacheError."""
    here = cache.origin()
    return next((_writer(one) for one in unpack(data) if one.key == key and not _differs(one.origin, here)), None)


def _differs(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Why what was made there is not for here; "" if it is."""
    for what, mine in here.items():
        theirs = there.get(what)
        if theirs != mine:
            return f"they are for another {what} ({theirs}; here: {mine})"
    return ""
