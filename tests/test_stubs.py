"""The `.pyi` of namespaces whose names come from tables say what the namespaces hold; `--update-golden` writes them.

Editors and type checkers read these files instead of the `.py` beside them: a name that they lack is an error to mypy.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from compiler_core.names.torch_rows import Row
from compiler_core.names.torch_table import ROWS
from compiler_core.ops import prims
from compiler_core.ops.registry import OPS, takes
from compiler_core.overrides.switch import ENTRIES
from compiler_core.tensor.torch_names import load
from distcompile.surface.names import NAMES, SUBMODULES, TOP

ROOT = Path(__file__).parents[1]
MADE = {"distcompile.surface.foreach"}  # modules whose names a loop makes
METHODS, PRIMITIVES = "compiler_core.tensor.methods.of_functions", "compiler_core.ops.prim_names"
SPACES = [
    METHODS,
    PRIMITIVES,
    "distcompile",
    "compiler_core.ops.functional",
    "distcompile.nn",
    "distcompile.nn.functional",
    "distcompile.data",
    "distcompile.distributed",
    "distcompile.distributions",
    "distcompile.optim",
    "distcompile.optim.lr_scheduler",
]
HEAD = '''"""Written by tests/test_stubs.py from what the namespace holds: see there."""

# ruff: noqa
# fmt: off
'''


def home(value: Any) -> tuple[str, str]:
    """The module that defines a class or a function, and its name there."""
    entry = ENTRIES.get(id(value))
    origin = value if entry is None else entry.origin
    module, name = origin.__module__, origin.__qualname__
    found = getattr(importlib.import_module(module), name)
    assert found is origin or inspect.unwrap(value) is inspect.unwrap(found), (module, name)
    return module, name


def line(space: ModuleType, name: str) -> str:
    """The line that says where `name` of a namespace comes from."""
    value = getattr(space, name)
    if isinstance(value, ModuleType):
        module, _, inner = value.__name__.rpartition(".")
    elif isinstance(value, type | FunctionType):
        module, inner = home(value)
    else:
        modules = [thing for thing in vars(space).values() if isinstance(thing, ModuleType)]
        module, inner = next(m.__name__ for m in modules if vars(m).get(name) is value), name
    return f"from {module} import {inner} as {name}"


def late_lines() -> list[str]:
    """The lines of distcompile's own names, which are loaded at first use: they are read from its tables.

    What only Python can find (methods as functions, functions that a loop makes) is Any.
    """
    own = {name: NAMES[name].place for name in TOP}
    made = {name for name, (module, inner) in own.items() if "." in inner or module in MADE}
    lines = [f"from distcompile import {name} as {name}" for name in SUBMODULES]
    lines += [f"from {own[name][0]} import {own[name][1]} as {name}" for name in {*own} - made]
    told = ["__version__: builtins.str", "", "def is_tensor(obj: object) -> builtins.bool: ..."]
    return ["import builtins", "from typing import Any", "", *sorted(lines), "",
            *(f"{name}: Any" for name in sorted(made)), *told]  # fmt: skip


def method_lines() -> list[str]:
    """The lines of Tensor's methods that are functions: a Tensor in their first place, and one as result."""
    modules = sorted({row.place[0] for row in ROWS if row.methods})
    lines = [f"import {module}" for module in modules]
    lines += ["from collections.abc import Callable", "from typing import Any, Concatenate, ParamSpec", ""]
    lines += ["from compiler_core.tensor.tensor import Tensor", "", 'P = ParamSpec("P")', ""]
    lines += ["def method(f: Callable[Concatenate[Any, P], Any]) -> Callable[Concatenate[Tensor, P], Tensor]: ..."]
    methods = [(name, row, _gives_one(row)) for row in ROWS for name in row.methods]
    methods += [(name, row, True) for row in ROWS for name in row.twins]
    told = (f"{name} = method({'.'.join(row.place)})" if one else f"{name} = {'.'.join(row.place)}"
            for name, row, one in sorted(methods, key=lambda entry: entry[0]))  # fmt: skip
    return [*lines, "", "class FunctionMethods:", *(f"    {line}" for line in told)]


def primitive_lines() -> list[str]:
    """The lines of the primitives that prims.py makes when asked."""
    forms = {None: "*values: Value, **attrs: Any", 1: "x: Value", 2: "a: Value, b: Value"}
    written = {
        node.name for node in ast.parse(Path(prims.__file__).read_text()).body if isinstance(node, ast.FunctionDef)
    }
    made = [
        op
        for name, op in sorted(OPS.items())
        if name not in written and op.infer.__module__.startswith("compiler_core.ops.")
    ]
    imports = ["from typing import Any", "", "from compiler_core.ops.registry import Value", ""]
    return [*imports, *(f"def {op.name}({forms.get(takes(op), forms[None])}) -> Value: ..." for op in made)]


def _gives_one(row: Row) -> bool:
    """Whether the result is one tensor."""
    function = inspect.unwrap(load(row.place))
    return inspect.signature(function).return_annotation in ("Value", "Tensor")


def stub(space: str) -> str:
    if space == METHODS:
        return "\n".join([HEAD, *method_lines(), ""])
    if space == PRIMITIVES:
        return "\n".join([HEAD, *primitive_lines(), ""])
    module = importlib.import_module(space)
    names = sorted(module.__all__)
    lines = late_lines() if space == "distcompile" else sorted(line(module, name) for name in names)
    listed = [f'    "{name}",' for name in names]
    return "\n".join([HEAD, *lines, "", "__all__ = [", *listed, "]", ""])


def path_of(space: str) -> Path:
    if space == PRIMITIVES:
        return Path(prims.__file__).with_name("prim_names.pyi")
    return Path(str(importlib.import_module(space).__file__)).with_suffix(".pyi")


@pytest.mark.parametrize("space", SPACES)
def test_a_stub_says_what_its_namespace_holds(space: str, request: pytest.FixtureRequest) -> None:
    path = path_of(space)
    text = stub(space)
    if request.config.getoption("--update-golden"):
        path.write_text(text)
    assert path.exists(), f"{path.name} is missing: write it with --update-golden"
    assert text == path.read_text(), f"{path} no longer says what {space} holds: write it with --update-golden"


def test_every_stub_is_written_here() -> None:
    found = {str(path.relative_to(ROOT)) for package in ("compiler_core", "distcompile") for path in
             (ROOT / package).rglob("*.pyi")}  # fmt: skip
    assert found == {str(path_of(space).relative_to(ROOT)) for space in SPACES}
