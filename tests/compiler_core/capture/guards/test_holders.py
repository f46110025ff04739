"""Tensors of a trace are found by who holds them: among young objects where those are all, else among everything."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import distcompile
from compiler_core.capture.recipes import holders


class Box:
    def __init__(self, held: Any) -> None:
        self.held = held


@pytest.mark.parametrize("collect", [False, True])
def test_holders_of_what_was_made_since(collect: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    everything, search = [], gc.get_referrers
    monkeypatch.setattr(gc, "get_referrers", lambda *things: everything.append(1) or search(*things))
    old = Box(None)
    gc.collect()  # now it is old
    gc.disable()
    try:
        began = holders.now()
        thing = [1]
        mine, other, old.held = Box(thing), Box([1]), thing
        if collect:
            gc.collect(1)
        found = holders.holders([thing, vars(mine), vars(old)], Box, began, [old])
    finally:
        gc.enable()
    assert [thing in found for thing in (mine, old, other)] == [True, True, False]
    assert bool(everything) is collect


def test_nothing_was_made() -> None:
    assert holders.holders([], Box, holders.now()) == []


@pytest.mark.parametrize("collect", [False, True])
def test_tensors_that_outlive_an_exception_are_real(collect: bool) -> None:
    kept: list[Any] = []
    moved = distcompile.zeros(3)

    def step(x: Any) -> None:
        kept.append([x * 2])
        moved.data = x + 1
        if collect:
            gc.collect()
        raise KeyError("stop")

    with pytest.raises(KeyError):
        distcompile.compile(step, backend="eager")(distcompile.ones(3))
    assert kept[0][0].tolist() == moved.tolist() == [2.0, 2.0, 2.0]
