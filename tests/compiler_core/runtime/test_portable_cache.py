"""Artefacts as one file: what is taken is what was packed; what is damaged or for another place is left, and said."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from compiler_core.config import config
from compiler_core.errors import CacheError, ConfigError
from compiler_core.runtime import bound, cache, portable, stock
from compiler_core.runtime.cache import find, load_or_build, make_key


def store(name: str, files: dict[str, bytes]) -> str:
    def build(folder: Path) -> dict[str, str]:
        for file, data in files.items():
            (folder / file).write_bytes(data)
        return {"name": name}

    key = make_key({"name": name})
    load_or_build(key, build)
    return key


@pytest.fixture(autouse=True)
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(cache, "USED", {})
    monkeypatch.setattr(bound, "_counted", {})
    with config.patch(cache_dir=tmp_path / "one", use_cache=True):
        yield tmp_path


def packed() -> bytes:
    return portable.pack(cache.USED)[0]


def test_what_was_packed_is_taken_whole_and_once(shelf: Path) -> None:
    long = bytes(range(256)) * 400
    keys = [store("a", {"kernels.so": long, "empty.bin": b""}), store("b", {"kernels.so": long, "main.cpp": b"\n\n"})]
    data = packed()
    assert len(data) < 2 * len(long)  # what is the same is there once
    with config.patch(cache_dir=shelf / "two"):
        taken = portable.take(portable.unpack(data))
        assert ([one.key for one in taken.new], taken.known, taken.complaints()) == (sorted(keys), [], [])
        entries = [find(key) for key in keys]
        assert [entry is not None and entry.read("kernels.so") for entry in entries] == [long, long]
        assert entries[1] is not None
        assert (entries[1].manifest, entries[1].read("main.cpp")) == ({"name": "b"}, b"\n\n")
        again = portable.take(portable.unpack(data))
        assert (again.new, len(again.known)) == ([], 2)
        assert packed() == data


@pytest.mark.parametrize("what", ["CPU", "C++ compiler", "C library", "version of distcompile"])
def test_what_is_for_another_place_is_left_and_said(shelf: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    key, here = store("a", {"kernels.so": b"code"}), cache.origin()
    data = packed()
    monkeypatch.setattr(cache, "origin", lambda: {**here, what: "another"})
    with config.patch(cache_dir=shelf / "two"):
        taken = portable.take(portable.unpack(data))
        assert (taken.new, taken.known, find(key)) == ([], [], None)
        assert taken.complaints() == [
            f"1 of the artefacts are ignored: they are for another {what} ({here[what]}; here: another)"
        ]


@pytest.mark.parametrize("place", [0, 20, 50, 100, 200, -1])
def test_a_flipped_bit_anywhere_is_damage(place: int) -> None:
    store("a", {"kernels.so": b"code" * 40})
    data = bytearray(packed())
    data[place] ^= 1
    with pytest.raises(CacheError, match=r"this is (a damaged file|no file of compiled artefacts|a file of another)"):
        list(portable.unpack(bytes(data)))


def test_a_file_that_was_cut_short_is_damage() -> None:
    store("a", {"kernels.so": b"code" * 40})
    data = packed()
    for length in range(0, len(data), 7):
        with pytest.raises(CacheError):
            list(portable.unpack(data[:length]))


def forged(table: object, parts: bytes = b"") -> bytes:
    text = json.dumps(table).encode()
    digest = sha256(text + parts).hexdigest()
    return b"distcompile cache 1\n" + f"{digest} {len(text)}\n".encode() + text + parts


@pytest.mark.parametrize(
    ("key", "name"), [("../../x", "a"), ("a" * 64, "../a"), ("a" * 64, "/a"), ("a" * 64, ".a"), ("a" * 64, "")]
)
def test_names_that_lead_elsewhere_are_refused(shelf: Path, key: str, name: str) -> None:
    digest = sha256(b"x").hexdigest()
    row = {"origin": cache.origin(), "manifest": {}, "files": {name: digest}}
    data = forged({"entries": {key: row}, "parts": [[digest, 1]]}, b"x")
    with pytest.raises(CacheError, match="a damaged file"):
        list(portable.unpack(data))


@pytest.mark.parametrize("table", [[], {}, {"entries": []}, {"entries": {}, "parts": 3}, {"entries": 1, "parts": []}])
def test_a_table_that_is_none_is_refused(table: object) -> None:
    with pytest.raises(CacheError, match="its table cannot be read"):
        list(portable.unpack(forged(table)))


def test_another_form_is_told_from_damage() -> None:
    with pytest.raises(CacheError, match="a file of another form"):
        list(portable.unpack(b"distcompile cache 2\n"))


def age(key: str, seconds: float) -> None:
    import os

    entry = find(key, takes=False)
    assert entry is not None
    then_s = time.time() - seconds
    os.utime(entry.folder, (then_s, then_s))


def forget() -> None:
    """As another process is: it has used nothing."""
    cache.USED.clear()
    bound._counted.clear()


MIB = b"x" * (1 << 20)


def test_what_was_used_longest_ago_goes_at_the_limit() -> None:
    keys = []
    for number, used in enumerate([5000, 9000, 7000, 1000]):
        keys.append(store(f"entry {number}", {"kernels.so": MIB}))
        age(keys[-1], used)
    forget()
    with config.patch(cache_limit=4):
        keys.append(store("new", {"kernels.so": MIB}))
        assert [find(key, takes=False) is None for key in keys] == [False, True, True, False, False]
        keys.append(store("new 2", {"kernels.so": MIB[:1000]}))  # it is counted, and fits
        assert [find(key, takes=False) is None for key in keys] == [False, True, True, False, False, False]


def test_what_is_in_use_stays_over_the_limit() -> None:
    with config.patch(cache_limit=1):
        mine = store("mine", {"kernels.so": MIB})
        age(mine, 9000)
        other = store("other", {"kernels.so": MIB})
        cache.USED.pop(other)  # another process has just taken it
        store("third", {"kernels.so": MIB})
        assert None not in (find(mine), find(other))


def test_without_a_limit_nothing_goes() -> None:
    with config.patch(cache_limit=0):
        key = store("old", {"kernels.so": MIB})
        age(key, 9000)
        forget()
        store("new", {"kernels.so": MIB})
        assert find(key) is not None


def test_a_limit_below_zero_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTCOMPILE_CACHE_LIMIT", "-1")
    with pytest.raises(ConfigError, match="it must be 0 or more"):
        type(config)().cache_limit  # noqa: B018


def test_a_file_of_two_names_counts_once(shelf: Path) -> None:
    first = store("a", {"kernels.so": MIB})
    found = find(first)
    assert found is not None

    def build(folder: Path) -> dict[str, str]:
        found.link("kernels.so", folder / "kernels.so")
        return {}

    load_or_build(make_key({"name": "b"}), build)
    assert sum(entry.nbytes for entry in stock.stored([shelf / "one"])) < 1.1 * len(MIB)
