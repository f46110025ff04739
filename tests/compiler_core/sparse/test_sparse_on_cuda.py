"""Sparse tensors on a CUDA device give what they give on the CPU; on a stand-in, and on a GPU where there is one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sparse_expressions import ARITHMETIC, CONVERSION, GRADIENTS, IN_PLACE, MOVEMENT, PRODUCTS, REDUCTIONS, operands

import distcompile
from compiler_core.errors import DistCompileError
from tests.fake_cupy import on_fake_device

TABLES = {
    "arithmetic": ARITHMETIC,
    "conversion": CONVERSION,
    "in place": IN_PLACE,
    "movement": MOVEMENT,
    "products": PRODUCTS,
    "reductions": REDUCTIONS,
}


@pytest.fixture(autouse=True)
def device() -> Iterator[Any]:
    with on_fake_device() as module:
        yield module


def numbers(value: Any, place: str) -> Any:
    """What a result holds, on the CPU, in one list: all elements of tensors, which are on `place`."""
    if isinstance(value, (list, tuple)):
        return [number for one in value for number in numbers(one, place)]
    if isinstance(value, distcompile.Tensor):
        assert value.device.type == place
        return [value.detach().to_dense().cpu().numpy()]
    return [str(value)]


def outcome(text: str, place: str) -> Any:
    names = {name: one.to(place) for name, one in operands(distcompile).items()}
    try:
        return numbers(eval(text, {"t": distcompile, "copy": __import__("copy"), **names}), place)
    except (DistCompileError, TypeError) as error:
        return [type(error).__name__]


@pytest.mark.parametrize("table", TABLES)
def test_an_expression_gives_what_it_gives_on_the_cpu(table: str) -> None:
    for text in TABLES[table].strip().splitlines():
        if re.search(r"sparse_coo_tensor|t\.(empty|zeros|eye|ones|tensor)\(|^\w+\[.*\] = |^a\.uniform_", text):
            continue  # made on the CPU
        expected, got = outcome(text, "cpu"), outcome(text, "cuda")
        for mine, theirs in zip(got, expected, strict=True):
            if isinstance(theirs, np.ndarray):
                np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-7, err_msg=text)
            else:
                assert mine == theirs, text


def gradients(text: str, place: str) -> dict[str, np.ndarray]:
    names = {name: one.to(place) for name, one in operands(distcompile).items() if re.search(rf"\b{name}\b", text)}
    leaves = {name: one.requires_grad_() for name, one in names.items() if one.dtype.is_floating_point}
    made = eval(text, {"t": distcompile, **names})
    made.to_dense().square().sum().backward()
    return {name: leaf.grad.to_dense().cpu().numpy() for name, leaf in leaves.items() if leaf.grad is not None}


def test_gradients_are_those_of_the_cpu() -> None:
    for text in GRADIENTS:
        if "t.tensor(" not in text and "_tensor(" not in text:
            expected, got = gradients(text, "cpu"), gradients(text, "cuda")
            for name, theirs in expected.items():
                np.testing.assert_allclose(got[name], theirs, rtol=1e-6, atol=1e-7, err_msg=f"{text}, of {name}")


@pytest.mark.parametrize("name", ["SparseAdam", "SGD", "Adagrad"])
def test_training_is_that_of_the_cpu(name: str) -> None:
    found = []
    for place in ("cpu", "cuda"):
        layer = distcompile.nn.Embedding(7, 3, sparse=True)
        with distcompile.no_grad():
            layer.weight.copy_(distcompile.arange(21.0).reshape(7, 3).sin())
        layer = layer.to(place)
        optimizer = getattr(distcompile.optim, name)(layer.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            layer(distcompile.tensor([[1, 4, 1], [0, 6, 2]]).to(place)).square().sum().backward()
            optimizer.step()
        found.append(layer.weight.detach().cpu().numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
