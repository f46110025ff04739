"""The status board: what is written is read, by another process too."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from launch import board
from launch.board import BoardError, Phase, Reader, Where, create, now_ns, read, reopen

ROOT = Path(__file__).resolve().parents[2]
SECOND = 1_000_000_000


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "board")
    made = create(path, 3)
    label, ranks = made.place("bucket 2 of 5"), made.place("0, 1")
    made.write(Where.MAIN, Phase.WAITING, 17, 57, 2, 1, label, ranks)
    seen = read(path)
    assert (seen.rank, seen.exception, seen.hang) == (3, None, "")
    assert seen.main == board.Record(Phase.WAITING, 17, 57, 2, 1, "bucket 2 of 5", "0, 1")
    made.exception("ValueError: no", "train.py:88", 57)
    made.hang("rank 3 waited too long")
    seen = read(path)
    assert seen.exception is not None
    assert (seen.exception.label, seen.exception.text, seen.exception.step) == ("ValueError: no", "train.py:88", 57)
    assert seen.hang == "rank 3 waited too long"


@pytest.mark.parametrize(
    ("phase", "kwargs", "said"),
    [
        (Phase.COMPILING, {"segment": 2, "label": "Net"}, "compiling segment 2 of Net for 41 s, step 57"),
        (Phase.WAITING, {"label": "bucket 2", "text": "1, 3"}, "waiting for rank(s) 1, 3 in bucket 2 for 41 s"),
        (Phase.BACKWARD, {"segment": 4}, "in the backward, segment 4 for 41 s, step 57"),
        (Phase.USER_CODE, {}, "in the program's own code for 41 s, after step 57"),
    ],
)  # fmt: skip
def test_sentences(tmp_path: Path, phase: Phase, kwargs: dict[str, object], said: str) -> None:
    made = create(str(tmp_path / "board"), 3)
    places = {name: made.place(v) if isinstance(v, str) else v for name, v in kwargs.items()}
    made.write(Where.MAIN, phase, now_ns() - 41 * SECOND, 57, **places)  # type: ignore[arg-type]
    made.beat()
    sentence = read(str(tmp_path / "board")).sentence(now_ns())
    assert sentence.startswith("rank 3 has been ")
    assert said in sentence
    assert "no sign of life" not in sentence


def test_a_rank_that_left_a_step_and_one_without_a_beat(tmp_path: Path) -> None:
    path = str(tmp_path / "board")
    made = create(path, 1)
    made.write(Where.MAIN, Phase.USER_CODE, now_ns(), 57)
    made.exception("ZeroDivisionError: division by zero", "train.py:88", 57)
    said = read(path).sentence(now_ns() + 9 * SECOND)
    assert said.startswith("rank 1 left step 57 after an exception at train.py:88: ZeroDivisionError")
    assert "no sign of life for 9 s" in said


def test_a_dead_rank_s_board_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "board"
    code = f"""
import os, signal
from launch.board import *
made = create({str(path)!r}, 2)
made.write(Where.MAIN, Phase.FORWARD, now_ns(), 5, label=made.place("Net"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False)
    assert done.returncode == -9
    assert "in the forward in Net" in read(str(path)).sentence(now_ns())


def test_a_writer_that_stopped_half_way_is_read_all_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / "board")
    made = create(path, 0)
    made.write(Where.MAIN, Phase.BACKWARD, 5, 9)
    made.words[8] += 1
    assert read(path).main.step == 9


def test_records_are_never_torn(tmp_path: Path) -> None:
    path = str(tmp_path / "board")
    made, ending = create(path, 0), threading.Event()
    made.write(Where.MAIN, Phase.BACKWARD, 0, 0, 0, 0)

    def write() -> None:
        number = 0
        while not ending.is_set():
            number += 1
            made.write(Where.MAIN, Phase.BACKWARD, number, number, number, number)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        reader = Reader.open(path)
        for _ in range(3000):
            record = reader.snapshot().main
            assert record.since_ns == record.step == record.bucket == record.segment
    finally:
        ending.set()
        thread.join(60)


def test_texts_are_kept_once_and_never_run_out(tmp_path: Path) -> None:
    path = str(tmp_path / "board")
    made = create(path, 0)
    assert made.place("") == 0
    assert made.place("forward") == made.place("forward") == reopen(path).place("forward")
    made.exception("ValueError: no", "train.py:88", 57)
    reader = Reader.open(path)
    for number in range(6000):
        text = f"backward {number} of some length {'x' * (number % 300)}"
        made.write(Where.MAIN, Phase.WAITING, 0, label=made.place(text), text=made.place(f"{number}"))
        main = reader.snapshot().main
        assert (main.label, main.text) == (text, str(number))
    kept = reader.snapshot().exception
    assert kept is not None
    assert (kept.label, kept.text) == ("ValueError: no", "train.py:88")
    assert len(made.texts) < 4000
    assert dict(reader.all_texts()) == {place: text for text, place in made.texts.items() if text}


@pytest.mark.parametrize("content", [b"", b"x" * 100, bytes(board.SIZE)])
def test_what_is_no_board_is_a_named_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "board"
    path.write_bytes(content)
    with pytest.raises(BoardError):
        read(str(path))
