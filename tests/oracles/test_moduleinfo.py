"""PyTorch's own module and optimizer databases: every entry is right, eager and compiled, but those that are declared.

NOT_OURS is held to be exactly the list: an entry that comes right must leave it. Eager: a few samples of each module
always, all with --long; compiled: a few, with --long. Optimizers: all samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch's databases need it

import module_samples as db

import distcompile as dc

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

MODULES, OPTIMIZERS = db.modules(), db.optimizers()
NOT_OURS = {
    "TransformerEncoder": "its samples are built from a layer of torch's own, whose arguments cannot be read back",
    "FractionalMaxPool2d": "torch refuses the database's samples in float32 (their random numbers are float64)",
    "FractionalMaxPool3d": "torch refuses the database's samples in float32 (their random numbers are float64)",
    "SparseAdam": "its samples have dense gradients, which it refuses, as torch's does",
}
FEW = 8


def verdict(name: str, count: int | None, wrap: Callable[[Any], Any] = lambda module: module) -> list[str]:
    """What is wrong with the first `count` samples of a module in each mode; nothing: it is right."""
    if db.find(f"nn.{name}") is None:
        return ["absent"]
    found = []
    for number, (sample, training) in enumerate(db.samples(MODULES[name], count)):
        try:
            bad = db.run_module(MODULES[name], sample, training, wrap)
        except Exception as error:  # noqa: BLE001  # any refusal is a verdict on the entry, whatever its class
            bad = f"{type(error).__name__}: {error}"
        if bad:
            found.append(f"sample {number}, training={training}: {bad}")
    return found


OURS = sorted(set(MODULES) - set(NOT_OURS))


@pytest.mark.parametrize("name", OURS)
def test_a_module_is_torchs(name: str, in_full: bool) -> None:
    """A few samples; with --long all of them."""
    assert verdict(name, None if in_full else FEW) == []


@pytest.mark.parametrize("name", OURS)
def test_a_whole_module_that_torch_saved_loads_and_computes(name: str) -> None:
    found = [db.run_pickled(MODULES[name], sample, training) for sample, training in db.samples(MODULES[name], 2)]
    assert found == [None] * len(found)


@pytest.mark.long
@pytest.mark.parametrize("name", OURS)
def test_a_compiled_module_is_torchs(name: str) -> None:
    assert verdict(name, 2, dc.compile) == []


@pytest.mark.parametrize("name", sorted(set(OPTIMIZERS) - set(NOT_OURS)))
def test_an_optimizer_is_torchs(name: str) -> None:
    info = OPTIMIZERS[name]
    assert [(given, bad) for given in db.options(info) if (bad := db.run_optimizer(info, given))] == []


@pytest.mark.parametrize("name", sorted(NOT_OURS))
def test_what_is_declared_not_ours_is_not(name: str) -> None:
    assert name in MODULES or name in OPTIMIZERS, "torch's databases have no such entry (any more)"
    if name in OPTIMIZERS:
        with pytest.raises(RuntimeError, match="does not support dense gradients"):
            db.run_optimizer(OPTIMIZERS[name], {})
    else:
        assert verdict(name, FEW) != [], "this module is right: take it out of the list"
