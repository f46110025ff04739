"""Zeros and chances on the lone CUDA device are made at once: what the general way gives, of as many draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.tensor import dropping
from compiler_core.tensor.making import placement
from tests.fake_cupy import on_fake_device


@pytest.fixture(autouse=True)
def cupy() -> Iterator[Any]:
    with on_fake_device(devices=1) as there:
        yield there


def _facts(x: Any) -> Any:
    return str(x.dtype), str(x.device), x.stride(), x.requires_grad, x._version, x.detach().float().cpu().tolist()


def _zeros() -> list[Any]:
    like = dc.ones(2, 3, dtype=dc.bfloat16, device="cuda")
    made = [
        dc.zeros(2, 3, device="cuda"),
        dc.zeros((2, 0), dtype=dc.bfloat16, device=like.device),
        dc.empty([4, 1, 1], dtype=dc.float32, device="cuda:0"),
        dc.zeros(dc.Size([]), dtype=dc.int64, device="cuda"),
        dc.zeros(3, dtype=dc.complex64, device="cuda").real,
        dc.zeros(3, dtype=dc.bool, device="cuda"),
        like.new_zeros((5,)),
        like.new_empty(2, 2, dtype=dc.float64),
        like.new_zeros(2, requires_grad=True),
        dc.zeros(1, 2, 3, 4, device="cuda").to(memory_format=dc.channels_last),
        dc.zeros(1, 2, 3, 4, device="cuda", memory_format=dc.channels_last),
    ]
    with dc.device("cuda"):
        made.append(dc.zeros(2))
    for wrong in (lambda: dc.zeros(-1, device="cuda"), lambda: dc.zeros(2, device="cuda:1")):
        with pytest.raises((RuntimeError, TypeError, ValueError)):
            wrong()
    made[0].add_(1)
    return [_facts(x) for x in made]


def test_zeros_are_the_general_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _zeros()
    monkeypatch.setattr(placement, "zeros_of", lambda *_: None)
    assert found == _zeros()


def test_zeros_are_one_fill(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    zeros = cupy.zeros
    monkeypatch.setattr(cupy, "zeros", lambda *args: made.append(args) or zeros(*args))
    x = dc.empty([2, 1], dtype=dc.float32, device="cuda")
    y = x.new_zeros(3)
    assert (len(made), x.tolist(), y.tolist()) == (2, [[0.0], [0.0]], [0.0] * 3)


def test_a_full_device_says_so(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(cupy, "zeros", full)
    assert dc.zeros(2, device="cuda").tolist() == [0.0, 0.0]  # the general way has memory here


def _drawn(dtype: Any) -> list[Any]:
    dc.manual_seed(3)
    found = []
    for p in (0.0, 0.1, 0.9, 1.0, 0.1, 0.9):
        x = dc.empty(4, 5, 2, device="cuda", dtype=dtype)
        seen = x.detach()
        found += [_facts(x.bernoulli_(p)), _facts(seen)]
    part = dc.zeros(4, 6, device="cuda", dtype=dtype)
    part[1:3].bernoulli_(0.5)
    turned = dc.zeros(4, 6, device="cuda", dtype=dtype).t()
    turned.bernoulli_(0.5)
    own = dc.zeros(7, device="cuda", dtype=dtype).bernoulli_(0.5, generator=dc.Generator("cuda").manual_seed(2))
    return [*found, *map(_facts, (part, turned, own)), _facts(dc.rand(3, device="cuda"))]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int64", "bool"])
def test_chances_are_the_general_ways(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [_drawn(getattr(dc, dtype)) for _ in range(2)]
    assert found[0] == found[1]
    share = np.mean(found[0][4][-1])
    assert 0.5 < share <= 1.0
    monkeypatch.setattr(dropping, "CHANCE", type("Never", (), {"get": staticmethod(lambda: lambda *_: None)}))
    assert found[0] == _drawn(getattr(dc, dtype))


def test_a_chance_in_place_cuts_the_history() -> None:
    w = dc.ones(3, 4, device="cuda", requires_grad=True)
    y = w * 2
    z = y.square()
    y.bernoulli_(0.5)
    (y.sum() * 1).backward()
    assert w.grad.tolist() == [[0.0] * 4] * 3
    with pytest.raises(RuntimeError):
        z.sum().backward()
    with pytest.raises(RuntimeError):
        w.bernoulli_(0.5)
    with pytest.raises(RuntimeError):
        y.detach().bernoulli_(1.5)
