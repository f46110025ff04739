"""Tensors with gaps between their rows, as batches whose columns are cut off are: one capture for all sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import distcompile as dc
from distcompile import Tensor

SIZES = ((4, 7), (4, 9), (3, 12), (2, 5), (5, 33), (7, 64), (3, 3), (4, 7))
CUTS: dict[str, Callable[[int, int], Tensor]] = {
    "first column": lambda n, t: dc.randn(n, t + 1)[:, 1:],
    "last column": lambda n, t: dc.randn(n, t + 1)[:, :-1],
    "every third": lambda n, t: dc.randn(n, 3 * t)[:, ::3],
    "one of channels": lambda n, t: dc.randn(n, t, 4)[:, :, 2],
    "turned": lambda n, t: dc.randn(t, n + 2).t()[2:],
    "middle of three": lambda n, t: dc.randn(n, t + 2, 6)[:, 1:-1, 2:],
}


def asked(x: Tensor) -> list[Any]:
    """What strides decide: views, contiguity, and the numbers themselves."""
    flat = x.reshape(-1)
    return [
        flat * 2,
        x.is_contiguous(),
        x.stride(),
        x.stride(0),
        (x.transpose(0, 1) + 1).contiguous(),
        x.sum(0),
        x.shape,
    ]


@pytest.mark.parametrize("cut", CUTS)
def test_rows_with_gaps_are_captured_once(cut: str) -> None:
    dc.manual_seed(0)
    compiled: Any = dc.compile(asked, dynamic=True, backend="aot_eager")
    for n, t in SIZES:
        x = CUTS[cut](n, t)
        for got, expected in zip(compiled(x), asked(x), strict=True):
            if isinstance(expected, Tensor):
                dc.testing.assert_close(got, expected, rtol=0, atol=0)
                assert got.stride() == expected.stride()
            else:
                assert got == expected
    assert len(compiled.explain().entries) <= 2


def test_a_call_without_gaps_is_another_capture() -> None:
    compiled: Any = dc.compile(asked, dynamic=True, backend="aot_eager")
    for x in (dc.randn(4, 8)[:, 1:], dc.randn(4, 7), dc.randn(5, 6)[:, 1:], dc.randn(7, 4).t(), dc.randn(3, 3)):
        for got, expected in zip(compiled(x), asked(x), strict=True):
            assert dc.equal(got, expected) if isinstance(expected, Tensor) else got == expected
    assert len(compiled.explain().entries) == 3


def test_memory_that_overlaps_keeps_its_numbers() -> None:
    compiled: Any = dc.compile(asked, dynamic=True, backend="aot_eager")
    for n in (3, 5):
        for x in (dc.arange(20.0).as_strided((n, 4), (2, 1)), dc.arange(4.0).expand(n, 4)):
            for got, expected in zip(compiled(x), asked(x), strict=True):
                assert dc.equal(got, expected) if isinstance(expected, Tensor) else got == expected


def test_writes_to_rows_with_gaps_reach_the_memory() -> None:
    def double(x: Tensor) -> None:
        x.mul_(2)

    compiled: Any = dc.compile(double, dynamic=True, backend="aot_eager")
    for n, t in SIZES:
        base = dc.randn(n, t + 1)
        expected = base.clone()
        expected[:, 1:] *= 2
        compiled(base[:, 1:])
        dc.testing.assert_close(base, expected, rtol=0, atol=0)


def test_a_language_models_step_is_captured_once() -> None:
    dc.manual_seed(0)
    embed, head = dc.nn.Embedding(20, 8), dc.nn.Linear(8, 20)

    def step(x: Tensor, y: Tensor) -> Tensor:
        return dc.nn.functional.cross_entropy(head(embed(x)).flatten(0, 1), y.flatten())

    compiled: Any = dc.compile(step, dynamic=True, fullgraph=True)
    for n, t in ((4, 7), (4, 9), (3, 12), (2, 5)):
        batch = dc.randint(0, 20, (n, t))
        dc.testing.assert_close(compiled(batch[:, :-1], batch[:, 1:]), step(batch[:, :-1], batch[:, 1:]))
    assert len(compiled.explain().entries) == 1
