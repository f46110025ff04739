"""The user's line and call: the first frame outside of our packages; the demo counts as a user's code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import compiler_core
import distcompile as torch
from compiler_core.errors import DistCompileError
from compiler_core.location import is_ours, user_frame, user_location
from distcompile import nn

ROOT = Path(compiler_core.__file__).resolve().parents[1]


def test_what_is_ours() -> None:
    assert is_ours(str(ROOT / "compiler_core" / "tensor" / "cell.py"))
    assert is_ours(str(ROOT / "distcompile" / "nn" / "module.py"))
    assert is_ours("<frozen importlib._bootstrap>")
    assert not is_ours(str(ROOT / "distcompile" / "demo" / "model.py"))
    assert not is_ours(str(ROOT / "compiler_core_of_a_friend" / "x.py"))
    assert not is_ours(__file__)


def test_the_line_is_this_one() -> None:
    frame = user_frame()
    assert frame is not None
    assert frame.f_code.co_name == "test_the_line_is_this_one"
    assert user_location().startswith(f"{__file__}:")


@pytest.mark.parametrize(
    ("wrong", "call"),
    [
        (lambda: torch.ones(2, 3) + torch.ones(2, 4), "in: add(input: f32[2, 3], other: f32[2, 4], alpha: 1)\n"),
        (lambda: torch.ones(2, 3).transpose(0, 5), "in: transpose(input: f32[2, 3], dim0: 0, dim1: 5)\n"),
        (lambda: torch.cat([torch.ones(2, 3), torch.ones(3, 4)]), "in: cat(tensors: [f32[2, 3], f32[3, 4]], dim: 0)\n"),
        (lambda: torch.ones(2).view(3), "in: view(self: f32[2], 3)\n"),
        (lambda: nn.Sequential(nn.Linear(2, 3), nn.Linear(4, 2))(torch.ones(1, 2)), "in: Linear(f32[1, 3])\n"),
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "in: Conv2d(in_channels: 3, out_channels: 4, kernel_size: 3, "),
        (lambda: nn.functional.conv2d(torch.ones(2, 3), torch.ones(1)), "in: conv2d(input: f32[2, 3], weight: f32[1],"),
        (lambda: nn.functional.max_pool1d(torch.ones(2, 3), 0), "in: max_pool1d(input: f32[2, 3], kernel_size: 0, "),
        (lambda: torch.ones(2).item(), "in: item(self: f32[2])\n"),
        (lambda: torch.normal(0.0, -1.0, (2,)), "in: normal(mean: 0.0, std: -1.0, size: (2,))"),
    ],
)
def test_errors_of_arguments_name_the_call_and_the_users_line(wrong: Callable[[], object], call: str) -> None:
    with pytest.raises(DistCompileError) as caught:
        wrong()
    assert call in str(caught.value)
    assert caught.value.where == f"{__file__}:{wrong.__code__.co_firstlineno}"


def test_long_arguments_are_cut_and_modules_of_the_users_are_the_users() -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.einsum("ij->" + "k" * 90, x)

    with pytest.raises(DistCompileError) as caught:
        Net()(torch.ones(2, 3))
    assert "in: einsum(equation: 'ij->" + "k" * 35 + "..., f32[2, 3])" in str(caught.value)
    assert caught.value.where == f"{__file__}:{Net.forward.__code__.co_firstlineno + 1}"


def test_an_argument_that_cannot_be_looked_at_hides_no_error() -> None:
    class Odd(float):
        @property
        def shape(self) -> object:
            raise OSError("no")

    with pytest.raises(DistCompileError, match=r"in: dropout\(input: f32\[2\], p: Odd"):
        nn.functional.dropout(torch.ones(2), Odd(7.0))
