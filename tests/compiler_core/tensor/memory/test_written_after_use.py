"""Operands and results that are written to between the forward and the backward: where torch allows it, so do we, with
torch's gradients; sizes, old constructors and reductions of nothing, as torch has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile
from compiler_core.errors import AutogradError, DTypeError
from compiler_core.names.spelling import OWN, call_library

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
A = np.sin(np.arange(6, dtype=np.float32)).reshape(2, 3) + 2
B = np.cos(np.arange(6, dtype=np.float32)).reshape(2, 3) + 2
BOTH = pytest.mark.parametrize("library", [torch, distcompile], ids=["torch", "ours"])


def division(t: Any, a: Any, b: Any) -> Any:
    quotient = a / b
    quotient.mul_(3)
    return (quotient * t.arange(3.0)).sum()


def normalised(t: Any, a: Any, b: Any) -> Any:
    unit = t.nn.functional.normalize(a, dim=1)
    unit.add_(1)
    return (unit * b).sum()


def mean_of_classes(t: Any, a: Any, b: Any) -> Any:
    logits = a * b
    loss = t.nn.functional.cross_entropy(logits, t.tensor([0, 2]))
    logits.add_(t.arange(3.0))
    return loss


def sum_of_classes(t: Any, a: Any, b: Any) -> Any:
    logits = a * b
    loss = t.nn.functional.cross_entropy(logits, t.tensor([1, -100]), reduction="none")
    with t.no_grad():
        logits.zero_()
    return loss.sum()


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("program", [division, normalised, mean_of_classes, sum_of_classes])
def test_gradients_of_what_was_written_to_after_its_use(program: Callable[..., Any], twice: bool) -> None:
    found = []
    for t in (torch, distcompile):
        a, b = (t.tensor(x, requires_grad=True) for x in (A, B))
        program(t, a, b).backward(retain_graph=twice)
        found.append((a.grad.numpy(), b.grad.numpy()))
    for theirs, ours in zip(*found):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_gradients_of_gradients_through_a_division_that_was_written_to() -> None:
    found = []
    for t in (torch, distcompile):
        a, b = (t.tensor(x, requires_grad=True) for x in (A, B))
        (slope,) = t.autograd.grad(division(t, a, b), b, create_graph=True)
        (slope * slope).sum().backward()
        found.append((a.grad.numpy(), b.grad.numpy()))
    for theirs, ours in zip(*found):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@BOTH
def test_parts_and_sums_of_sizes_are_sizes(library: Any) -> None:
    size = library.zeros(2, 3, 4).shape
    for made in (size[1:], size[:1] + size[1:], size + (5,), 2 * size, size * 2):
        assert isinstance(made, library.Size)
    assert size[1:].numel() == 12
    assert size[-1] == 4
    assert type(size[0]) is int
    assert size == (2, 3, 4)


def test_values_are_printed_under_the_name_of_the_library_that_was_imported() -> None:
    values: Callable[[Any], list[Any]] = lambda t: [  # noqa: E731
        t.zeros(2, 3).shape, t.zeros(2, 3).shape[1:], t.float32, t.bfloat16, t.bool, t.channels_last, t.strided,
        t.zeros(2, dtype=t.float64), t.Size([]),
    ]  # fmt: skip
    assert repr(distcompile.float32) == "distcompile.float32"
    call_library("torch")
    try:
        assert list(map(repr, values(distcompile))) == list(map(repr, values(torch)))
    finally:
        call_library(OWN)
    assert str(distcompile.zeros(2, 3).shape) == "(2, 3)"


@BOTH
def test_strides_through_a_leaf_that_is_a_view_have_gradients(library: Any) -> None:
    x = library.arange(6.0).reshape(2, 3).requires_grad_()
    (x.as_strided((3, 2), (1, 2)) * library.arange(2.0)).sum().backward()
    assert x.grad.tolist() == [[0, 0, 1], [1, 1, 0]]


def test_strides_through_a_part_that_alone_requires_a_gradient_are_refused() -> None:
    x = distcompile.arange(6.0)[::2].requires_grad_()
    with pytest.raises(AutogradError, match="as_strided"):
        x.as_strided((2,), (1,))


@BOTH
def test_the_hard_gumbel_softmax_is_one_hot_also_where_two_are_as_great(library: Any) -> None:
    logits = library.zeros(400, 50, dtype=library.bfloat16)
    logits[:, :2] = 1e4  # beyond what noise could part in this dtype
    assert (library.nn.functional.gumbel_softmax(logits, hard=True).float().round() > 0).sum(1).max().item() == 1


@BOTH
def test_the_old_constructor(library: Any) -> None:
    x = library.tensor([1, 2], dtype=library.int32)
    for made, shape in [(x.new(), (0,)), (x.new(3), (3,)), (x.new(2, 3), (2, 3)), (x.new(x.size()), (2,))]:
        assert (made.dtype, tuple(made.shape)) == (library.int32, shape)
    assert x.new([4, 5, 6]).tolist() == [4, 5, 6]


def test_the_old_constructor_takes_one_sequence() -> None:
    with pytest.raises(DTypeError, match="new"):
        distcompile.zeros(2).new([1], [2])


@BOTH
@pytest.mark.parametrize("name", ["max", "min", "amax", "amin", "argmax", "argmin"])
def test_the_greatest_of_nothing_is_an_index_error(library: Any, name: str) -> None:
    with pytest.raises(IndexError):
        getattr(library.zeros(0, 3), name)(0)


@BOTH
def test_the_median_of_nothing_is_a_tensor_with_a_gradient(library: Any) -> None:
    x = library.zeros(0, 3, requires_grad=True)
    assert np.isnan(x.median().item())
    x.median().backward()
    assert tuple(x.grad.shape) == (0, 3)
    assert library.zeros(0, dtype=library.int64).median().item() == torch.zeros(0, dtype=torch.int64).median().item()
