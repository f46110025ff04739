"""Who must know that a module was loaded is told, and only of those with its parameters."""

from __future__ import annotations

import pytest

import distcompile as dc
from distcompile import nn
from distcompile.nn.loads import KEPT, LOADS


def ids(module: nn.Module) -> set[int]:
    return set(map(id, module.parameters()))


def test_a_load_reaches_the_parameters_of_the_module_alone() -> None:
    whole, other = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), nn.Linear(2, 2)
    since = LOADS.count
    assert not LOADS.reached(ids(whole), since)
    other.load_state_dict(other.state_dict())
    assert not LOADS.reached(ids(whole), since)
    whole[1].load_state_dict(whole[1].state_dict())
    assert LOADS.reached(ids(whole), since)
    assert LOADS.reached(ids(whole), since + 1)
    assert not LOADS.reached(ids(whole[0]), since)
    assert not LOADS.reached(ids(whole), LOADS.count)


def test_a_load_that_fails_half_way_is_one() -> None:
    model, since = nn.Linear(2, 2), LOADS.count
    with pytest.raises(RuntimeError):
        model.load_state_dict({"weight": dc.zeros(2, 2)})
    assert LOADS.reached(ids(model), since)


def test_what_cannot_be_told_counts() -> None:
    model, since = nn.Linear(2, 2), LOADS.count
    nn.Linear(2, 2).load_state_dict(nn.Linear(2, 2).state_dict())
    assert LOADS.reached(ids(model), since)
    other, since = nn.Linear(2, 2), LOADS.count
    for _ in range(KEPT + 1):
        assert not LOADS.reached(ids(model), since)
        other.load_state_dict(other.state_dict())
    assert LOADS.reached(ids(model), since)


def test_compiled_code_tells_at_every_call() -> None:
    model, state = nn.Linear(2, 2), nn.Linear(2, 2).state_dict()

    def step(x: dc.Tensor) -> dc.Tensor:
        model.load_state_dict(state)
        return model(x)  # type: ignore[no-any-return]

    compiled = dc.compile(step)
    for _ in range(3):
        since = LOADS.count
        compiled(dc.ones(1, 2))
        assert LOADS.reached(ids(model), since)
