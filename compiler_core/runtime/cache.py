"""Content-addressed cache of compiled artefacts, safe for many processes at once.

    DIR/v1/ab/abcdef.../manifest.json   what is in the entry, and the digest of each other file
    DIR/v1/ab/abcdef.../*               the files: shared object, generated source
    DIR/v1/locks/abcdef....lock         held by the one process that builds that entry

In: a key (sha256 hex of all that decides the artefact) and a builder. Out: `Entry`: checked files and their manifest.
Invariants: an entry appears whole, by one rename; it is read only if every file has the digest that the manifest names
(a shared object that was cut short would crash the process that loads it). Of N processes that miss, one builds and the
others wait for it; the lock belongs to a process, so a builder that dies lets the next one in.
A damaged entry is rebuilt, and said so once.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from compiler_core import log
from compiler_core.config import config

FORMAT = "v1"
_MANIFEST = "manifest.json"
# what an artefact depends on, below compiler_core/; the text of these files is part of every key
_GENERATOR_FOLDERS = ("ops", "symbolic", "loop_ir", "lowering", "schedule", "codegen", "runtime")

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """One checked artefact: the folder with its files, and what the builder wrote down about it."""

    folder: Path
    manifest: Manifest

    def file(self, name: str) -> Path:
        return self.folder / name


Builder = Callable[[Path], Manifest]  # writes files into the folder, returns what to remember


class DamagedEntry(Exception):
    """An entry whose files are not what its manifest says; never leaves this module."""


def make_key(parts: Mapping[str, str]) -> str:
    """The hex digest of named texts. Order does not matter; names and texts cannot run into each other."""
    return sha256(json.dumps(dict(sorted(parts.items()))).encode()).hexdigest()


@cache
def generator_fingerprint() -> str:
    """Digest of the compiler's own source: a changed lowering or code generator makes new keys."""
    root = Path(__file__).resolve().parent.parent
    files = sorted(path for folder in _GENERATOR_FOLDERS for path in (root / folder).rglob("*.py"))
    digest = sha256()
    for path in files:
        digest.update(f"{path.relative_to(root)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def load_or_build(key: str, build: Builder) -> Entry:
    """The entry of `key`, made by `build(folder)` if it is not there.

    With `config.use_cache` off, or a cache directory that cannot be written (warned once), it is built in a fresh
    temporary folder each time.
    """
    if not config.use_cache or not _is_writable():
        folder = Path(tempfile.mkdtemp(prefix="distcompile-nocache-"))
        return Entry(folder, build(folder))
    place = _place(key)
    found = _read(place)
    if found is not None:
        log.emit("cache", f"hit {key[:16]}")
        return found
    return _build_locked(key, place, build)


def _locks() -> Path:
    return config.cache_dir / FORMAT / "locks"


def _is_writable() -> bool:
    try:
        _locks().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        log.warn_once(
            f"cache directory {config.cache_dir}",
            f"the cache directory cannot be written ({error}): everything is compiled anew in every process;"
            " set DISTCOMPILE_CACHE_DIR to a directory that can",
        )
        return False
    return True


def _place(key: str) -> Path:
    return config.cache_dir / FORMAT / key[:2] / key


def _build_locked(key: str, place: Path, build: Builder) -> Entry:
    from filelock import FileLock

    with FileLock(_locks() / f"{key}.lock"):
        found = _read(place)  # another process may have built it while we waited
        if found is not None:
            log.emit("cache", f"hit {key[:16]} after waiting for its builder")
            return found
        log.emit("cache", f"miss {key[:16]}")
        return _build_and_publish(place, build)


def _build_and_publish(place: Path, build: Builder) -> Entry:
    place.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".building-", dir=place.parent))
    try:
        manifest = build(folder)
        _write_manifest(folder, manifest)
        if place.exists():  # damaged; moved aside first, so that no reader sees it half removed
            os.rename(place, folder.with_suffix(".damaged"))
        os.rename(folder, place)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder.with_suffix(".damaged"), ignore_errors=True)
    return Entry(place, manifest)


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    digests = {path.name: _digest(path) for path in sorted(folder.iterdir())}
    body = json.dumps({"files": digests, "manifest": manifest}, sort_keys=True)
    (folder / _MANIFEST).write_text(f"{sha256(body.encode()).hexdigest()}\n{body}\n")


def _read(place: Path) -> Entry | None:
    """The entry at `place`; None if there is none, or, with a warning, if it is damaged."""
    if not place.is_dir():
        return None
    try:
        return _read_entry(place)
    except DamagedEntry as damage:
        log.warn_once(f"damaged cache entry {place}", f"damaged cache entry {place} ({damage}); it will be rebuilt")
        return None


def _read_entry(place: Path) -> Entry:
    try:
        digest, _, body = (place / _MANIFEST).read_text().partition("\n")
        if sha256(body.rstrip("\n").encode()).hexdigest() != digest:
            raise DamagedEntry("its manifest does not match its own digest")
        content = json.loads(body)
        for name, expected in content["files"].items():
            if _digest(place / name) != expected:
                raise DamagedEntry(f"{name} is not what the manifest says")
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedEntry(str(error)) from error
    return Entry(place, content["manifest"])


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
