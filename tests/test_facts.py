"""What an op, a reduction or a device knows stands on it: elsewhere nobody asks for its name.

A test of a name: a comparison of `op.name`, of the kind of an accumulator, or with a string "cpu" or "cuda", beyond the
rooms that say what these are. Those that remain are counted by folder, with why; a count may only become smaller.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from import_graph import ROOT, sources, tree

ROOMS = {
    "op": ("compiler_core/ops/",),
    "kind": ("compiler_core/ops/", "compiler_core/loop_ir/ir.py"),
    "device": ("compiler_core/device.py", "compiler_core/cuda.py", "compiler_core/tensor/memory/", "launch/"),
}
KINDS = {"sum", "prod", "max", "min", "argmax", "argmin", "argmax_nan", "expsum"}
SHAPES = "a list of ops that only bring operands to one shape: not a fact of the op yet"
DETACH = "whether gradients end here: not a fact of the op yet"
USER = "a name that the user gives"
PATTERN = "a rewrite says which ops it looks for"
# (what is asked, folder) -> (how many, why they stay)
REMAINDER: dict[tuple[str, str], tuple[int, str]] = {
    ("device", "compiler_core/aot"): (1, "a place is a text there"),
    ("device", "compiler_core/capture"): (6, "a graph's device is a text there"),
    ("device", "compiler_core/capture/guards"): (1, "not asked of the device yet"),
    ("device", "compiler_core/graph"): (1, "where the fact stands: Graph.on_gpu"),
    ("device", "compiler_core/tensor/making"): (1, USER),
    ("device", "distcompile/amp"): (2, USER),
    ("device", "distcompile/as_torch/stand_ins"): (1, USER),
    ("device", "distcompile/autograd"): (1, USER),
    ("device", "distcompile/cuda"): (1, USER),
    ("device", "distcompile/library"): (1, USER),
    ("device", "distcompile/nn/parallel"): (1, USER),
    ("device", "distcompile/torch_format"): (3, "names in a file that is read"),
    ("kind", "compiler_core/codegen/cpp"): (1, "sums of f32 alone are taken in blocks"),
    ("kind", "compiler_core/codegen/triton"): (4, "a softmax's maximum and sum stand side by side"),
    ("kind", "compiler_core/loop_ir"): (2, "an interpreter says what each kind does"),
    ("kind", "compiler_core/schedule"): (2, PATTERN),
    ("op", "compiler_core/aot"): (7, "costs of cast, zeros of full and cat: not facts of the op yet"),
    ("op", "compiler_core/capture"): (1, SHAPES),
    ("op", "compiler_core/capture/numbers"): (1, SHAPES),
    ("op", "compiler_core/capture/recipes"): (1, DETACH),
    ("op", "compiler_core/codegen"): (3, "how an index that failed was made"),
    ("op", "compiler_core/codegen/cuda"): (1, "the key of a table of calls"),
    ("op", "compiler_core/eager/device"): (1, "a kernel is chosen by the op it computes"),
    ("op", "compiler_core/forward"): (1, DETACH),
    ("op", "compiler_core/graph/passes"): (61, PATTERN),
    ("op", "compiler_core/lowering"): (3, "large concatenations and permuted operands are laid out apart"),
    ("op", "compiler_core/numpy_trace"): (1, "the value of a constant"),
    ("op", "compiler_core/sparse"): (6, "a table of what sparse tensors do"),
    ("op", "compiler_core/tensor"): (1, DETACH),
    ("op", "compiler_core/tensor/methods"): (1, "a conjugate is told by name"),
    ("op", "distcompile/torch_format"): (1, "a conjugate is told by name"),
    ("op", "distcompile/utils"): (5, "torch's names of what is counted"),
}


def questions(path: Path) -> Iterator[str]:
    """What each comparison in a file asks: op, kind or device."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            said = {n.value for s in sides for n in ast.walk(s) if isinstance(n, ast.Constant)}
            asked = [ast.unparse(side) for side in sides]
            if any(text == "op.name" or text.endswith(".op.name") for text in asked):
                yield "op"
            elif said & KINDS and any(text == "kind" or text.endswith(".kind") for text in asked):
                yield "kind"
            elif said & {"cpu", "cuda"}:
                yield "device"


def folder(path: Path) -> str:
    return "/".join(path.relative_to(ROOT).parts[:-1][:3])


def test_names_of_ops_and_devices_are_asked_for_in_their_rooms() -> None:
    found = Counter(
        (what, folder(path))
        for path in sources()
        for what in questions(path)
        if not str(path.relative_to(ROOT)).startswith(ROOMS[what])
    )
    allowed = {place: count for place, (count, _) in REMAINDER.items()}
    assert found == allowed


def test_a_test_of_a_name_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "asks.py"
    path.write_text(
        "a = node.op.name == 'cat'\nb = op.name in MOVES\nc = acc.kind in ('sum', 'max')\nd = 'cuda' != place.type\n"
        "e = name == 'cat'\nf = loop.kind == 'vector'\n"
    )
    assert list(questions(path)) == ["op", "op", "kind", "device"]
