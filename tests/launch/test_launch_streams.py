"""stdin, stdout that does not block, very long lines, and log files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest
from launch_jobs import TIMEOUT_S, environment, processes_with, program, run

from launch.screen.output import LineBuffer

LONG = 30_000_000
READS = "import os, sys\nprint(repr(sys.stdin.read()))\n"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "launch", "--bind", "none", *arguments]


def test_rank_0_reads_our_stdin_and_others_read_nothing(tmp_path: Path) -> None:
    line = command("-n", "3", program(tmp_path, READS))
    done = subprocess.run(
        line, env=environment(), input="some text", capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    assert sorted(done.stdout.splitlines()) == ["[0] 'some text'", "[1] ''", "[2] ''"]


def test_one_rank_reads_our_stdin(tmp_path: Path) -> None:
    line = command(program(tmp_path, READS))
    done = subprocess.run(
        line, env=environment(), input="text", capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    assert done.stdout == "'text'\n"


@pytest.mark.parametrize("options", [("-n", "2"), ("-n", "2", "--no-prefix"), ("-n", "1")])
def test_a_stdout_that_does_not_block_loses_nothing(tmp_path: Path, options: tuple[str, ...]) -> None:
    text = "for i in range(3000):\n    print(i, 'x' * 500, flush=True)\n"
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    job = subprocess.Popen(command(*options, program(tmp_path, text)), env=environment(), stdout=theirs)
    os.close(theirs)
    got = bytearray()

    def read() -> None:
        time.sleep(0.5)  # until the pipe is full
        while data := os.read(ours, 1 << 16):
            got.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    assert job.wait(timeout=TIMEOUT_S) == 0
    reader.join(timeout=TIMEOUT_S)
    os.close(ours)
    assert got.count(b"x" * 500 + b"\n") == 3000 * int(options[1])


def test_a_deadline_counts_while_nobody_reads_our_output(tmp_path: Path) -> None:
    text = "while True:\n    print('x' * 1000)\n"
    ours, theirs = os.pipe()
    job = subprocess.Popen(
        command("-n", "2", "--timeout", "3", program(tmp_path, text)), env=environment(), stdout=theirs, stderr=-3
    )
    os.close(theirs)
    time.sleep(6)
    with os.fdopen(ours, "rb") as stream:
        stream.read()
    assert job.wait(timeout=TIMEOUT_S) == 124


def test_a_very_long_line_is_looked_at_once() -> None:
    buffer = LineBuffer()
    begun = time.process_time()
    for _ in range(LONG // 65536):
        assert buffer.feed(b"x" * 65536) == []
    lines = buffer.feed(b"\n")
    assert len(lines[0]) == LONG // 65536 * 65536
    assert time.process_time() - begun < 5, "quadratic: it took 15 s"


@pytest.mark.long
def test_two_very_long_lines_arrive(tmp_path: Path) -> None:
    script = program(tmp_path, f"import sys\nsys.stdout.write('x' * {LONG} + '\\n')\n")
    done = run("-n", "2", "--bind", "none", script)
    assert sorted(map(len, done.stdout.splitlines())) == [LONG + 4, LONG + 4]


def test_progress_that_always_ends_with_a_return_does_not_grow() -> None:
    buffer = LineBuffer()
    for percent in range(10_000):
        buffer.feed(b"%d%%\r" % percent)
    assert buffer.unfinished == b"9999%\r"


SPEAKS = """
import os, sys
rank = os.environ["RANK"]
print("out", rank, flush=True)
print("err", rank, file=sys.stderr, flush=True)
if rank == "1":
    os.kill(os.getpid(), 9)
import time
time.sleep(100)
"""


def logs(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.log"))}


def test_log_files_hold_what_a_dead_rank_wrote(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    done = run("-n", "2", "--bind", "none", "--log-dir", str(folder), "--rdzv-id", "job7", program(tmp_path, SPEAKS))
    assert done.returncode == 137
    each = {"stderr.log": "err", "stdout.log": "out"}
    expected = {f"job7/attempt_0/{r}/{name}": f"{word} {r}\n" for r in range(2) for name, word in each.items()}
    assert logs(folder) == expected
    assert "[1] out 1" in done.stdout, "--log-dir alone is a tee"


def test_redirected_streams_are_not_shown(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    line = ["-n", "2", "--bind", "none", "--log-dir", str(folder), "-r", "0:1,1:3", program(tmp_path, SPEAKS)]
    done = run(*line)
    assert set(logs(folder)) == {f"none/attempt_0/{name}" for name in ("0/stdout.log", "1/stderr.log", "1/stdout.log")}
    assert done.stdout == ""
    assert "[0] err 0" in done.stderr
    assert "err 1" not in done.stderr


def test_log_files_that_cannot_be_written_end_the_job_by_name(tmp_path: Path) -> None:
    marker = str(uuid.uuid4())
    script = program(tmp_path, "import time\nprint('x' * 1000, flush=True)\ntime.sleep(100)\n")
    nowhere = run("-n", "2", "--bind", "none", "--log-dir", "/proc/nowhere", script, DCTEST=marker)
    assert nowhere.returncode == 2
    assert "LogFileError: rank" in nowhere.stderr
    assert "what to do" in nowhere.stderr
    full = tmp_path / "logs" / "none" / "attempt_0" / "0"
    full.mkdir(parents=True)
    (full / "stdout.log").symlink_to("/dev/full")
    done = run("-n", "1", "--bind", "none", "--log-dir", str(tmp_path / "logs"), script, DCTEST=marker)
    assert done.returncode == 2
    assert "LogFileError: rank 0" in done.stderr
    assert "No space left" in done.stderr
    assert processes_with(marker) == []


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_many_ranks_need_many_files_and_programs_keep_their_own_limit(tmp_path: Path) -> None:
    script = program(tmp_path, "import resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n")
    line = f"ulimit -Sn 64; exec {sys.executable} -m launch -n 24 --bind none {script}"
    done = subprocess.run(
        ["bash", "-c", line], env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [text.split()[-1] for text in done.stdout.splitlines()] == ["64"] * 24
