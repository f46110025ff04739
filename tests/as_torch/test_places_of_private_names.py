"""The table of places: names of torch's private files, and the things of ours that they are."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest

import distcompile as dc
from distcompile.as_torch.places import PLACES, found
from distcompile.as_torch.table import STAND_INS


def in_package(package: Any, name: str) -> Any:
    """What stands under a dotted name, its modules imported on the way; None if nothing does."""
    folder = ".".join([package.__name__, *name.split(".")[1:-1]])
    if folder in sys.modules:  # it may have the name of a function beside it
        return getattr(sys.modules[folder], name.rpartition(".")[2], None)
    value = package
    parts = name.split(".")[1:]
    for end, part in enumerate(parts, 1):
        try:
            value = getattr(value, part) if hasattr(value, part) else (
                importlib.import_module(".".join([package.__name__, *parts[:end]])))  # fmt: skip
        except ImportError:
            return None
    return value


@pytest.mark.parametrize("name", sorted(PLACES))
def test_a_place_holds_something_and_is_needed(name: str) -> None:
    assert found(PLACES[name]) is not None
    assert name not in STAND_INS
    if name.startswith("torch.") and name != "torch.torch":
        assert in_package(dc, name) is None, f"distcompile has {name} itself: take it off the table"


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(PLACES))
def test_a_place_is_a_name_of_torchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    assert in_package(torch if name.startswith("torch.") else importlib.import_module("functorch"), name) is not None


@pytest.mark.torch
def test_tensors_in_one_row_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    rows = []
    for lib, utils in ((dc, None), (torch, torch._utils)):
        tensors = [lib.arange(6.0).view(2, 3), lib.ones(2), lib.zeros(1, 1)]
        flat = found(PLACES["torch._utils._flatten_dense_tensors"])(tensors) if utils is None else (
            utils._flatten_dense_tensors(tensors))  # fmt: skip
        back = found(PLACES["torch._utils._unflatten_dense_tensors"]) if utils is None else (
            utils._unflatten_dense_tensors)  # fmt: skip
        take = found(PLACES["torch._utils._take_tensors"]) if utils is None else utils._take_tensors
        mixed = [lib.ones(3), lib.ones(2, dtype=lib.float64), lib.ones(1), lib.ones(9)]
        chunks = [[(len(t), str(t.dtype).rpartition(".")[2]) for t in chunk] for chunk in take(mixed, 16)]
        rows.append((flat.tolist(), [t.tolist() for t in back(flat * 2, tensors)], sorted(chunks)))
    assert rows[0] == rows[1]
