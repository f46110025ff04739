"""Sparse tensors do what torch's do: `sparse_expressions.py`, evaluated by both; gradients of those that have them."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sparse_expressions import EXPRESSIONS, GRADIENTS, GRADIENTS_BEYOND, GRADIENTS_DENSE_IN_TORCH, operands

import distcompile

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

KINDS = (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError)


@pytest.fixture(autouse=True)
def _without_torchs_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def elements(value: Any) -> tuple[list[Any], Any]:
    """The places of a sparse tensor's elements, in order, each once, and the elements there."""
    once = value.to_sparse()._coalesced_(False).coalesce()  # a CSR row of torch's may be in no order
    held = once._values()
    return once._indices().tolist(), (held.resolve_conj() if held.is_complex() else held.double()).numpy()


class Seen:
    """What is compared of a tensor: facts and places, which are equal, and numbers, which are close.

    Elements that are not coalesced have no order. What torch knows to be coalesced we know, too.
    """

    def __init__(self, value: Any) -> None:
        self.kind = str(value.layout).rpartition(".")[2]
        self.facts = (str(value.dtype).rpartition(".")[2], tuple(value.shape), value.requires_grad, value.is_leaf)
        self.is_coalesced = self.kind == "sparse_coo" and value.is_coalesced()
        value = value.detach()
        if self.kind == "strided":
            self.places, self.numbers = [], value.resolve_conj().numpy()
        else:
            self.places, self.numbers = elements(value)

    def __eq__(self, other: object) -> bool:
        """Whether `other`, which is ours, is like this one, which is torch's."""
        return (
            isinstance(other, Seen)
            and (self.kind, self.facts, self.places) == (other.kind, other.facts, other.places)
            and self.is_coalesced <= other.is_coalesced
            and self.numbers.shape == other.numbers.shape
            and np.allclose(self.numbers, other.numbers, rtol=2e-6, atol=1e-7, equal_nan=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self.kind} {self.facts} coalesced={self.is_coalesced} {self.places} {self.numbers.tolist()}"


def seen(value: Any) -> Any:
    """What is compared of a value."""
    if hasattr(value, "requires_grad"):
        return Seen(value)
    if isinstance(value, (list, tuple)):
        return [seen(one) for one in value]
    if isinstance(value, (bool, int, float)):
        return value
    return re.sub(r"\s+", " ", str(value).replace("distcompile.", "torch."))  # lines break where names are longer


def outcome(library: Any, text: str) -> Any:
    """What an expression (or a statement) gives, or the kinds of the error that it raises."""
    names = {"t": library, "copy": copy, **operands(library)}
    try:
        if re.match(r"\w+\[.*\] = ", text):
            exec(text, names)
            return "done"
        return seen(eval(text, names))
    except KINDS as error:
        return {kind.__name__ for kind in KINDS if isinstance(error, kind)}


def same(text: str, expected: Any, got: Any) -> bool:
    """Whether the outcomes are alike. An error of torch's is one of ours by at least one kind."""
    if isinstance(expected, set) and isinstance(got, set):
        return bool(expected & got)
    return bool(expected == got)


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_gives_what_torch_gives(text: str) -> None:
    expected, got = outcome(torch, text), outcome(distcompile, text)
    assert same(text, expected, got), f"{text}\ntorch:       {expected}\ndistcompile: {got}"


def gradients(library: Any, text: str) -> Any:
    """The gradients of all operands that an expression names."""
    everything = {name: one for name, one in operands(library).items() if re.search(rf"\b{name}\b", text)}
    for one in everything.values():
        if one.dtype.is_floating_point:
            one.requires_grad_()
    made = eval(text, {"t": library, **everything})
    whole = made.to_dense() if made.layout != library.strided else made
    weights = library.linspace(0.5, 2, whole.numel(), dtype=whole.dtype).reshape(whole.shape)
    (whole * whole * weights).sum().backward()
    found = {name: one.grad for name, one in everything.items() if one.grad is not None}
    # torch's gradient of a sparse product has zeros where ours has no element
    return {name: (str(g.layout).rpartition(".")[2], seen(g.to_dense())) for name, g in found.items()}


@pytest.mark.parametrize("text", GRADIENTS + GRADIENTS_DENSE_IN_TORCH)
def test_gradients_are_torchs(text: str) -> None:
    expected, got = gradients(torch, text), gradients(distcompile, text)
    for name, (layout, numbers) in expected.items():
        message = f"{text}, of {name}\ntorch:       {expected[name]}\ndistcompile: {got[name]}"
        assert numbers == got[name][1], message
        assert layout == got[name][0] or text in GRADIENTS_DENSE_IN_TORCH, message


@pytest.mark.parametrize("text", GRADIENTS_BEYOND)
def test_gradients_that_torch_does_not_have_are_those_of_finite_differences(text: str) -> None:
    everything = operands(distcompile)
    names = [name for name in everything if re.search(rf"\b{name}\b", text) and name != "index"]
    function = eval(f"lambda {', '.join(names)}: {text}", {"t": distcompile, "index": everything["index"]})
    check = distcompile.sparse.as_sparse_gradcheck(distcompile.autograd.gradcheck)
    inputs = [everything[name].requires_grad_() for name in names]
    assert check(function, tuple(inputs), masked=True)
