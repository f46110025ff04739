"""Faults of every stage of the compiler, and the programs that meet them: does the script that comes of each name the
stage, and does it fail?

In: a copy of the tree (run.py). Out: `try_stage`: what DISTCOMPILE_REPRO wrote of a fault planted there. A fault that
raises is planted for DISTCOMPILE_REPRO=error, one that computes something else for accuracy.
`python tests/planted/stages.py [WORD ...]` prints the table.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for where this file is the program
from tests.planted.faults import Fault
from tests.planted.run import ROOT, copied, planted

PROGRAM = Path(__file__).with_name("stage_programs.py")
LIMIT_S = 280


@dataclass(frozen=True, slots=True)
class Staged:
    """A fault; stage: what must be named, as the key of a fault begins. program: which meets it."""

    name: str
    stage: str
    program: str
    old: str
    new: str

    @property
    def mode(self) -> str:
        return self.stage.partition(" ")[0]


@dataclass(frozen=True, slots=True)
class Told:
    """What came of one. key: of the fault that the script expects. lines: of the script. alike: whether it failed so in
    a process of its own; code: how it ends when it is run once more."""

    fault: Staged
    key: str
    op: str
    lines: int
    alike: bool
    code: int
    seconds: float
    said: str

    @property
    def is_right(self) -> bool:
        return self.key.startswith(self.fault.stage)

    def __str__(self) -> str:
        verdict = ("" if self.is_right else "OTHER STAGE ") + ("" if self.fails else "DOES NOT FAIL")
        cells = f"{self.fault.name:58}  {self.key:40}  {self.op:8}  {self.lines:5}  {self.seconds:4.0f}  {verdict}"
        return cells.rstrip()

    @property
    def fails(self) -> bool:
        """Whether its script failed in a process of its own, and does when it is run again."""
        return self.alike and self.code == 1


def raising(stage: str, function: str, program: str = "mlp") -> Staged:
    """A fault that raises at the beginning of a function of the stage, which ends its head with this line."""
    indent = function[: len(function) - len(function.lstrip())] + "    "
    return Staged(
        f"a raise in {stage}",
        f"error in {stage}",
        program,
        function + "\n",
        f"{function}\n{indent}raise KeyError('planted')\n",
    )


WRONG = (
    Staged(
        "a sign is lost when the larger is subtracted",
        "accuracy in simplify",
        "signs",
        'return rewriter.call("sub", right, left.operands[0]) if _is(left, "neg") else None',
        'return rewriter.call("sub", left.operands[0], right) if _is(left, "neg") else None',
    ),
    Staged(
        "factors are joined whatever the dtype holds",
        "accuracy in simplify",
        "tiny",
        "return a * b if in_range and all(is_normal(dtype, number) for number in (a, b, a * b)) else None",
        "return a * b",
    ),
    Staged(
        "tanh's rule forgets a factor",
        "accuracy in rule",
        "mlp",
        "lambda g, out, x: (_times(g, _one_minus(prims.mul(out, out))),)",
        "lambda g, out, x: (_times(g, _one_minus(out)),)",
    ),
    Staged(
        "of several contributions to a gradient the last is kept",
        "accuracy in joint",
        "mlp",
        "self.table[node] = prims.add(before, value)",
        "self.table[node] = value",
    ),
    Staged(
        "a saved value is thought to stand behind the results",
        "accuracy in partition",
        "chain",
        "return Partition(forward, backward, tuple(outputs.index(node) for node in values))",
        "return Partition(forward, backward, tuple(sorted(outputs.index(node) for node in values)))",
    ),
    Staged(
        "the backward's cut hands gradients over in another order",
        "accuracy in plan",
        "mlp",
        "return (Segment(backward, tuple(range(len(backward.outputs)))),)\n\n    def on_forward",
        "return (Segment(backward, tuple(range(len(backward.outputs)))[::-1]),)\n\n    def on_forward",
    ),
    Staged(
        "what is flipped stays",
        "accuracy in define",
        "turned",
        "return tuple(n - 1 - i if d in dims else i for d, (i, n) in enumerate(zip(index, in_shape)))",
        "return index",
    ),
    Staged(
        "a product takes its reader's factor twice",
        "accuracy in place",
        "scaled",
        "return joint_factor(scaled.dtype.real, gemm.alpha, scaled.alpha)",
        "return joint_factor(scaled.dtype.real, scaled.alpha, scaled.alpha)",
    ),
    Staged(
        "a masked product is computed one column short",
        "accuracy in triangle",
        "causal",
        "(0, gemm.k, min(gemm.n, max(r1 + needed, 1)))",
        "(0, gemm.k, min(gemm.n, max(r1 + needed - 1, 1)))",
    ),
    Staged(
        "a reader of other elements is fused",
        "accuracy in schedule, fusion",
        "turned",
        "same = read.cols is None and available == level",
        "same = available == level",
    ),
    Staged(
        "temps that meet in one step share memory",
        "accuracy in schedule, memory",
        "mlp",
        "for node in self._union(life.first, life.last):",
        "for node in self._union(life.first, life.last - 1):",
    ),
    Staged(
        "arena offsets are all 0",
        "accuracy in schedule, memory",
        "mlp",
        "offsets[life.name] = begin + skew",
        "offsets[life.name] = 0",
    ),
    Staged(
        "an operand that is still needed is written over",
        "accuracy in schedule, memory",
        "mlp",
        "return result.first == step == operand.last",
        "return result.first == step <= operand.last",
    ),
    Staged(
        "C++'s tanh is its sine",
        "accuracy in emit",
        "mlp",
        '"tanh": _libm("tanh"),\n    "sqrt": _builtin("sqrt"),',
        '"tanh": _libm("sin"),\n    "sqrt": _builtin("sqrt"),',
    ),
    Staged(
        "C++'s absolute value keeps signs",
        "accuracy in emit",
        "compare",
        'return f"__builtin_fabs{a.suffix}({a.texts[0]})"',
        "return a.texts[0]",
    ),
)
RAISED = (
    raising("simplify", "def call_key(call: Call) -> tuple[Any, ...]:"),
    raising("joint", "def differentiable_nodes(forward: Graph, wanted: Sequence[bool]) -> set[Node]:"),
    raising("partition", "def partition(joint: Joint, memory_budget: float = 1.0) -> Partition:"),
    raising("plan", "def pieces_to_run(joint: Joint, parts: Partition, plan: GradientPlan) -> list[Piece]:"),
    Staged(
        "a raise in expand",
        "error in expand",
        "mlp",
        "        while any(isinstance(call.op.lower, Expansion | Composed) for call",
        "        raise KeyError('planted')\n        while any(isinstance(call.op.lower, Expansion | Composed) for call",
    ),
    raising("define", "def define(graph: Graph, halves: frozenset[DType] = frozenset()) -> d.Defined:"),
    raising("inline", "def inline_reordered(defined: d.Defined, target: Target = CPU) -> d.Defined:"),
    raising("place", "def place_products(defined: d.Defined, *, widens: bool = True) -> d.Defined:"),
    raising("triangle", "def skip_masked_blocks(defined: d.Defined) -> d.Defined:"),
    raising("schedule", "def plan_memory(lives: Sequence[Life]) -> tuple[dict[str, int], int]:"),
    Staged(
        "a raise in emit",
        "error in emit",
        "mlp",
        "        a.used.libm.add(name + a.suffix)",
        "        raise KeyError('planted')",
    ),
    Staged(
        "a raise in the running of native code",
        "error in run",
        "mlp",
        "        results = self._destinations(outs)\n        if len(inputs)",
        "        raise KeyError('planted')\n        if len(inputs)",
    ),
    Staged(
        "C++ that is none",
        "error in build",
        "mlp",
        '"tanh": _libm("tanh"),\n    "sqrt": _builtin("sqrt"),',
        '"tanh": lambda a: f"nosuch{a.suffix}({a.texts[0]})",\n    "sqrt": _builtin("sqrt"),',
    ),
)
STAGED = (*WRONG, *RAISED)


def try_stage(fault: Staged, tree: Path) -> Told:
    """Plant `fault` in `tree`, a copy, run its program, read what was written, and run that once more."""
    folder = tree.parent / "repro" / re.sub(r"\W+", "_", fault.name)
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "XDG_CACHE_HOME": str(tree.parent / "cache"),
        "PYTHONPYCACHEPREFIX": str(tree.parent / "bytecode"),
        "DISTCOMPILE_REPRO": fault.mode,
        "DISTCOMPILE_REPRO_DIR": str(folder),
    }

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *words]
        return subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )

    began_s = time.monotonic()
    with planted(Fault(fault.name, fault.stage, fault.old, fault.new, ()), tree):
        done = run(str(PROGRAM), fault.program)
        seconds = time.monotonic() - began_s
        said = done.stdout + done.stderr
        scripts = sorted(folder.rglob("*.py"))
        if not scripts:
            return Told(fault, "NO SCRIPT", "", 0, False, 0, seconds, said)
        text = scripts[0].read_text()
        again = run(str(scripts[0]))
    key = re.search(r"expected='(.*)'\)", text)
    op = re.search(r"^# op (\w+)", text, re.MULTILINE)
    return Told(
        fault,
        key[1] if key else "",
        op[1] if op else "",
        len(text.splitlines()),
        f"{scripts[0]} fails alike" in " ".join(said.split()),
        again.returncode,
        seconds,
        f"{said}\n{text}\n{again.stdout}{again.stderr}",
    )


def main(words: list[str]) -> int:
    """The table; 1 if fewer than nine tenths are right, or a script does not fail."""
    told = []
    print(f"{'fault':58}  {'the script expects':40}  {'op':8}  lines     s")
    with copied(ROOT) as tree:
        for fault in STAGED:
            if not words or any(word in fault.name for word in words):
                told.append(try_stage(fault, tree))
                print(told[-1], flush=True)
                if words:
                    print(told[-1].said)
    right, failing = sum(one.is_right for one in told), sum(one.fails for one in told)
    print(f"of {len(told)} faults {right} lead to their stage, {failing} to a script that fails")
    return 0 if 10 * right >= 9 * len(told) and failing == len(told) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
