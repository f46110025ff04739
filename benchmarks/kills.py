"""Kills a rank at a random moment, again and again, and counts what the launcher makes of it.

    python benchmarks/kills.py [--trials 100] [--seed 0] [--mpi both|mpich|openmpi]

Out: a line a trial, then the tally. A trial holds if the job has ended within LIMIT_S of the deed, the right rank is
named and no other, the exit code is right, and nothing is left: no process, no shared memory, no temporary file.
Drawn for each trial: MPI, 2 to 4 ranks, the victim, how it ends (SIGKILL, SIGSEGV, SIGSTOP, `os._exit` with 0 and 3,
an exception), the phase from whose beginning the moment is counted, and the moment. "start": the process is killed
from outside, as soon as it is seen.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 10.0
_GIVE_UP_S = 60.0
_CODES = {"SIGKILL": 137, "SIGSEGV": 139, "SIGSTOP": 147, "exit0": 1, "exit3": 3, "exception": 1}
_LATEST_S = {"import": 0.4, "init": 0.3, "compile": 1.0, "collective": 0.5, "output": 0.5, "finalize": 0.02}
_BLAMED = re.compile(
    r"^distcompile-run: rank (\d+)(?: \(process \d+\))? (?:was ended|left with|failed with|has been stop)"
)
_RANK_NAMES = (b"PMI_RANK=", b"OMPI_COMM_WORLD_RANK=")


@dataclass(frozen=True, slots=True)
class Trial:
    """What is done. delay_s: from the beginning of the phase."""

    mpi: str
    ranks: int
    victim: int
    how: str
    phase: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class Result:
    """What came of it. problems: empty if the trial holds. took_s: from the deed to the job's end."""

    problems: tuple[str, ...]
    took_s: float
    words: str


def draw(rng: random.Random, mpis: tuple[str, ...]) -> Trial:
    """A random trial."""
    ranks = rng.randint(2, 4)
    phase = rng.choice(["start", *_LATEST_S])
    how = "SIGKILL" if phase == "start" else rng.choice(list(_CODES))
    delay_s = rng.random() * _LATEST_S.get(phase, 0.3)
    return Trial(rng.choice(mpis), ranks, rng.randrange(ranks), how, phase, delay_s)


def run(trial: Trial, cache: Path) -> Result:
    """Start the job, see the deed done, wait for the end, and look at what is left."""
    marker = str(uuid.uuid4())
    with tempfile.TemporaryDirectory(prefix="kill-") as name:
        folder, temporary = Path(name) / "out", Path(name) / "t"
        folder.mkdir()
        temporary.mkdir()
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary), "KILLS": marker}
        environ |= {"OMP_NUM_THREADS": "1", "DISTCOMPILE_CACHE_DIR": str(cache), "DISTCOMPILE_RUN_CORES": name}
        words = [trial.how, trial.phase, f"{trial.delay_s:.4f}", str(trial.victim), str(folder)]
        options = ["-n", str(trial.ranks), "--mpi", trial.mpi, "--bind", "none", "--stop-limit", "3"]
        line = [sys.executable, "-m", "launch", *options, str(ROOT / "benchmarks" / "kills_victim.py"), *words]
        pipe = subprocess.PIPE
        job = subprocess.Popen(line, env=environ, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
        if trial.phase == "start":
            kill_from_outside(trial, marker, folder)
        try:
            _, err = job.communicate(timeout=_GIVE_UP_S)
        except subprocess.TimeoutExpired:
            job.kill()
            _, err = job.communicate()
        ended = time.monotonic()
        return judge(trial, job.returncode, err, ended, folder, temporary, marker)


def kill_from_outside(trial: Trial, marker: str, folder: Path) -> None:
    """SIGKILL the victim's process, the deepest there is `delay_s` after one was seen."""
    deadline = time.monotonic() + _GIVE_UP_S
    while not ranks_processes(trial.victim, marker) and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(trial.delay_s)
    found = ranks_processes(trial.victim, marker)
    (folder / "done").write_text(str(time.monotonic()))
    if found:
        os.kill(max(found), signal.SIGKILL)


def ranks_processes(rank: int, marker: str) -> list[int]:
    """Python processes of the job that were told that they are `rank`."""
    found = []
    for pid in processes_with(marker):
        try:
            entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(entry.startswith(_RANK_NAMES) and entry.endswith(b"=%d" % rank) for entry in entries):
            found.append(pid)
    return found


def processes_with(marker: str) -> list[int]:
    """Processes, zombies left out, with the marker in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            zombie = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if not zombie and marker.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def judge(trial: Trial, code: int, words: str, ended: float, folder: Path, temporary: Path, marker: str) -> Result:
    """Everything that must hold."""
    deed = folder / "done"
    took_s = ended - float(deed.read_text()) if deed.exists() and deed.read_text() else float("nan")
    names = {name for path in folder.glob("shm-*") for name in path.read_text().splitlines()}
    blamed = [int(match[1]) for line in words.splitlines() if (match := _BLAMED.match(line))]
    # before all have said hello, mpiexec ends others in the same moment: the victim is named, but may not be the first
    told_among = trial.phase == "start" and f"rank {trial.victim} was ended by SIGKILL before" in words
    checks = {
        "the deed was not done": took_s == took_s,
        f"ended {took_s:.1f} s after the deed": not took_s > LIMIT_S,
        f"exit code {code}, not {_CODES[trial.how]}": code == _CODES[trial.how],
        f"blamed {blamed}, not [{trial.victim}]": blamed == [trial.victim] or told_among,
        f"processes left: {processes_with(marker)}": not processes_with(marker),
        "shared memory left": not any(Path(name).exists() for name in names),
        f"files left: {[p.name for p in temporary.iterdir()]}": not list(temporary.iterdir()),
    }
    return Result(tuple(text for text, holds in checks.items() if not holds), took_s, words)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mpi", choices=("both", "mpich", "openmpi"), default="both")
    options = parser.parse_args()
    mpis = ("mpich", "openmpi") if options.mpi == "both" else (options.mpi,)
    rng = random.Random(options.seed)
    held, tried, took_s = Counter[str](), Counter[str](), list[float]()
    with tempfile.TemporaryDirectory(prefix="kills-cache-") as cache:
        for number in range(options.trials):
            trial = draw(rng, mpis)
            result = run(trial, Path(cache) / str(number))
            for key in ("all", trial.mpi, trial.how, f"in {trial.phase}", f"{trial.ranks} ranks"):
                tried[key] += 1
                held[key] += not result.problems
            took_s.append(result.took_s)
            print(f"{number:3d} {trial}: {'; '.join(result.problems) or f'held, {result.took_s:.1f} s'}", flush=True)
            if result.problems:
                print(result.words)
    print("\n".join(f"{key:>14}: {held[key]} of {tried[key]}" for key in tried))
    print(f"seconds from the deed to the end: median {sorted(took_s)[len(took_s) // 2]:.1f}, most {max(took_s):.1f}")
    return 0 if held["all"] == tried["all"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
