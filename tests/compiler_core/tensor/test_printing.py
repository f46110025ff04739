"""The text of a Tensor is torch's text with our name for dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile
from compiler_core.tensor.making import creation
from distcompile.as_torch.places import PLACES, found

ARRAYS = {
    "scalar": np.float32(1.5),
    "whole": np.array([1.0, -2.0, 30.0], np.float32),
    "fractions": np.array([[1.5, -2.25], [0.1, 100.0]], np.float32),
    "small": np.array([1e-5, 0.5], np.float32),
    "wide": np.array([1e-3, 12345.678], np.float32),
    "large": np.array([1e9, 1.0], np.float32),
    "nan": np.array([np.nan, np.inf, -np.inf, 1.0], np.float32),
    "nan fractions": np.array([np.nan, 0.5, -np.inf], np.float32),
    "all nan": np.array([np.nan], np.float32),
    "zeros": np.zeros((2, 2), np.float32),
    "double": np.array([1.5, 2.5]),
    "half": np.array([1.5], np.float16),
    "ints": np.array([[1, -20], [300, 4]]),
    "int32": np.array([1, 2], np.int32),
    "bool": np.array([True, False]),
    "empty": np.zeros((0,), np.float32),
    "empty int": np.zeros((0,), np.int64),
    "empty matrix": np.zeros((2, 0), np.float32),
    "cube": np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 4,
    "long row": np.arange(50, dtype=np.float32) / 8,
    "long ints": np.arange(60),
    "summarized": np.arange(2000, dtype=np.float32).reshape(20, 100) / 8,
    "summarized row": np.arange(5000),
    "summarized cube": np.arange(8 * 9 * 20).reshape(8, 9, 20),
    "one column": np.arange(3, dtype=np.float32).reshape(3, 1) / 3,
}


@pytest.mark.torch
@pytest.mark.parametrize("name", ARRAYS)
def test_text_is_torch_s(name: str) -> None:
    torch = pytest.importorskip("torch")
    array: Any = ARRAYS[name]
    expected = repr(torch.tensor(array)).replace("torch.", "distcompile.")
    assert repr(creation.tensor(array)) == expected


def test_history_is_shown() -> None:
    x = creation.tensor([1.0], requires_grad=True)
    assert repr(x) == "tensor([1.], requires_grad=True)"
    assert repr(x * 2.0) == "tensor([2.], grad_fn=<MulBackward0>)"


@pytest.mark.torch
@pytest.mark.parametrize("count", [9, 13, 16, 17, 18, 19, 27])
def test_long_lines_break_where_torch_breaks_them(count: int) -> None:
    torch = pytest.importorskip("torch")
    array = np.full((count,), 0.125)
    expected = repr(torch.tensor(array, requires_grad=True))
    # our dtype names are longer, and move the break: compare with names of one length
    got = repr(creation.tensor(array, requires_grad=True)).replace("distcompile.", "torch.")
    assert "".join(got.split()) == "".join(expected.split())
    narrow = array.astype(np.float32)
    assert repr(creation.tensor(narrow, requires_grad=True)) == repr(torch.tensor(narrow, requires_grad=True))


def test_formatting_of_one_element() -> None:
    assert f"{creation.tensor(1.25):.1f}" == "1.2"
    assert f"{creation.tensor([1.0])}" == "tensor([1.])"
    assert f"{creation.tensor(7):d}" == "7"


@pytest.mark.torch
@pytest.mark.parametrize(
    "options",
    [
        {"precision": 2},
        {"sci_mode": True},
        {"sci_mode": False},
        {"threshold": 5, "edgeitems": 1},
        {"linewidth": 40},
        {"profile": "short"},
        {"profile": "full", "precision": 1},
    ],
    ids=str,
)
def test_print_options_are_torchs(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    arrays = [np.array([1.23456, 2e9]), np.arange(30, dtype=np.float32), np.full((3, 50), 0.5, np.float32)]
    try:
        for library in (torch, distcompile):
            library.set_printoptions(**options)
        for array in arrays:
            expected, got = repr(torch.from_numpy(array)), repr(distcompile.from_numpy(array))
            assert got.replace("distcompile.", "torch.") == expected
    finally:
        for library in (torch, distcompile):
            library.set_printoptions(profile="default")
    assert repr(distcompile.tensor([0.123456])) == "tensor([0.1235])"


@pytest.mark.torch
@pytest.mark.parametrize(
    "number", [0.0, -0.0, float("-inf"), float("nan"), -0.0 + 0j, 1 - 0j, complex(-0.0, 1e9)], ids=str
)
def test_lines_break_by_the_numbers_that_count(number: complex) -> None:
    """Zeros, infinities and NaN are no wider than what is finite and not 0, however they are printed."""
    torch = pytest.importorskip("torch")
    for rest in (0.0, 2.0, 0.5):
        array = np.full(60, rest, type(number))
        array[::2] = number
        narrow = array.astype(np.complex64 if array.dtype.kind == "c" else np.float32)
        assert repr(distcompile.from_numpy(narrow)) == repr(torch.from_numpy(narrow))


@pytest.mark.torch
def test_parts_of_a_text_are_torchs() -> None:
    """What libraries take of torch._tensor_str to print classes of their own."""
    torch = pytest.importorskip("torch")
    names = ("_tensor_str", "_add_suffixes", "_str_intern", "printoptions")
    ours = {name: found(PLACES[f"torch._tensor_str.{name}"]) for name in names}
    told: list[list[str]] = []
    for lib, parts in ((distcompile, ours), (torch, {name: getattr(torch._tensor_str, name) for name in names})):
        x = lib.arange(6.0).view(2, 3) / 7
        with parts["printoptions"](precision=2, sci_mode=False):
            inside = parts["_tensor_str"](x, 8)
        told.append([
            inside, parts["_tensor_str"](x, 3), parts["_str_intern"](x, tensor_contents="..."),
            parts["_add_suffixes"]("Index([0]", ["dim_size=3", "is_sorted=True"], 6, False),
            parts["_add_suffixes"]("Index([0]", ["dim_size=3", "is_sorted=True"], 6, True),
        ])  # fmt: skip
    assert told[0] == told[1]
