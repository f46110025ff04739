"""The timeline of what was compiled: steps, units and looks into the cache, as text, as a trace, and read back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import distcompile as dc
from compiler_core import timeline
from compiler_core.config import config
from compiler_core.showing.timeline import Mark, Timeline, read_timeline, write_trace
from distcompile.cli import main

MARKS = (
    Mark("step", "build", "f", 10.5, 1.0, 7),
    Mark("unit", "main.cpp", "", 10.5, 0.9, 8),
    Mark("step", "backend", "f", 10.0, 2.0, 7),
    Mark("step", "emit", "f", 10.1, 0.0001, 7),
    Mark("cache", "miss", "abc", 10.4, 0.0, 7),
    Mark("cache", "hit", "def", 11.9, 0.0, 7),
    Mark("step", "capture", "g", 11.0, 0.5, 9),
)


PAGE = """\
                    0 s                               2.00 s
f: backend         |########################################|   2000.0 ms
  f: build         |          ####################          |   1000.0 ms
    main.cpp (C++) |          ##################            |    900.0 ms
g: capture         |                    ##########          |    500.0 ms
cache: 1 hits, 1 misses"""


def test_the_page() -> None:
    assert str(Timeline(MARKS)) == PAGE


def test_nothing_is_a_page_too() -> None:
    assert str(Timeline(())) == "nothing was compiled\ncache: 0 hits, 0 misses"


def test_what_is_written_reads_back_as_the_same_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Timeline(MARKS)
    made.save(tmp_path / "trace.json")
    assert str(read_timeline(tmp_path / "trace.json")) == str(made)
    assert main(["timeline", str(tmp_path / "trace.json")]) == 0
    assert capsys.readouterr().out == f"{made}\n"
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "i"}
    build = next(event for event in events if event["name"] == "build")
    assert (build["ts"], build["dur"]) == (pytest.approx(5e5), pytest.approx(1e6))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"traceEvents": [{"ph": "X"}]}', '{"traceEvents": 3}'])
def test_another_file_is_an_error(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_text(text)
    assert main(["timeline", str(tmp_path / "x")]) == 2
    assert "is no timeline of compilations" in capsys.readouterr().err
    assert main(["timeline", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_compilation_leaves_its_steps_units_and_looks(tmp_path: Path) -> None:
    timeline.forget()
    with config.patch(cache_dir=tmp_path, use_cache=True):
        for _ in range(2):
            f = dc.compile(lambda x: x.sin() * 3.25)
            f(dc.ones(7))
    found = timeline.marks()
    assert [m.what for m in found if m.kind == "unit"] == ["main.cpp"]
    assert {"miss", "hit"} <= {m.what for m in found if m.kind == "cache"}
    unit = next(m for m in found if m.kind == "unit")
    build = next(m for m in found if m.what == "build")
    assert build.began_s <= unit.began_s <= unit.ended_s <= build.ended_s
    assert "main.cpp (C++)" in str(dc.debug.timeline())


PROGRAM = "import distcompile as dc; dc.compile(lambda x: x.cos() + 1.5)(dc.ones(3))"


@pytest.mark.parametrize(("ranks", "name"), [("1", "trace.json"), ("2", "trace.rank1.json")])
def test_a_process_that_is_asked_for_it_writes_it_at_its_end(tmp_path: Path, ranks: str, name: str) -> None:
    asked = {"DISTCOMPILE_TRACE": str(tmp_path / "trace.json"), "WORLD_SIZE": ranks, "RANK": "1"}
    subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, **asked}, timeout=60, check=True)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert "backend" in str(read_timeline(tmp_path / name))


SPAWNING = f"""
import multiprocessing
def child():
    {PROGRAM}
if __name__ == "__main__":
    {PROGRAM}
    process = multiprocessing.get_context("spawn").Process(target=child)
    process.start()
    process.join()
    print(process.pid)
"""


def test_a_process_that_one_started_has_a_file_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(SPAWNING)
    asked = {**os.environ, "DISTCOMPILE_TRACE": str(tmp_path / "trace.json")}
    done = subprocess.run(
        [sys.executable, str(script)], env=asked, timeout=60, check=True, capture_output=True, text=True
    )
    names = {"trace.json", f"trace.{done.stdout.strip()}.json"}
    assert {path.name for path in tmp_path.glob("*.json")} == names


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_trace(str(tmp_path / "none" / "x.json"), MARKS)
    assert "the timeline cannot be written" in capsys.readouterr().err
