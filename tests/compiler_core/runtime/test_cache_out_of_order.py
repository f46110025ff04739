"""A cache that is full, read-only, without locks, locked by the dead, or cleared: it works, or says why not."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compiler_core import log
from compiler_core.config import _cache_home, config
from compiler_core.errors import CacheError
from compiler_core.runtime import cache, places
from compiler_core.runtime.cache import load_or_build, make_key
from compiler_core.runtime.executor import load_library

KEY, OTHER = make_key({"test": "one"}), make_key({"test": "two"})
ROOT = Path(__file__).resolve().parents[3]


def build(folder: Path) -> dict[str, int]:
    (folder / "payload").write_bytes(b"0123456789" * 1000)
    return {"build": 1}


def never(folder: Path) -> dict[str, int]:
    raise AssertionError("built again")


@pytest.fixture
def tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory that the fallback goes to."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr(places, "private_folder", lambda: _made(folder / "private"))
    return folder


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def home(tmp_path: Path, tmp: Path) -> Iterator[Path]:
    """The cache directory."""
    with config.patch(cache_dir=tmp_path / "cache", use_cache=True):
        yield tmp_path / "cache"


def fallback(tmp: Path) -> Path:
    return tmp / f"distcompile-cache-{os.getuid()}"


def check_goes_elsewhere(tmp: Path) -> None:
    """One warning, and a working cache in the temporary directory."""
    with pytest.warns(log.DistCompileWarning, match="cannot be written") as caught:
        entry = load_or_build(OTHER, build)
    assert len(caught) == 1
    assert fallback(tmp) in entry.folder.parents
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        assert load_or_build(OTHER, never) == entry


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("where", ["mkdtemp", "build", "manifest", "lock", "rename"])
def test_whatever_the_disk_refuses(
    home: Path, tmp: Path, monkeypatch: pytest.MonkeyPatch, code: int, where: str
) -> None:
    kept = load_or_build(KEY, build)

    def refusing(real: Callable[..., Any], of: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if str(home) in str(of(*args, **kwargs)):
                raise OSError(code, os.strerror(code))
            return real(*args, **kwargs)

        return call

    if where == "mkdtemp":
        real = cache.tempfile.mkdtemp
        monkeypatch.setattr(cache.tempfile, "mkdtemp", refusing(real, lambda *a, **k: k.get("dir")))
    elif where == "build":
        monkeypatch.setattr(Path, "write_bytes", refusing(Path.write_bytes, lambda path, *_: path))
    elif where == "manifest":
        monkeypatch.setattr(cache, "_write_manifest", refusing(cache._write_manifest, lambda folder, _: folder))
    elif where == "lock":
        monkeypatch.setattr(places, "builder_lock", refusing(places.builder_lock, lambda path: path))
    else:
        monkeypatch.setattr(cache.os, "rename", refusing(os.rename, lambda _, target: target))
    check_goes_elsewhere(tmp)
    monkeypatch.undo()
    assert load_or_build(KEY, never) == kept
    assert list(home.rglob(".building-*")) == []


def test_a_file_in_the_way(home: Path, tmp: Path) -> None:
    home.write_text("in the way")
    check_goes_elsewhere(tmp)


def test_nowhere_at_all_is_a_named_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path) -> dict[str, int]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.warns(log.DistCompileWarning), pytest.raises(CacheError, match="stored nowhere") as caught:
        load_or_build(KEY, full)
    assert "No space left on device" in caught.value.got
    assert "DISTCOMPILE_CACHE_DIR" in caught.value.remedy
    with config.patch(use_cache=False), pytest.raises(CacheError, match="stored nowhere"):
        load_or_build(KEY, full)


def test_no_temporary_directory_is_a_named_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write_text("in the way")

    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", none)
    monkeypatch.setattr(places, "private_folder", none)
    with pytest.warns(log.DistCompileWarning), pytest.raises(CacheError, match="No usable temporary directory"):
        load_or_build(KEY, build)


def test_a_fallback_that_others_could_write_to_is_not_taken(home: Path, tmp: Path) -> None:
    home.write_text("in the way")
    fallback(tmp).mkdir()
    fallback(tmp).chmod(0o777)
    with pytest.warns(log.DistCompileWarning):
        entry = load_or_build(KEY, build)
    assert tmp / "private" in entry.folder.parents


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(home: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.warns(log.DistCompileWarning, match="cannot be locked"):
        entry = load_or_build(KEY, build)
    assert home in entry.folder.parents


def test_without_locks_the_quicker_one_s_entry_is_taken(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build_while_another_does(folder: Path) -> dict[str, int]:
        manifest = build(folder)
        shutil_copy = home / cache.FORMAT / KEY[:2] / KEY
        shutil_copy.mkdir()
        (shutil_copy / "payload").write_bytes(b"theirs")
        cache._write_manifest(shutil_copy, {"build": 7})
        return manifest

    assert load_or_build(KEY, build_while_another_does).manifest == {"build": 7}
    assert load_or_build(KEY, never).file("payload").read_bytes() == b"theirs"
    assert list(home.rglob(".building-*")) == []


HOLDER = """
import sys, time
from pathlib import Path
from compiler_core.config import config
from compiler_core.runtime.cache import load_or_build
def build(folder):
    (folder / "half").write_text("half")
    print("building", flush=True)
    time.sleep(600)
with config.patch(cache_dir=Path(sys.argv[1])):
    load_or_build(sys.argv[2], build)
"""


def test_a_lock_left_by_the_dead(home: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(home), KEY], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "building\n"
    holder.send_signal(signal.SIGKILL)
    holder.wait(60)
    holder.stdout.close()
    began_s = time.monotonic()
    assert load_or_build(KEY, build).manifest == {"build": 1}
    assert time.monotonic() - began_s < 60  # of 900 for a living holder
    assert list(home.rglob("half")) == []


def test_a_holder_that_takes_too_long_is_not_waited_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "LOCK_LIMIT_S", 0.2)
    locks = home / cache.FORMAT / "locks"
    locks.mkdir(parents=True)
    with places.builder_lock(locks / f"{KEY}.lock") as held:
        assert held
        with pytest.warns(log.DistCompileWarning, match="another process has been building"):
            assert load_or_build(KEY, build).manifest == {"build": 1}


def test_files_that_go_while_in_use_are_a_named_error(home: Path) -> None:
    entry = load_or_build(KEY, build)
    entry.file("payload").unlink()
    with pytest.raises(CacheError, match="payload of a compiled artefact cannot be read"):
        entry.read("payload")
    with pytest.raises(CacheError, match="cannot be loaded"):
        load_library(entry.file("payload"))


def test_a_user_without_a_home_has_a_cache(monkeypatch: pytest.MonkeyPatch, tmp: Path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert _cache_home() == fallback(tmp)


def _mounted(options: str, folder: Path) -> bool:
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    except OSError:
        return False


@pytest.fixture(params=["full", "ro", "noexec"])
def mounted(request: pytest.FixtureRequest, home: Path) -> Iterator[str]:
    """The cache on a file system of its own: tiny, read-only, or noexec."""
    if not _mounted("size=4m,noexec" if request.param == "noexec" else "size=4m", home):
        pytest.skip("mounting a tmpfs takes root and CAP_SYS_ADMIN")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load_or_build(KEY, build)
        if request.param == "full":
            (home / "filler").write_bytes(bytes(os.statvfs(home).f_bavail * os.statvfs(home).f_frsize))
        elif request.param == "ro":
            subprocess.run(["mount", "-o", "remount,ro", str(home)], check=True, timeout=60)
        yield request.param
    finally:
        subprocess.run(["umount", str(home)], check=True, timeout=60)


def test_a_real_disk_that_is_full_or_read_only(mounted: str, home: Path, tmp: Path) -> None:
    log.forget_warnings()
    check_goes_elsewhere(tmp)
    assert load_or_build(KEY, never).manifest == {"build": 1}


def test_a_whole_compile_on_a_full_disk(home: Path, tmp: Path) -> None:
    import distcompile as torch

    if not _mounted("size=16k", home):
        pytest.skip("mounting a tmpfs takes root and CAP_SYS_ADMIN")
    try:
        with pytest.warns(log.DistCompileWarning, match="cannot be written"):
            result = torch.compile(lambda x: torch.sin(x) * 2)(torch.zeros(5))
        assert result.tolist() == [0.0] * 5
    finally:
        subprocess.run(["umount", str(home)], check=True, timeout=60)
