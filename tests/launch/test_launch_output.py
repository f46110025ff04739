"""The screen: prefixes, whole lines, rewritten lines."""

from __future__ import annotations

import pytest

from launch.screen.output import LineBuffer, Screen


class Recorder:
    """Collects what a Screen writes."""

    def __init__(self) -> None:
        self.written: list[tuple[int, bytes]] = []

    def __call__(self, stream: int, data: bytes) -> None:
        self.written.append((stream, data))

    def text(self, stream: int = 1) -> bytes:
        return b"".join(data for s, data in self.written if s == stream)


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b\n"], [b"ab"]),
        ([b"dos\r\n"], [b"dos"]),
        ([b"10%\r20%\r100%\n"], [b"100%"]),
        ([b"10%", b"\r20%", b"\r\n"], [b"20%"]),
        ([b"10%\r\x1b[2K20%\r\x1b[2K\n"], [b"20%"]),
        ([b"\n"], [b""]),
        ([b"caf\xc3", b"\xa9\n"], [b"caf\xc3\xa9"]),
    ],
)
def test_lines_are_cut_as_a_terminal_shows_them(chunks: list[bytes], lines: list[bytes]) -> None:
    buffer = LineBuffer()
    assert [line for chunk in chunks for line in buffer.feed(chunk)] == lines
    assert buffer.close() == []


def test_the_last_line_needs_no_newline() -> None:
    buffer = LineBuffer()
    assert buffer.feed(b"end") == []
    assert buffer.close() == [b"end"]


def test_a_progress_bar_keeps_only_what_it_shows() -> None:
    buffer = LineBuffer()
    for percent in range(1000):
        buffer.feed(b"\r%d" % percent)
    assert buffer.unfinished == b"999"


def test_lines_of_two_ranks_never_mix() -> None:
    record = Recorder()
    screen = Screen(2, record)
    screen.feed(0, 1, b"half ")
    screen.feed(1, 1, b"whole\n")
    screen.feed(0, 1, b"done\n")
    screen.feed(1, 2, b"to stderr\n")
    assert record.text() == b"[1] whole\n[0] half done\n"
    assert record.text(2) == b"[1] to stderr\n"


def test_prefixes_line_up() -> None:
    assert Screen(11, Recorder()).prefix(3) == b"[ 3] "
    assert Screen(10, Recorder()).prefix(3) == b"[3] "


def test_without_a_terminal_a_progress_bar_is_one_line() -> None:
    record = Recorder()
    screen = Screen(2, record)
    screen.feed(0, 1, b"\r10%")
    screen.feed(0, 1, b"\r90%")
    screen.feed(0, 1, b"")
    assert record.text() == b"[0] 90%\n"


def test_on_a_terminal_the_bar_stays_below_other_ranks_lines() -> None:
    record = Recorder()
    screen = Screen(2, record, terminal=True)
    screen.feed(0, 1, b"\r10%")
    screen.feed(1, 1, b"hello\n")
    screen.feed(0, 1, b"\r\x1b[2K20%")
    shown = record.text()
    assert shown == b"[0] 10%" + b"\r\x1b[2K" + b"[1] hello\n" + b"[0] 10%" + b"\r\x1b[2K" + b"[0] 20%"


def test_the_launchers_words_replace_the_bar() -> None:
    record = Recorder()
    screen = Screen(2, record, terminal=True)
    screen.feed(0, 1, b"\r10%")
    screen.message("it failed\n")
    assert record.written[-2:] == [(1, b"\r\x1b[2K"), (2, b"it failed\n")]
