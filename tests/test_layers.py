"""The walls: who may import whom, what `import distcompile` may load, and how long a file may be.

No circle of imports goes through two rooms. A room is a folder of compiler_core/ or distcompile/; the loose files
beside these folders are one more room of each; collectives/ and launch/ are rooms.
Read from the sources (`import_graph.py`): imports inside functions count too, and so do names of modules in strings;
imports for type checkers only do not.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from glob import glob
from importlib import import_module
from pathlib import Path

import networkx as nx
import pytest
from import_graph import (
    PACKAGES,
    ROOT,
    graph,
    module_of,
    modules,
    nodes_that_run,
    sources,
    statements,
    strings,
    tree,
)

from compiler_core import late
from compiler_core.capture import policy
from compiler_core.errors import OpDefinitionError

SOURCES = sources()
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py"))
OTHERS = sorted(path for folder in ("benchmarks", "docs", "examples") for path in (ROOT / folder).rglob("*.py"))

# folder -> the folders of ours it may import; the longest folder that matches a file counts
ALLOWED: dict[str, set[str]] = {
    "distcompile": {"distcompile", "compiler_core", "collectives"},
    "compiler_core": {"compiler_core"},
    "collectives": {"collectives"},
    "launch": {"launch"},
}
# the one file of another package that may be imported although its package may not: why, docs/explanation/decisions.md
SHARED = {"distcompile/watchdog": "launch.board"}
# what starts a command may import, or name, whom it starts
ENTRIES = {"distcompile/run.py": {"launch"}, "launch/options.py": {"distcompile"}}
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
    "compiler_core/tensor": {
        "eager",
        "sparse",
        "numpy_trace",
        "capture",
        "lowering",
        "loop_ir",
        "schedule",
        "codegen",
        "runtime",
    },
    "compiler_core/eager": {"graph", "tensor", "capture", "aot", "loop_ir", "lowering", "schedule"},
    "compiler_core/graph": {"capture", "aot", "lowering", "loop_ir", "schedule", "codegen", "runtime"},
    "compiler_core/symbolic": {"graph", "tensor", "capture", "aot", "lowering", "schedule", "codegen", "runtime"},
    "compiler_core/loop_ir": {"tensor", "capture", "aot", "lowering", "schedule", "codegen", "runtime"},
    "compiler_core/lowering": {"tensor", "capture", "aot", "schedule", "codegen", "runtime"},
    "compiler_core/schedule": {"tensor", "capture", "aot", "codegen", "runtime"},
    "compiler_core/runtime": {"tensor", "capture", "aot"},
    "compiler_core/aot": {"capture", "lowering", "loop_ir", "schedule", "codegen"},
    "compiler_core/names": {"eager", "sparse", "capture", "aot", "lowering", "schedule", "codegen", "runtime"},
}
# (file, string): the name of a module that is said, and not imported
SAID = {
    ("compiler_core/tensor/making/legacy_types.py", "distcompile.cuda"): "`__module__` of torch.cuda.FloatTensor",
    ("compiler_core/sparse/types.py", "distcompile.sparse"): "`__module__` of torch.sparse.FloatTensor",
    ("compiler_core/backend.py", "distcompile.backends"): "a group of entry points",
    ("launch/child.py", "distcompile.showing.traces"): "looked for among what the program has loaded",
}
# files that only say where names are, and import nothing of it themselves
TABLES = {"compiler_core.names.torch_rows", "compiler_core.names.torch_table", "distcompile.surface.names"}
# rooms of a circle that is known, and why it stays; the list may only become shorter
KNOWN: dict[frozenset[str], str] = {}
# whose `import_module` is given what is no string of the same file: where that comes from
READERS = {
    "compiler_core/engines/engine.py": "the optional package of an engine",
    "compiler_core/late.py": "LOADS, which compiler_core/__init__.py writes down",
    "compiler_core/ops/functional.py": "torch_table.py",
    "compiler_core/tensor/torch_names.py": "torch_table.py, and tables of methods in tensor/",
    "compiler_core/capture/tracing/rules/pure_table.py": "a table of other libraries' modules",
    "compiler_core/capture/tracing/statements.py": "an import statement of the user's code",
    "distcompile/as_torch/finder.py": "what a program imports below torch",
    "distcompile/as_torch/places.py": "PLACES, in the same file",
    "distcompile/cli.py": "COMMANDS, in the same file",
    "distcompile/nn/modules/__init__.py": "a module of its own",
    "distcompile/parity/target.py": "what the user names",
    "distcompile/return_types.py": "a table in the same file",
    "distcompile/surface/found.py": "surface/names.py",
    "distcompile/surface/laid_out.py": "a folder of its caller's",
    "distcompile/surface/moved.py": "tables in the same file",
    "distcompile/torch_format/unpickling.py": "a name in a file that is read",
    "distcompile/utils/_pytree_specs.py": "a name in a file that is read",
}
NOT_AT_IMPORT = {"networkx", "mpi4py", "triton", "rich", "safetensors", "torch", "scipy"}
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
    "distcompile/nn/functional/multihead.py:multi_head_attention_forward": "its 25 parameters, one a line, are torch's",
}
# what gradients pass through speaks of arrays of any device; these make messages and digests in the host's memory
HOST_MEMORY = {"agreement.py", "buffer_sync.py", "ledger.py", "model_state.py", "users.py"}


def named(path: Path, root: Path = ROOT) -> str:
    return str(path.relative_to(root))


def breaches(path: Path, root: Path = ROOT) -> list[str]:
    """Imports of `path` that go through a wall."""
    own = path.relative_to(root).parts[0]
    stage = "/".join(path.relative_to(root).parts[:2])
    found = []
    file = named(path, root)
    told = [(name, line) for name, line in strings(path, root) if (file, name) not in SAID]
    for module, line in [*statements(path, root), *told]:
        top, _, rest = module.partition(".")
        is_shared = stage in SHARED and f"{module}.".startswith(f"{SHARED[stage]}.")
        if top in PACKAGES and top not in ALLOWED[own] | ENTRIES.get(file, set()) and not is_shared:
            found.append(f"{file}:{line} imports {module}: {own} may import {', '.join(sorted(ALLOWED[own]))}")
        if top == own and rest.split(".")[0] in LATER.get(stage, set()):
            found.append(f"{file}:{line} imports {module}: a later stage than {stage}")
    return found


def test_imports_stay_within_the_walls() -> None:
    """All files in one test, here and below: with one test each they were an eighth of all tests."""
    assert [breach for path in SOURCES for breach in breaches(path)] == []


def room_of(module: str) -> str:
    """`compiler_core/ops`, and `compiler_core` of a file that is in no folder of it."""
    package, *folders = modules()[module].relative_to(ROOT).parent.parts
    return "/".join([package, *folders[:1]])


def circles(imports: nx.DiGraph, room: dict[str, str]) -> dict[frozenset[str], list[str]]:
    """Rooms -> the imports that close a circle between them."""
    found = {}
    for files in nx.strongly_connected_components(imports):
        rooms = frozenset(room[file] for file in files)
        if len(rooms) > 1:
            between = [(a, b) for a, b in imports.subgraph(files).edges if room[a] != room[b]]
            found[rooms] = [f"{a} -> {b} (line {imports.edges[a, b]['lines'][0]})" for a, b in sorted(between)]
    return found


@pytest.fixture(scope="module")
def imports() -> nx.DiGraph:
    found = graph()
    found.remove_nodes_from(TABLES)
    found.remove_edges_from((module_of(ROOT / file), name) for file, name in SAID)
    return found


def test_no_circle_goes_through_two_rooms(imports: nx.DiGraph) -> None:
    found = circles(imports, {module: room_of(module) for module in imports})
    assert {rooms: lines for rooms, lines in found.items() if rooms not in KNOWN} == {}
    assert KNOWN.keys() <= found.keys(), "a circle that is no more stands in KNOWN"


def test_what_ddp_keeps_and_what_uses_it_do_not_import_each_other(imports: nx.DiGraph) -> None:
    assert "distcompile.ddp.passes" not in nx.descendants(imports, "distcompile.ddp.books")


def test_tables_import_nothing() -> None:
    """They are left out above, so they must do nothing but say names."""
    for module in TABLES:
        text = modules()[module].read_text()
        assert "import_module" not in text
        assert "    from " not in text


def test_a_circle_is_found(tmp_path: Path) -> None:
    for name, text in {
        "compiler_core/a/one.py": "def f():\n    from compiler_core.b import two\n",
        "compiler_core/b/two.py": "PLACE = 'compiler_core.c.three:name'\n",
        "compiler_core/c/three.py": "NAMES = 'one other'\ndef g(name):\n    import_module(f'compiler_core.a.{name}')\n",
        "compiler_core/d/four.py": "if TYPE_CHECKING:\n    from compiler_core.d import five\n",
        "compiler_core/d/five.py": "from compiler_core.d.four import x\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = graph(tmp_path)
    room = {module_of(p, tmp_path): p.parent.name for p in modules(tmp_path).values()}
    assert list(circles(found, room)) == [frozenset("abc")]


def test_gradients_are_arrays_of_any_device() -> None:
    paths = [path for path in (ROOT / "distcompile" / "ddp").rglob("*.py") if path.name not in HOST_MEMORY]
    assert len(paths) > 10
    assert [named(p) for p in paths if "numpy" in {module.partition(".")[0] for module, _ in statements(p)}] == []


def test_files_of_ours_that_capture_knows_are_there() -> None:
    lists = (policy.ENTERED, policy.CALLERS, policy.NATIVE, policy.RECORDING, policy.KEEPING, policy.TALKING)
    assert [path for told in lists for path in told if not glob(f"{path}*")] == []


def test_what_is_imported_by_name_is_seen() -> None:
    """Each `import_module` is given a string, or f"..." that begins with a package of ours, or is of a known reader."""
    assert sorted({named(p) for p in SOURCES if any(map(_is_hidden, _calls_of_import_module(p)))}) == sorted(READERS)


def _calls_of_import_module(path: Path) -> list[ast.expr]:
    """What each is given."""
    calls = [node for node in nodes_that_run(path) if isinstance(node, ast.Call)]
    return [c.args[0] for c in calls if ast.unparse(c.func).rpartition(".")[2] in ("import_module", "__import__")]


def _is_hidden(argument: ast.expr) -> bool:
    return not isinstance(argument, ast.Constant) and not ast.unparse(argument).startswith(
        tuple(f"f'{package}." for package in PACKAGES)
    )


def test_slots_are_filled_by_those_who_are_said_to() -> None:
    for slot, module in late.LOADS.items():
        import_module(module)
        assert late.SLOTS[slot].is_filled, f"{module} does not fill {slot}"
    assert late.SLOTS.keys() == late.LOADS.keys()


def test_a_slot_that_nobody_fills_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late, "SLOTS", {})
    slot: late.Late[int] = late.Late("a slot")
    with pytest.raises(OpDefinitionError, match="no module"):
        slot.get()
    monkeypatch.setitem(late.LOADS, "a slot", "compiler_core.late")
    with pytest.raises(OpDefinitionError, match="does not fill"):
        slot.get()
    with pytest.raises(OpDefinitionError, match="two slots"):
        late.Late("a slot")
    slot.fill(3)
    assert slot.get() == 3


def test_the_wall_test_can_fail(tmp_path: Path) -> None:
    path = tmp_path / "compiler_core" / "ops" / "bad.py"
    for name in ("eager/rules.py", "aot/joint.py", "runtime/cache.py", "ops/bad.py"):
        (tmp_path / "compiler_core" / name).parent.mkdir(parents=True)
        (tmp_path / "compiler_core" / name).write_text("")
    path.write_text(
        "def f():\n    from compiler_core import lowering\n    import distcompile.nn\nfrom collectives import x\n"
        "import_module(A)\nA = 'compiler_core.eager.rules'\nload(('compiler_core.aot.joint', 'x'))\n"
        "def g(file):\n    return f'compiler_core.runtime.{file}', 'cache'\n"
    )
    assert len(breaches(path, tmp_path)) == 6
    for folder, count in (("watchdog", 1), ("ddp", 3)):
        path_of_rank = tmp_path / "distcompile" / folder / "new.py"
        path_of_rank.parent.mkdir(parents=True)
        path_of_rank.write_text("from launch import board\nfrom launch.board import Board\nfrom launch import cli\n")
        assert len(breaches(path_of_rank, tmp_path)) == count
    assert [_is_hidden(argument) for argument in _calls_of_import_module(path)] == [True]


def test_files_are_short_enough_to_read() -> None:
    lines = {named(path): len(path.read_text().splitlines()) for path in [*SOURCES, *TESTS, *OTHERS]}
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}


def long_functions(path: Path, root: Path = ROOT) -> Iterator[str]:
    """The functions of a file that are over MAX_IN_FUNCTION lines, from `def` to the end without the docstring."""
    for node in ast.walk(tree(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            said = node.body[0] if ast.get_docstring(node, clean=False) is not None else None
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines - ((said.end_lineno or 0) - said.lineno + 1 if said else 0) > MAX_IN_FUNCTION:
                yield f"{named(path, root)}:{node.name}"


def test_functions_are_short_enough_to_read() -> None:
    assert sorted(name for path in SOURCES for name in long_functions(path)) == sorted(LONG_FUNCTIONS)


def test_the_test_of_functions_can_fail(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    body = "    x = 1\n" * MAX_IN_FUNCTION
    path.write_text(f'def f():\n    """Told\n    at length."""\n{body}\ndef g():\n{body[10:]}')
    assert list(long_functions(path, tmp_path)) == ["long.py:f"]


def test_files_open_with_what_they_do() -> None:
    trees = {path: tree(path) for path in [*SOURCES, *OTHERS]}
    assert [named(path) for path in trees if path.name == "utils.py"] == []
    assert [named(path) for path, found in trees.items() if found.body and not ast.get_docstring(found)] == []


def test_a_first_page_that_lists_its_files_lists_them_all() -> None:
    wrong = {}
    for page in (path for path in SOURCES if path.name == "__init__.py"):
        said = set(re.findall(r"^- `(\w+\.py)`", ast.get_docstring(tree(page)) or "", re.MULTILINE))
        there = {path.name for path in page.parent.glob("*.py")} - {page.name}
        if said and said != there:
            wrong[named(page)] = sorted(said ^ there)
    assert wrong == {}


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
