"""`distcompile cache`: what it counts is there, what it takes away is compiled again, what is being built stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from compiler_core.config import config
from compiler_core.runtime import cache, places
from compiler_core.runtime.cache import FORMAT, find, load_or_build, make_key
from distcompile.cli import main
from distcompile.commands import environment, stored


def keep(name: str, nbytes: int, days: float = 0.0) -> str:
    """Store an entry of `nbytes` that was used `days` ago; its key."""

    def build(folder: Path) -> dict[str, object]:
        (folder / "kernels.so").write_bytes(b"x" * nbytes)
        return {}

    key = make_key({"name": name})
    then_s = time.time() - days * 86400
    os.utime(load_or_build(key, build).folder, (then_s, then_s))
    return key


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and nothing in the temporary folder either."""
    monkeypatch.delenv("DISTCOMPILE_CACHE_DIR", raising=False)
    monkeypatch.setattr(places, "lasting_roots", lambda: [config.cache_dir])
    with config.patch(cache_dir=tmp_path / "cache", use_cache=True):
        yield tmp_path / "cache"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["cache", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.usefixtures("shelf")
def test_size_and_list_say_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert "entries:  0, 0 KiB" in said(capsys)
    old, new = keep("old", 3 << 20, days=2), keep("new", 1000)
    assert "entries:  2, 3.0 MiB" in said(capsys, "size")
    lines = said(capsys, "list").splitlines()
    assert [line.split()[0] for line in lines] == [new[:16], old[:16]]  # the one used last first
    assert all(line.endswith("compiled graph") for line in lines)


@pytest.mark.usefixtures("shelf")
def test_prune_takes_away_what_was_not_used(capsys: pytest.CaptureFixture[str]) -> None:
    old, new = keep("old", 1000, days=40), keep("new", 1000, days=20)
    assert "taken away: 1 entries" in said(capsys, "prune", "--days", "30")
    assert find(old) is None
    assert find(new) is not None


@pytest.mark.usefixtures("shelf")
def test_an_entry_that_a_process_takes_is_not_old_any_more(capsys: pytest.CaptureFixture[str]) -> None:
    key = keep("taken again", 1000, days=40)
    assert find(key) is not None
    said(capsys, "prune", "--days", "30")
    assert find(key) is not None


@pytest.mark.usefixtures("shelf")
def test_prune_to_a_size_keeps_what_was_used_last(capsys: pytest.CaptureFixture[str]) -> None:
    keys = [keep(f"entry {days}", 1 << 20, days=days) for days in (3, 2, 1)]
    said(capsys, "prune", "--to", "2.5")
    assert [find(key) is None for key in keys] == [True, False, False]


@pytest.mark.usefixtures("shelf")
def test_prune_without_a_limit_takes_no_entry_away(capsys: pytest.CaptureFixture[str]) -> None:
    key = keep("any", 1000, days=400)
    assert main(["cache", "prune"]) == 0
    assert "--days N or --to MIB" in capsys.readouterr().err
    assert find(key) is not None


@pytest.mark.parametrize("words", [("--days", "x"), ("--to", "nan"), ("--to", "-1")])
def test_prune_says_what_a_limit_is(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["cache", "prune", *words])
    assert f"{words[0]}: '{words[1]}': expected a finite number, 0 or more" in capsys.readouterr().err


def test_clear_takes_all_that_is_ours_and_nothing_else(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = keep("any", 1000)
    (shelf / FORMAT / key[:2] / "notes").mkdir()
    (shelf / "somebody's").mkdir()
    said(capsys, "clear")
    assert find(key) is None
    assert (shelf / FORMAT / key[:2] / "notes").exists()
    assert (shelf / "somebody's").exists()
    keep("any", 1000)
    assert find(key) is not None


def test_what_a_dead_builder_left_goes_and_what_is_being_built_stays(
    shelf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dead, alive = make_key({"name": "dead"}), make_key({"name": "alive"})
    for key in (dead, alive):
        (shelf / FORMAT / key[:2] / f".building-{key[:16]}-abc").mkdir(parents=True)
    locks = shelf / FORMAT / "locks"
    locks.mkdir()
    (locks / f"{dead}.lock").touch()
    with places.builder_lock(locks / f"{alive}.lock"):
        assert "left by processes that died: 1 folders" in said(capsys)
        said(capsys, "clear")
    assert not list((shelf / FORMAT / dead[:2]).iterdir())
    assert list((shelf / FORMAT / alive[:2]).iterdir())


def test_who_set_the_folder_means_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without DISTCOMPILE_CACHE_DIR the folder in the temporary directory is cleared, too; with it, it stays."""
    fallback = tmp_path / "fallback"
    monkeypatch.setattr(places, "lasting_roots", lambda: [config.cache_dir, fallback])
    with config.patch(cache_dir=fallback, use_cache=True):
        key = keep("of the fallback", 1000)
    with config.patch(cache_dir=tmp_path / "mine", use_cache=True):
        monkeypatch.setenv("DISTCOMPILE_CACHE_DIR", str(tmp_path / "mine"))
        keep("mine", 1000)
        assert str(fallback) not in said(capsys, "size")
        assert environment.facts()["cache"] == str(tmp_path / "mine")
        assert "taken away: 1 entries" in said(capsys, "clear")
        assert find(key) is not None
        monkeypatch.delenv("DISTCOMPILE_CACHE_DIR")
        assert str(fallback) in said(capsys, "size")
        assert environment.facts()["cache"] == f"{tmp_path / 'mine'}, {fallback}"
        assert "taken away: 1 entries" in said(capsys, "clear")
        assert find(key) is None


def test_help_says_which_folders(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["cache", "--help"])
    found = capsys.readouterr().out
    assert "DISTCOMPILE_CACHE_DIR, if it is set, and no other" in found
    assert "temporary directory" in found


def test_what_is_exported_is_imported_elsewhere(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys, file = [keep("a", 3000), keep("b", 1000)], str(tmp_path / "artefacts.bin")
    assert "2 entries, 5 KiB" in said(capsys, "export", file)
    with config.patch(cache_dir=tmp_path / "other"):
        assert "taken: 2 entries; here already: 0" in said(capsys, "import", file)
        assert "taken: 0 entries; here already: 2" in said(capsys, "import", file)
        assert None not in map(find, keys)
        said(capsys, "clear")
        here = cache.origin()
        monkeypatch.setattr(cache, "origin", lambda: {**here, "CPU": "another"})
        assert main(["cache", "import", file]) == 1
        out = capsys.readouterr()
        assert out.err == f"2 of the artefacts are ignored: they are for another CPU ({here['CPU']}; here: another)\n"
        assert [find(key) for key in keys] == [None, None]


@pytest.mark.usefixtures("shelf")
def test_import_takes_no_other_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "artefacts.bin"
    assert main(["cache", "import", str(file)]) == 2
    assert "cannot be read: No such file" in capsys.readouterr().err
    file.write_bytes(b"PK\x03\x04")
    assert main(["cache", "import", str(file)]) == 2
    assert f"{file}: this is no file of compiled artefacts" in capsys.readouterr().err
    assert main(["cache", "export", str(tmp_path / "no" / "x")]) == 2
    assert "cannot be written: No such file" in capsys.readouterr().err


@pytest.mark.usefixtures("shelf")
def test_export_leaves_out_what_does_not_say_its_origin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = find(keep("of an earlier version", 1000))
    keep("of this one", 1000)
    assert entry is not None
    manifest = entry.folder / "manifest.json"
    content = json.loads(manifest.read_text().partition("\n")[2])
    del content["origin"]
    body = json.dumps(content)
    manifest.write_text(f"{sha256(body.encode()).hexdigest()}\n{body}\n")
    assert main(["cache", "export", str(tmp_path / "x")]) == 0
    out = capsys.readouterr()
    assert "1 entries" in out.out
    assert "1 are left out: damaged, or stored by an earlier version" in out.err


@pytest.mark.parametrize("action", ["size", "list", "prune", "clear"])
def test_a_file_is_no_cache(shelf: Path, action: str, capsys: pytest.CaptureFixture[str]) -> None:
    shelf.write_text("not a folder")
    assert main(["cache", action]) == 2
    assert f"the cache {shelf} is no folder" in capsys.readouterr().err


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_gone_is_no_error_of_ours(unbuffered: str) -> None:
    """As `distcompile cache list | head -1` has it."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "distcompile", "env"],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 141


def test_a_pipe_of_the_commands_own_that_breaks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(options: object) -> int:
        raise BrokenPipeError(32, "of a worker")

    monkeypatch.setattr(stored, "run", run)
    with pytest.raises(BrokenPipeError, match="of a worker"):
        main(["cache"])


@pytest.mark.parametrize("action", ["export", "import"])
def test_a_cache_that_is_off_is_told(
    action: str, shelf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep("one", 100)
    with config.patch(use_cache=False):
        assert main(["cache", action, str(tmp_path / "file")]) == 2
    assert "DISTCOMPILE_CACHE=0 turns the cache off" in capsys.readouterr().err
    assert not (tmp_path / "file").exists()
