"""Running one side of a benchmark in processes of its own, and making sure that it is the side it is said to be.

In: a command and its framework. Out: the JSON line that it prints. Every benchmark process reports which framework of
which version it measured, and whether torch was loaded: ours must not have loaded it, the peer must have, in the
version that its interpreter says it has. Anything else ends the run: a number is never shown under a wrong name.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 900
OURS, PEER = "distcompile", "torch"
Result = dict[str, Any]


@dataclass(frozen=True)
class Side:
    """What to run. commands: processes started together; the JSON line comes from any of them."""

    framework: str
    commands: tuple[tuple[str, ...], ...]
    environment: tuple[tuple[str, str], ...] = field(default=())


def ours(*command: str, **environment: str) -> Side:
    return Side(OURS, (command,), tuple(environment.items()))


def peer(*command: str, **environment: str) -> Side:
    return Side(PEER, (command,), tuple(environment.items()))


def script(name: str, *arguments: str) -> list[str]:
    """A benchmark of this folder, for the command line of an interpreter."""
    return [str(HERE / name), *arguments]


def peer_version(python: str) -> str:
    """The torch that `python` imports. Raises SystemExit if it imports none, or if it is not torch."""
    code = "import torch; print(torch.__version__, torch.nn.Linear.__module__)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    version, _, module = done.stdout.strip().partition(" ")
    if done.returncode or not module.startswith("torch."):
        raise SystemExit(f"--peer-python {python} does not import torch:\n{done.stderr.strip()[-500:]}")
    return version


def check_identity(result: Result, framework: str, version: str) -> None:
    """Raises SystemExit unless `result` was measured with `framework` (of `version`, if that is given)."""
    wanted = {"framework": framework, "has_torch": "yes" if framework == PEER else "no"}
    if version:
        wanted["version"] = version
    told = {name: result.get(name) for name in wanted}
    if told != wanted:
        raise SystemExit(f"a side of this benchmark is not what it should be: wanted {wanted}, it says {told}")


def measure(side: Side, version: str) -> Result:
    """Run a side and check who it is. Raises SystemExit with the output if it fails."""
    environment = {**os.environ, **THREADS, "BENCH_FRAMEWORK": side.framework, "PYTHONPATH": str(HERE.parent)}
    environment |= dict(side.environment)
    processes = [_start(command, environment) for command in side.commands]
    outputs = []
    try:
        outputs = [process.communicate(timeout=TIMEOUT_S)[0] for process in processes]
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    said = "\n".join(outputs)
    lines = [line[line.index("{") :] for line in said.splitlines() if '{"framework"' in line or '{"model"' in line]
    if any(process.returncode for process in processes) or not lines:
        codes = [process.returncode for process in processes]
        raise SystemExit(f"{' '.join(side.commands[0])}\nfailed with exit code(s) {codes}:\n{said[-4000:]}")
    result: Result = json.loads(lines[-1])
    check_identity(result, side.framework, version if side.framework == PEER else "")
    return result


THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def _start(command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


@contextlib.contextmanager
def machine_alone(path: str) -> Iterator[None]:
    """Hold the lock of file `path` meanwhile, for machines on which several measure; "" for no lock."""
    if not path:
        yield
        return
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


PYTHON = sys.executable
