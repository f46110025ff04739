"""Where forwards stand on the tape: what is in one, open or ended, and what is not."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_core.tensor.autograd.engine import running_backwards
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp import forwards
from distcompile.ddp.forwards import Forwards


def leaf() -> Tensor:
    return Tensor(Tensor._wrap(np.ones(2))._cell, requires_grad=True)


def is_in(places: Forwards, loss: Tensor) -> bool:
    """What `are_in` says of the backward of `loss`."""
    found: list[bool] = []
    x = leaf()
    x.register_hook(lambda gradient: found.append(places.are_in(running_backwards()[-1])))
    (loss + x.sum()).backward()
    return found[0]


def test_inside_and_outside() -> None:
    places = Forwards()
    before = leaf().sum()
    places.begin()
    inside = leaf().sum()
    assert places.end()
    assert not places.end()
    after = leaf().sum()
    assert [is_in(places, loss) for loss in (before, inside, after)] == [False, True, False]


def test_one_that_nothing_ended_goes_on_to_the_next() -> None:
    places = Forwards()
    places.begin()
    first = leaf().sum()
    places.begin()
    places.end()
    after = leaf().sum()
    assert [is_in(places, loss) for loss in (first, after)] == [True, False]


def test_the_older_half_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwards, "MOST", 4)
    places, losses = Forwards(), []
    for _ in range(5):
        places.begin()
        losses.append(leaf().sum())
        places.end()
    assert [is_in(places, loss) for loss in losses] == [False, False, True, True, True]


def test_one_that_records_nothing_takes_no_place() -> None:
    places = Forwards()
    for _ in range(3):
        places.begin()
        places.end()
    assert not places._first
