"""A watch over tensors sees each that gets another cell, history or requires_grad; new values do not disturb it."""

from __future__ import annotations

import copy
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import distcompile as dc
from compiler_core.tensor.memory.rebinding import TensorWatch, lags
from compiler_core.tensor.tensor import Tensor
from distcompile import nn


class Shift(dc.autograd.Function):
    """Adds one in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, grad


def weight() -> Tensor:
    return dc.ones(2, 3, requires_grad=True)


# what -> tensors to be watched, change, what the watch calls it
CHANGES: dict[str, tuple[Callable[[], Tensor], Callable[[Any], Any], str]] = {
    "data": (weight, lambda t: setattr(t, "data", dc.zeros(2, 3)), "w is stored where it was"),
    "data of another dtype": (weight, lambda t: setattr(t, "data", dc.zeros(2, 3).half()), "w is stored where it was"),
    "frozen": (weight, lambda t: t.requires_grad_(False), "w.requires_grad is True"),
    "trained": (lambda: dc.ones(2), lambda t: setattr(t, "requires_grad", True), "w.requires_grad is False"),
    "written with a history": (lambda: dc.ones(3), lambda t: t.mul_(weight()[0]), "w.requires_grad is False"),
    "written through a view": (lambda: dc.ones(3), lambda t: t[1:].mul_(weight()[0, 1:]), "w.requires_grad is False"),
    "dirty in a Function": (lambda: dc.ones(2, 3), lambda t: Shift.apply(t, weight()), "w.requires_grad is False"),
    "detached": (lambda: weight() * 2, lambda t: t.detach_(), "w.requires_grad is True"),
    "another shape": (lambda: dc.ones(3), lambda t: t.unsqueeze_(0), "w is stored where it was"),
    "converted by a module": (lambda: nn.Parameter(dc.ones(2)), lambda t: convert(t), "w is stored where it was"),
    "materialized": (nn.UninitializedParameter, lambda t: t.materialize((2,)), "w is a UninitializedParameter"),
}


def convert(parameter: Any) -> None:
    module = nn.Module()
    module.weight = parameter
    module.double()


@pytest.mark.parametrize("what", CHANGES)
def test_every_rebinding_is_seen_and_named(what: str) -> None:
    make, change, words = CHANGES[what]
    other, tensor = dc.ones(1), make()
    watch = TensorWatch([(other, "other"), (tensor, "w")])
    assert not watch.changed
    change(tensor)
    assert watch.changed
    assert not watch.still_same()
    assert watch.difference == words
    assert watch.changed


def test_culprits_are_stored_elsewhere() -> None:
    moved, frozen = weight(), weight()
    watch = TensorWatch([(moved, "moved"), (frozen, "frozen")])
    moved.data = dc.zeros(2, 3)
    frozen.requires_grad_(False)
    assert [id(t) for t in watch.culprits()] == [id(moved)]


def test_training_does_not_disturb_the_watch() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    watch = TensorWatch((t, name) for name, t in (*model.named_parameters(), *model.named_buffers()))
    optimizers = [kind(model.parameters(), lr=0.1) for kind in (dc.optim.SGD, dc.optim.AdamW)]
    for optimizer in optimizers:
        model(dc.randn(4, 2)).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.load_state_dict(model.state_dict())
    with dc.no_grad():
        model[0].weight.copy_(dc.ones(2, 2))
        model[0].weight.data.mul_(2.0)
    model.float().requires_grad_()
    assert not watch.changed


def test_what_is_taken_back_passes_again() -> None:
    tensor = weight()
    watch = TensorWatch([(tensor, "w")])
    before = tensor.detach()
    tensor.data = dc.zeros(2, 3)
    assert not watch.still_same()
    tensor.data = before
    assert watch.still_same()
    assert not watch.changed
    tensor.requires_grad_(False).requires_grad_()
    assert watch.changed
    assert watch.still_same()


def test_a_view_takes_its_history_late_which_is_known_of_it() -> None:
    base = dc.ones(3)
    view = base[1:]
    assert lags(view)
    assert not lags(base)
    assert not lags(base.detach())
    watch = TensorWatch([(view, "view")])
    base.mul_(weight()[0])
    assert not watch.changed
    assert view.requires_grad


def test_copies_do_not_take_watches_along() -> None:
    tensor = nn.Parameter(dc.ones(2))
    watch = TensorWatch([(tensor, "w")])
    for other in (copy.copy(tensor), copy.deepcopy(tensor), pickle.loads(pickle.dumps(tensor)), tensor.detach()):
        other.data = dc.zeros(2)
        other.requires_grad_(False)
    assert not watch.changed
    copied: Any = copy.copy(watch)
    assert copied.changed


def test_watches_die_with_those_who_made_them() -> None:
    tensor: Any = weight()
    for _ in range(1000):
        watch = TensorWatch([(tensor, "w")])
    assert len(tensor._watches) <= 2
    gone = weakref.ref(watch)
    del watch
    assert gone() is None
    tensor.data = dc.zeros(2, 3)  # tells nobody
