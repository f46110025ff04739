"""The artefact cache: one builder of many processes, damage found and mended, keys that cannot collide."""

from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from compiler_core import log
from compiler_core.config import config
from compiler_core.runtime import cache
from compiler_core.runtime.cache import Entry, generator_fingerprint, generator_sources, load_or_build, make_key
from tests.import_graph import ROOT, statements

KEY = make_key({"test": "one"})


class Builder:
    """Writes one file and counts how often it was asked to."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, folder: Path) -> dict[str, int]:
        self.calls += 1
        (folder / "payload").write_bytes(b"0123456789")
        return {"build": self.calls}


@pytest.fixture(autouse=True)
def cache_dir(tmp_path):
    with config.patch(cache_dir=tmp_path, use_cache=True):
        yield tmp_path


def test_second_time_is_a_hit() -> None:
    build = Builder()
    first, second = load_or_build(KEY, build), load_or_build(KEY, build)
    assert (build.calls, first.manifest, second) == (1, {"build": 1}, first)
    assert first.file("payload").read_bytes() == b"0123456789"


def test_other_keys_are_other_entries() -> None:
    build = Builder()
    assert load_or_build(KEY, build).folder != load_or_build(make_key({"test": "two"}), build).folder


def _truncate(entry: Entry) -> None:
    entry.file("payload").write_bytes(b"01234")


def _remove(entry: Entry) -> None:
    entry.file("payload").unlink()


def _garble_manifest(entry: Entry) -> None:
    path = entry.file("manifest.json")
    path.write_text(path.read_text().replace('"build": 1', '"build": 7'))


def _cut_manifest(entry: Entry) -> None:
    path = entry.file("manifest.json")
    path.write_bytes(path.read_bytes()[:70])


def _binary_manifest(entry: Entry) -> None:
    entry.file("manifest.json").write_bytes(b"\xff\xfe\x00")


@pytest.mark.parametrize("damage", [_truncate, _remove, _garble_manifest, _cut_manifest, _binary_manifest])
def test_a_damaged_entry_is_rebuilt_and_said_once(damage) -> None:
    build = Builder()
    damage(load_or_build(KEY, build))
    with pytest.warns(log.DistCompileWarning, match="damaged cache entry") as caught:
        entry = load_or_build(KEY, build)
    assert len(caught) == 1
    assert entry.manifest == {"build": 2}
    assert entry.file("payload").read_bytes() == b"0123456789"
    assert load_or_build(KEY, build) == entry


def test_a_failed_build_leaves_nothing(cache_dir) -> None:
    def fail(folder: Path) -> dict[str, int]:
        (folder / "half").write_text("half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        load_or_build(KEY, fail)
    assert [p for p in cache_dir.rglob("*") if p.name == "half"] == []
    assert load_or_build(KEY, Builder()).manifest == {"build": 1}


def test_without_the_cache_every_call_builds(cache_dir) -> None:
    build = Builder()
    with config.patch(use_cache=False):
        load_or_build(KEY, build)
        load_or_build(KEY, build)
    assert build.calls == 2
    assert not any(cache_dir.iterdir())


@pytest.mark.parametrize("content", ["[]", '{"files": 3, "manifest": {}}', '{"manifest": {}}', "{"])
def test_a_manifest_that_is_whole_but_no_manifest_is_damage(content: str) -> None:
    build = Builder()
    entry = load_or_build(KEY, build)
    entry.file("manifest.json").write_text(f"{sha256(content.encode()).hexdigest()}\n{content}\n")
    with pytest.warns(log.DistCompileWarning, match="damaged cache entry"):
        assert load_or_build(KEY, build).manifest == {"build": 2}


def test_keys_tell_names_and_texts_apart() -> None:
    assert make_key({"a": "b", "c": "d"}) == make_key({"c": "d", "a": "b"})
    different = [
        {"a": "bc", "d": ""},
        {"a": "b", "cd": ""},
        {"a": "b", "c": "d"},
        {"ab": "", "c": "d"},
        {"a": 'b", "c": "d'},
    ]
    assert len({make_key(parts) for parts in different}) == len(different)


def test_the_fingerprint_is_one_digest() -> None:
    assert len(generator_fingerprint()) == 64


PROCESS = """
import sys
from hashlib import sha256
from pathlib import Path
from compiler_core.runtime.cache import load_or_build
from compiler_core.config import config
log = Path(sys.argv[2])
def build(folder):
    with log.open("a") as stream:
        stream.write("built\\n")
    (folder / "payload").write_text("x" * 100000)
    return {"n": 1}
with config.patch(cache_dir=Path(sys.argv[1])):
    print(load_or_build("ab" * 32, build).file("payload").stat().st_size)
"""


def test_of_many_processes_one_builds(tmp_path) -> None:
    command = [sys.executable, "-c", PROCESS, str(tmp_path / "cache"), str(tmp_path / "log")]
    jobs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = [job.communicate(timeout=60)[0].strip() for job in jobs]
    assert outputs == ["100000"] * 4
    assert (tmp_path / "log").read_text() == "built\n"


def test_the_manifest_is_readable_json(cache_dir) -> None:
    entry = load_or_build(KEY, Builder())
    _, body = entry.file("manifest.json").read_text().split("\n", 1)
    assert json.loads(body)["manifest"] == {"build": 1}


def reached(roots: list[Path]) -> set[Path]:
    """The files of compiler_core that `roots` import, or import what imports them; imports inside functions too."""
    found: set[Path] = set()
    left = list(roots)
    while left:
        path = left.pop()
        if path in found:
            continue
        found.add(path)
        for module, _ in statements(path):
            parts = module.split(".")
            for end in range(1, len(parts) + 1):
                base = ROOT.joinpath(*parts[:end])
                left += [p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()]
    return {path for path in found if path.is_relative_to(ROOT / "compiler_core")}


def test_whatever_can_change_generated_code_is_in_every_key() -> None:
    """graph/passes and dtype.py once were not: code of an earlier version was run."""
    rooms = ("codegen", "lowering", "schedule", "loop_ir", "symbolic")
    roots = [path for room in rooms for path in (ROOT / "compiler_core" / room).rglob("*.py")]
    needed = reached([*roots, ROOT / "compiler_core" / "runtime" / "build.py"])
    assert {"dtype.py", "rewrite.py", "expand.py", "ir.py"} <= {path.name for path in needed}
    assert sorted(needed - set(generator_sources())) == []


def test_a_changed_pass_makes_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("graph/passes/fold.py", "dtype.py", "capture/points.py", "new_room/new.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    monkeypatch.setattr(cache, "_CORE", tmp_path)
    before = generator_fingerprint.__wrapped__()
    for name, changes in (
        ("graph/passes/fold.py", True), ("dtype.py", True), ("new_room/new.py", True), ("capture/points.py", False)
    ):  # fmt: skip
        (tmp_path / name).write_text("2")
        after = generator_fingerprint.__wrapped__()
        assert (after != before) is changes, name
        before = after
