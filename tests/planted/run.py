"""Plants faults in a copy of the tree, one at a time, and tells which tests of plain `pytest` find each.

    python tests/planted/run.py [--tree FOLDER] [--all] [WORD ...]

WORD: only faults in whose name it stands. --tree: another checkout whose tests are tried. --all: all files named for a
fault, not only until one finds it. In: `faults.py`. Out: a row a fault; exit code 1 if one is not found.
A file of tests finds a fault if it fails; that it passes without is for `pytest` to say.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGES = ("collectives", "compiler_core", "distcompile", "launch")
SUFFIXES = (".py", ".h", ".cpp")
LIMIT_S = 280

sys.path.insert(0, str(ROOT))  # for where this file is the program
from tests.planted.faults import FAULTS, Fault  # noqa: E402


@dataclass(frozen=True, slots=True)
class Outcome:
    """by: the files that found the fault. tried_s: seconds by file tried."""

    fault: Fault
    by: tuple[str, ...]
    tried_s: dict[str, float]
    said: str

    def __str__(self) -> str:
        by, seconds = ", ".join(self.by) or "NOT FOUND", sum(self.tried_s.values())
        return row(self.fault.stage, self.fault.name, by, f"{seconds:.0f}")


def row(stage: str, name: str, by: str, seconds: str) -> str:
    """A line of the table."""
    return f"{stage:19}  {name:72}  {by:34}  {seconds:>4}"


def place_of(text: str, tree: Path) -> Path:
    """The file of the sources in which `text` stands. Raises LookupError unless it stands once, in one."""
    files = [p for package in PACKAGES for p in (tree / package).rglob("*") if p.suffix in SUFFIXES]
    found = [path for path in files for _ in range(path.read_text().count(text))]
    if len(found) != 1:
        raise LookupError(f"stands {len(found)} times in the sources, not once: {text}")
    return found[0]


@contextmanager
def copied(tree: Path) -> Iterator[Path]:
    """A copy of a checkout, with a cache of its own."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(tree, copy, ignore=shutil.ignore_patterns(".git", "__pycache__", ".*_cache", "shared"))
        yield copy


@contextmanager
def planted(fault: Fault, tree: Path) -> Iterator[None]:
    """`fault` in the files of `tree`, for a while."""
    path = place_of(fault.old, tree)
    before = path.read_text()
    path.write_text(before.replace(fault.old, fault.new))
    try:
        yield
    finally:
        path.write_text(before)


def try_to_find(fault: Fault, tree: Path, *, until_found: bool = True) -> Outcome:
    """Run the tests named for `fault` in `tree`, a copy."""
    by: list[str] = []
    tried_s: dict[str, float] = {}
    said = ""
    with planted(fault, tree):
        for named in fault.found_by:
            if by and until_found:
                break
            began_s = time.monotonic()
            done = run_tests(named, tree)
            tried_s[named] = time.monotonic() - began_s
            said = done.stdout[-3000:]
            if done.returncode == 1:  # pytest's: tests ran, and some failed
                by.append(named)
            elif done.returncode != 0:
                raise RuntimeError(f"{named}: pytest's exit code {done.returncode}\n{said}\n{done.stderr[-3000:]}")
    return Outcome(fault, tuple(by), tried_s, said)


def run_tests(named: str, tree: Path) -> subprocess.CompletedProcess[str]:
    """What plain `pytest` runs of `FILE` or `FILE:WHICH` in `tree`, by its sources, up to the first that fails."""
    name, _, which = named.partition(":")
    (path,) = (tree / "tests").rglob(name)
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "XDG_CACHE_HOME": str(tree.parent / "cache"),
        "PYTHONPYCACHEPREFIX": str(tree.parent / "bytecode"),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-x", "--thin", str(path.relative_to(tree))]
    return subprocess.run(
        [*command, "-k", which] if which else command,
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args(words)
    wanted = [f for f in FAULTS if not options.words or any(word in f.name for word in options.words)]
    outcomes = []
    print(row("stage", "fault", "found by", "s"), flush=True)
    with copied(options.tree.resolve()) as tree:
        for fault in wanted:
            outcomes.append(try_to_find(fault, tree, until_found=not options.all))
            print(outcomes[-1], flush=True)
    found = sum(bool(outcome.by) for outcome in outcomes)
    print(f"{found} of {len(outcomes)} found")
    return 0 if found == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
