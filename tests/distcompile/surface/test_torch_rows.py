"""Each row of torch's tables: its file has the function, and every form of it is that function, with its signature."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import OpDefinitionError
from compiler_core.names import torch_rows
from compiler_core.names.torch_rows import Row, rows
from compiler_core.numpy_trace.ufuncs import UFUNCS
from compiler_core.overrides.switch import ENTRIES
from compiler_core.tensor.methods.of_functions import FunctionMethods
from distcompile.surface.names import NAMES, ROWS, names_in

FILES = sorted({row.module for row in ROWS})


def held(path: str) -> Any:
    """What torch has under `linalg.inv`."""
    found: Any = dc
    for part in path.split("."):
        found = getattr(found, part)
    return found


def innermost(function: Any) -> Any:
    """What a function was made of, behind all that it is wrapped in."""
    entry = ENTRIES.get(id(function))
    behind = inspect.unwrap(function if entry is None else entry.origin)
    return behind if behind is function else innermost(behind)


def implementation(row: Row) -> Any:
    found: Any = importlib.import_module(row.module)
    for part in row.inner.split("."):
        found = getattr(found, part)
    return found


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def wrong_forms(row: Row) -> list[str]:
    own = implementation(row)
    if not isinstance(own, FunctionType):
        return [name for name in row.names if held(name) is not own]
    wrong = [name for name in row.names if innermost(held(name)) is not innermost(own)]
    wrong += [name for name in row.names if parameters(held(name)) != parameters(own)]
    if row.at_once and row.module != "compiler_core.tensor.tensor":
        methods = [(name, getattr(dc.Tensor, name)) for name in row.methods]
        wrong += [f"Tensor.{name}" for name, method in methods if innermost(method) is not innermost(own)]
        wrong += [f"Tensor.{name}" for name, method in methods if parameters(method) != parameters(own)]
    else:
        told = f"See {row.module.replace('.', '/')}.py:{row.inner}."
        wrong += [f"Tensor.{name}" for name in row.methods if getattr(dc.Tensor, name).__doc__ != told]
    wrong += [f"Tensor.{name}" for name in row.twins if getattr(dc.Tensor, name).__name__ != name]
    return wrong + [f"np.{name}" for name in row.ufuncs if getattr(np, name) not in UFUNCS]


@pytest.mark.parametrize("file", FILES)
def test_every_form_of_a_function_is_that_function(file: str) -> None:
    own = [row for row in ROWS if row.module == file]
    assert {name for row in own for name in wrong_forms(row)} == set()


def test_a_name_stands_once() -> None:
    assert len(NAMES) == sum(len(row.names) for row in ROWS)
    methods = [name for row in ROWS for name in (*row.methods, *row.twins)]
    assert len(methods) == len(set(methods))
    others = [base for base in dc.Tensor.__mro__ if base not in (FunctionMethods, dc.Tensor)]
    assert {name for base in others for name in vars(base)} & set(methods) == set()


def test_namespaces_hold_their_names() -> None:
    for space in torch_rows.SPACES:
        module = importlib.import_module(f"distcompile.{space}")
        assert set(module.__all__) - set(names_in(space)) <= {"LinAlgError"}
        assert set(names_in(space)) <= set(module.__all__)


def test_the_head_of_the_language_names_every_kind() -> None:
    told = re.findall(r"^    (\w[\w.]*(?:, \w[\w.]*)*)(?:, \.\.\.)?   ", str(torch_rows.__doc__), re.M)
    assert {kind for line in told for kind in line.split(", ")} >= torch_rows.KINDS - torch_rows.SPACES


def in_folders(*names: str) -> Callable[[Row], bool]:
    return lambda row: row.module.startswith(tuple(f"compiler_core.{name}." for name in names))


@pytest.mark.parametrize(
    ("kinds", "has_effect"),
    [
        ({"float32"}, lambda row: row.place[0] == "compiler_core.ops.functional"),
        ({"tensors"}, lambda row: row.at_once),
        ({"view", "new_view", "strict_view", "several"}, in_folders("ops")),
        ({"out"}, in_folders("tensor")),
        ({"makes", "numbers"}, in_folders("ops", "tensor")),
        ({"asks"}, lambda row: not in_folders("ops", "tensor")(row)),
    ],
)
def test_a_kind_stands_only_where_it_has_an_effect(kinds: set[str], has_effect: Callable[[Row], bool]) -> None:
    told = [row for row in ROWS if row.kinds & kinds]
    assert told
    assert [row.inner for row in told if not has_effect(row)] == []


def test_a_kind_that_is_none_is_refused() -> None:
    with pytest.raises(OpDefinitionError, match="no kind of name"):
        list(rows({"ops.composites.unary": "veiw: transpose."}, "compiler_core"))
