"""Starts real jobs for the launcher's tests: `start` and `run` wrap `python -m launch`; every wait has a timeout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120
_CORES = tempfile.TemporaryDirectory(prefix="cores-")  # jobs of other tests do not count


def environment(**changes: str) -> dict[str, str]:
    """Ours, with the repository importable and without thread counts, which a test sets itself."""
    kept = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    kept.setdefault("DISTCOMPILE_RUN_CORES", _CORES.name)
    return {**kept, "PYTHONPATH": str(ROOT), **changes}


def start(*arguments: str, **changes: str) -> subprocess.Popen[str]:
    """A running job, with pipes."""
    command = [sys.executable, "-m", "launch", *arguments]
    pipe = subprocess.PIPE
    heard = partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)  # also where the tests run under nohup
    return subprocess.Popen(
        command, env=environment(**changes), stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, text=True,
        preexec_fn=heard,  # noqa: PLW1509
    )  # fmt: skip


def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """A finished job."""
    process = start(*arguments, **changes)
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def program(folder: Path, text: str, name: str = "program.py") -> str:
    """A script with `text`."""
    path = folder / name
    path.write_text(text)
    return str(path)


def wait_until(condition: Callable[[], bool], within_s: float = 60.0) -> None:
    """Poll until `condition` holds; an assertion error if it never does."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def processes_with(marker: str) -> list[int]:
    """Process ids whose environment holds `marker`: finds whatever a job left behind, however detached."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            holds = marker.encode() in (folder / "environ").read_bytes()
            zombie = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if holds and not zombie:
            found.append(int(folder.name))
    return found


NAMES_MAPPED = """
def note_shared_memory(path):
    "Write the names in /dev/shm that this process has mapped."
    names = {line.partition("/")[2] for line in open("/proc/self/maps").read().splitlines() if "/dev/shm/" in line}
    open(path, "w").write("\\n".join("/" + name for name in names if "(deleted)" not in name))
"""


def left_in_shared_memory(folder: Path) -> list[str]:
    """What ranks that called `note_shared_memory` on files `shm*` of `folder` have left behind."""
    names = {name for file in folder.glob("shm*") for name in file.read_text().splitlines()}
    assert names, "MPI has no shared memory of a name here: look for another sign"
    return [name for name in names if Path(name).exists()]
