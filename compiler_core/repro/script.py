"""A fault as a script that somebody else can run: at most 30 lines, run once in a process of its own before it is told.

In: a `Case` and its `Fault`. Out: `write`: a `Script` in a folder. A graph that is too long stands in a file beside
it. `main` is what the script calls: it looks for the fault, says what it found, and ends with 1 if that is the one
expected, with 0 if the case is right, with 3 if it fails in another way.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from compiler_core.graph.ir import Constant
from compiler_core.graph.print import print_graph
from compiler_core.records import dataclass
from compiler_core.repro.case import Case, Fault
from compiler_core.repro.ladder import find

LINES, LIMIT_S = 30, 300.0
ALIKE, RIGHT, OTHERWISE = 1, 0, 3
_OURS = ("DISTCOMPILE_REPRO", "TORCHDYNAMO_REPRO", "DISTCOMPILE_DUMP", "DISTCOMPILE_LOGS", "DISTCOMPILE_DEBUG")


@dataclass(frozen=True, slots=True)
class Script:
    """path: of the script. failed_alike: whether it did, in a fresh process; said: what that printed."""

    path: Path
    fault: Fault
    failed_alike: bool
    said: str

    def __str__(self) -> str:
        if self.failed_alike:
            return f"{self.path} fails alike: {self.fault}"
        return f"{self.path} does not fail alike in a process of its own, {self.fault} here"


def main(case: Case, expected: str) -> NoReturn:
    """Look for a fault, say what was found, and end: see the head of this file. expected: a fault's key."""
    found = find(case)
    print(f"expected: {expected}\nfound:    {found or 'nothing: every stage gives what the one before it gives'}")
    if found is not None:
        print(found.text)
    raise SystemExit(RIGHT if found is None else ALIKE if found.key == expected else OTHERWISE)


def write(case: Case, fault: Fault, folder: Path, name: str = "repro", *, runs: bool = True) -> Script:
    """Write the script, and run it. runs: False: write it alone, for a process that may not live on."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(_text(case, fault, folder, name))
    if not runs:
        return Script(path, fault, False, "")
    code, said = run(path)
    return Script(path, fault, code == ALIKE, said)


def run(path: Path) -> tuple[int, str]:
    """The exit code of a script in a fresh process, and what it printed."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(_OURS)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    environment["DISTCOMPILE_TRACEBACK"] = "full"
    try:
        done = subprocess.run(
            [sys.executable, str(path)], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return OTHERWISE, f"it did not end within {LIMIT_S:.0f} s"
    return done.returncode, done.stdout + done.stderr


def _text(case: Case, fault: Fault, folder: Path, name: str) -> str:
    graph = print_graph(case.graph, locations=True)
    long = [node.name for node in case.graph.nodes if isinstance(node, Constant) and node.array.size > 16]
    backend = case.backend if isinstance(case.backend, str) else "codegen"
    given = f"results={case.results}, backend={backend!r}, seed={case.seed}"
    given += "" if case.memory_budget == 1 else f", memory_budget={case.memory_budget}"
    wanted = " ".join(node.name for node in case.graph.inputs if node.name in case.wanted)

    def lines(source: str, imports: str = "") -> str:
        notes = [f"# op {fault.op}{f', {fault.where}' if fault.where else ''}"] if fault.op else []
        notes += [f"# long constants: {', '.join(long)}"] if long else []
        return "\n".join([
            f'"""{_one_line(fault.key)}. Ends with 1 while it fails so, with 0 once it is right."""',
            *notes, *([imports] if imports else []),
            "from compiler_core.repro.case import Case", "from compiler_core.repro.script import main", "",
            source, f"case = Case.read(GRAPH, {wanted!r}, {given})", f"main(case, expected={fault.key!r})", "",
        ])  # fmt: skip

    whole = lines(f'GRAPH = """\n{graph}"""')
    if whole.count("\n") <= LINES:
        return whole
    (folder / f"{name}_graph.txt").write_text(graph)
    return lines(f'GRAPH = (Path(__file__).parent / "{name}_graph.txt").read_text()', "from pathlib import Path")


def _one_line(text: str) -> str:
    return " ".join(text.replace('"', "'").replace("\\", "/").split())
