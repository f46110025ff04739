"""Plain pickles from before files moved: the old names of modules lead to what is there now."""

from __future__ import annotations

import importlib
import pickle
from typing import Any

import pytest

import distcompile as dc
from compiler_core.ops.composites.reduction import ValuesAndIndices
from distcompile import nn

LAYER = nn.Linear(2, 2)
OPTIMIZER = dc.optim.Adagrad(LAYER.parameters(), 0.1)
THINGS = {
    "layer": (nn.Sequential(nn.Conv1d(2, 3, 1), LAYER), {"nn.layers.conv\n": "nn.conv\n", "layers.linear": "linear"}),
    "optimizer": (OPTIMIZER, {"optim.update_rules.fused": "optim.fused"}),
    "generator": (dc.Generator().manual_seed(3), {"tensor.making.random": "tensor.random"}),
    "tensor": (dc.ones(2, 3), {"tensor.memory.copying": "tensor.copying"}),
    "result": (ValuesAndIndices(*dc.max(dc.ones(2, 2), 0)), {"ops.composites.reduction": "ops.composite_reduction"}),
}


@pytest.mark.parametrize(("thing", "names"), THINGS.values(), ids=THINGS)
def test_a_pickle_that_names_old_places_is_read(thing: Any, names: dict[str, str]) -> None:
    text = pickle.dumps(thing, protocol=2)
    for now, before in names.items():
        assert now.encode() in text or now.endswith("\n")
        text = text.replace(now.encode(), before.encode())
    assert b"layers.linear" not in text
    read = pickle.loads(text)
    assert type(read) is type(thing)
    assert pickle.dumps(read, protocol=2) == pickle.dumps(pickle.loads(pickle.dumps(thing, protocol=2)), protocol=2)


def test_an_old_name_gives_the_same_classes() -> None:
    assert importlib.import_module("distcompile.nn.linear").Linear is nn.Linear


@pytest.mark.parametrize("name", ["distcompile.nn.nonsense", "distcompile.nn.layers.nonsense", "distcompile.nonsense"])
def test_a_name_that_never_was_is_not_found(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'"):
        importlib.import_module(name)
