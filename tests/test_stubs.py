"""The `.pyi` of namespaces whose names come from tables say what the namespaces hold; `--update-golden` writes them.

Editors and type checkers read these files instead of the `.py` beside them: a name that they lack is an error to mypy.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from compiler_core.overrides.switch import ENTRIES
from compiler_core.torch_table import FUNCTIONS
from distcompile.surface.names import SOURCES, SUBMODULES

ROOT = Path(__file__).parents[1]
MADE = {"distcompile.surface.foreach"}  # modules whose names a loop makes
SPACES = [
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
    own = {name: place for name, place in FUNCTIONS.items() if "." not in name} | SOURCES
    made = {name for name, (module, inner) in own.items() if "." in inner or module in MADE}
    lines = [f"from distcompile import {name} as {name}" for name in SUBMODULES]
    lines += [f"from {own[name][0]} import {own[name][1]} as {name}" for name in {*own} - made]
    told = ["__version__: builtins.str", "", "def is_tensor(obj: object) -> builtins.bool: ..."]
    return ["import builtins", "from typing import Any", "", *sorted(lines), "",
            *(f"{name}: Any" for name in sorted(made)), *told]  # fmt: skip


def stub(space: str) -> str:
    module = importlib.import_module(space)
    names = sorted(module.__all__)
    lines = late_lines() if space == "distcompile" else sorted(line(module, name) for name in names)
    listed = [f'    "{name}",' for name in names]
    return "\n".join([HEAD, *lines, "", "__all__ = [", *listed, "]", ""])


@pytest.mark.parametrize("space", SPACES)
def test_a_stub_says_what_its_namespace_holds(space: str, request: pytest.FixtureRequest) -> None:
    path = Path(str(importlib.import_module(space).__file__)).with_suffix(".pyi")
    text = stub(space)
    if request.config.getoption("--update-golden"):
        path.write_text(text)
    assert path.exists(), f"{path.name} is missing: write it with --update-golden"
    assert text == path.read_text(), f"{path} no longer says what {space} holds: write it with --update-golden"


def test_every_stub_is_written_here() -> None:
    found = {str(path.relative_to(ROOT)) for package in ("compiler_core", "distcompile") for path in
             (ROOT / package).rglob("*.pyi")}  # fmt: skip
    files = (Path(str(importlib.import_module(space).__file__)).with_suffix(".pyi") for space in SPACES)
    assert found == {str(file.relative_to(ROOT)) for file in files}
