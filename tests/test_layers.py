"""The walls: who may import whom, what `import distcompile` may load, and how long a file may be.

Read from the sources by `ast`, so that imports inside functions count too; imports for type checkers only do not.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("distcompile", "compiler_core", "collectives", "launch")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py"))
OTHERS = sorted(path for folder in ("benchmarks", "docs", "examples") for path in (ROOT / folder).rglob("*.py"))

# folder -> the folders of ours it may import; the longest folder that matches a file counts
ALLOWED: dict[str, set[str]] = {
    "distcompile": {"distcompile", "compiler_core", "collectives"},
    "compiler_core": {"compiler_core"},
    "collectives": {"collectives"},
    "launch": {"launch"},
}
ENTRIES = {"distcompile/run.py": {"launch"}}  # what starts a command may import whom it starts
# folder -> the stages after it in the pipeline, which it must not know
LATER: dict[str, set[str]] = {
    "compiler_core/ops": {
        "eager",
        "graph",
        "tensor",
        "capture",
        "aot",
        "lowering",
        "loop_ir",
        "schedule",
        "codegen",
        "runtime",
    },
    "compiler_core/tensor": {"eager", "capture", "lowering", "loop_ir", "schedule", "codegen", "runtime"},
    "compiler_core/eager": {"graph", "tensor", "capture", "aot", "loop_ir", "lowering", "schedule"},
    "compiler_core/graph": {"capture", "aot", "lowering", "loop_ir", "schedule", "codegen", "runtime"},
    "compiler_core/symbolic": {"graph", "tensor", "capture", "aot", "lowering", "schedule", "codegen", "runtime"},
    "compiler_core/loop_ir": {"tensor", "capture", "aot", "lowering", "schedule", "codegen", "runtime"},
    "compiler_core/lowering": {"tensor", "capture", "aot", "codegen", "runtime"},
    "compiler_core/schedule": {"tensor", "capture", "aot", "codegen", "runtime"},
    "compiler_core/runtime": {"tensor", "capture", "aot"},
}
NOT_AT_IMPORT = {"sympy", "networkx", "mpi4py", "triton", "rich", "safetensors", "torch", "scipy"}
MAX_LINES = 500
MAX_IN_FUNCTION = 40  # from `def` to the end, less the docstring
# functions that are longer, and why; none is added, and one that has become shorter leaves
LONG_FUNCTIONS = {
    "compiler_core/aot/wrapper.py:run": "once a backward, step by step: each further call would be paid every time",
    "compiler_core/codegen/triton/kernels/attention.py:attention_forward": "Triton: one kernel is one function",
    "compiler_core/codegen/triton/kernels/attention.py:attention_keys": "Triton: one kernel is one function",
    "compiler_core/codegen/triton/kernels/attention.py:attention_queries": "Triton: one kernel is one function",
    "compiler_core/codegen/triton/kernels/convolution.py:convolution_forward": "Triton: one kernel is one function",
    "compiler_core/codegen/triton/kernels/convolution.py:convolution_input": "Triton: one kernel is one function",
    "compiler_core/codegen/triton/kernels/convolution.py:convolution_weight": "Triton: one kernel is one function",
    "compiler_core/tensor/autograd/engine.py:_visit": "once a node of every eager backward",
    "compiler_core/tensor/methods/operators.py:_arithmetic": "once an eager + - * /",
    "distcompile/nn/functional/multihead.py:multi_head_attention_forward": "its 25 parameters, one a line, are torch's",
}
# what gradients pass through speaks of arrays of any device; these make messages and digests in the host's memory
HOST_MEMORY = {"agreement.py", "buffer_sync.py", "ledger.py", "model_state.py", "users.py"}


def is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def nodes_that_run(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node below `tree` but what only type checkers read."""
    for child in ast.iter_child_nodes(tree):
        if not is_for_type_checkers(child):
            yield child
            yield from nodes_that_run(child)


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """(dotted module, line) of every import; `from a import b` counts as a.b, for b may be a module."""
    package = ".".join(path.relative_to(ROOT).parent.parts)
    for node in nodes_that_run(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def breaches(path: Path) -> list[str]:
    """Imports of `path` that go through a wall."""
    own = path.relative_to(ROOT).parts[0]
    stage = "/".join(path.relative_to(ROOT).parts[:2])
    found = []
    for module, line in imports(path):
        top, _, rest = module.partition(".")
        if top in PACKAGES and top not in ALLOWED[own] | ENTRIES.get(named(path), set()):
            found.append(f"{named(path)}:{line} imports {module}: {own} may import {', '.join(sorted(ALLOWED[own]))}")
        if top == own and rest.split(".")[0] in LATER.get(stage, set()):
            found.append(f"{named(path)}:{line} imports {module}: a later stage than {stage}")
    return found


def test_imports_stay_within_the_walls() -> None:
    """All files in one test, here and below: with one test each they were an eighth of all tests."""
    assert [breach for path in SOURCES for breach in breaches(path)] == []


def test_gradients_are_arrays_of_any_device() -> None:
    paths = [path for path in (ROOT / "distcompile" / "ddp").rglob("*.py") if path.name not in HOST_MEMORY]
    assert len(paths) > 10
    assert [named(p) for p in paths if "numpy" in {module.partition(".")[0] for module, _ in imports(p)}] == []


def test_the_wall_test_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "compiler_core" / "ops" / "bad.py"
    path.parent.mkdir(parents=True)
    path.write_text("def f():\n    from .. import lowering\n    import distcompile.nn\nfrom collectives import x\n")
    assert len(breaches(path)) == 3


def test_files_are_short_enough_to_read() -> None:
    lines = {named(path): len(path.read_text().splitlines()) for path in [*SOURCES, *TESTS, *OTHERS]}
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}


def long_functions(path: Path) -> Iterator[str]:
    """The functions of a file that are over MAX_IN_FUNCTION lines, from `def` to the end without the docstring."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            said = node.body[0] if ast.get_docstring(node, clean=False) is not None else None
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines - ((said.end_lineno or 0) - said.lineno + 1 if said else 0) > MAX_IN_FUNCTION:
                yield f"{named(path)}:{node.name}"


def test_functions_are_short_enough_to_read() -> None:
    assert sorted(name for path in SOURCES for name in long_functions(path)) == sorted(LONG_FUNCTIONS)


def test_the_test_of_functions_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "long.py"
    body = "    x = 1\n" * MAX_IN_FUNCTION
    path.write_text(f'def f():\n    """Told\n    at length."""\n{body}\ndef g():\n{body[10:]}')
    assert list(long_functions(path)) == ["long.py:f"]


def test_files_open_with_what_they_do() -> None:
    texts = {path: path.read_text() for path in [*SOURCES, *OTHERS]}
    assert [named(path) for path in texts if path.name == "utils.py"] == []
    assert [named(p) for p, text in texts.items() if text.strip() and not ast.get_docstring(ast.parse(text))] == []


def test_import_loads_nothing_heavy() -> None:
    script = "import sys, distcompile; print('\\n'.join({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert set(done.stdout.split()) & NOT_AT_IMPORT == set()


def test_no_two_test_files_have_one_name() -> None:
    """pytest imports test files and their helpers by base name: of two alike, one would be taken for the other."""
    names = [path.name for path in TESTS if path.name not in ("conftest.py", "__init__.py")]
    assert sorted(names) == sorted(set(names))
