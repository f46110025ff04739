"""Tensors made of a number that changes, filled with it, chosen by it: 20 values, at most two captures, eager's bits.

Each program runs on the CPU by generated code and op by op, and on the stand-in device op by op. What generated code
rounds otherwise than NumPy (powers, logarithms) is not among them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

import distcompile as torch
from compiler_core.errors import NumberRangeError
from tests.fake_cupy import on_fake_device

VALUES = [0.37 + 0.21 * k for k in range(20)]
Program = Callable[[Any, float, str], Any]


def into(x: Any, write: Callable[[Any], Any]) -> Any:
    y = x.clone()
    write(y)
    return y


PROGRAMS: dict[str, Program] = {
    "full of one": lambda x, c, d: x * torch.full((), c, device=d),
    "full": lambda x, c, d: x[:2, :3] + torch.full((2, 3), c, device=d),
    "full by names": lambda x, c, d: x * torch.full(size=(), fill_value=c, device=d),
    "full, a whole number": lambda x, c, d: x * torch.full((4,), int(c * 3), device=d),
    "full of float64": lambda x, c, d: x * torch.full((), c, device=d, dtype=torch.float64),
    "full of bfloat16": lambda x, c, d: x * torch.full((4,), c, device=d, dtype=torch.bfloat16),
    "full of float16": lambda x, c, d: x * torch.full((4,), c, device=d, dtype=torch.float16),
    "full of int32": lambda x, c, d: torch.full((2,), int(c * 3), device=d, dtype=torch.int32),
    "full, cut to a whole number": lambda x, c, d: torch.full((2,), c * 3, device=d, dtype=torch.int64),
    "full of bool": lambda x, c, d: torch.full((2,), c, device=d, dtype=torch.bool),
    "full_like": lambda x, c, d: x * torch.full_like(x, c),
    "full_like of another dtype": lambda x, c, d: x * torch.full_like(x, fill_value=c, dtype=torch.float64),
    "full_like of int64": lambda x, c, d: torch.full_like(x.long(), int(c * 3)),
    "new_full": lambda x, c, d: x * x.new_full((4,), c),
    "new_full of float64": lambda x, c, d: x * x.new_full((), c, dtype=torch.float64),
    "tensor": lambda x, c, d: x * torch.tensor(c, device=d),
    "tensor of float16": lambda x, c, d: x * torch.tensor(c, device=d, dtype=torch.float16),
    "tensor of a list": lambda x, c, d: x[:, :2] * torch.tensor([c, 2 * c], device=d),
    "tensor of lists": lambda x, c, d: x[:2, :2] * torch.tensor([[c, 2], [1.5, c + 1]], device=d, dtype=torch.float64),
    "tensor that takes a gradient": lambda x, c, d: (x * torch.tensor(c, device=d, requires_grad=True)).detach(),
    "as_tensor, written to": lambda x, c, d: torch.as_tensor(c, device=d).add_(1) * c,
    "scalar_tensor": lambda x, c, d: x * torch.scalar_tensor(c, device=d),
    "new_tensor": lambda x, c, d: x[:, :2] * x.new_tensor([c, 1.0]),
    "fill_": lambda x, c, d: into(x, lambda y: y.fill_(c)),
    "fill_ of whole numbers": lambda x, c, d: into(x.int(), lambda y: y.fill_(int(c * 3))),
    "fill_ of a part": lambda x, c, d: into(x, lambda y: y[0].fill_(c)),
    "fill": lambda x, c, d: torch.fill(x, c),
    "an item": lambda x, c, d: into(x, lambda y: y.__setitem__(0, c)),
    "fill_diagonal_": lambda x, c, d: into(x, lambda y: y.fill_diagonal_(c)),
    "index_fill": lambda x, c, d: x.index_fill(0, torch.tensor([0, 2], device=d), c),
    "masked_fill_": lambda x, c, d: into(x, lambda y: y.masked_fill_(y > 0, c)),
    "where of two": lambda x, c, d: torch.where(x > 0, c, c * 2),
    "where of one and a constant": lambda x, c, d: torch.where(x > 0, c, 1),
    "where of whole numbers": lambda x, c, d: torch.where(x > 0, int(c * 3), 0),
    "where of a tensor": lambda x, c, d: x.where(x > 0, c),
    "arange from": lambda x, c, d: torch.arange(c, c + 3.5, device=d),
    "arange to": lambda x, c, d: torch.arange(3.0 + c / 100, device=d),
    "arange by": lambda x, c, d: torch.arange(0, 3.5 * c, c, device=d, dtype=torch.float64),
    "linspace": lambda x, c, d: torch.linspace(-c, 2 * c, 7, device=d),
    "linspace to a whole number": lambda x, c, d: torch.linspace(0, int(c * 3), 5, device=d),
    "over": lambda x, c, d: c / x,
    "rest": lambda x, c, d: x % c + x // c + torch.remainder(c, x) + torch.fmod(x, c),
    "floored": lambda x, c, d: torch.div(x, c, rounding_mode="floor"),
    "rsub": lambda x, c, d: torch.rsub(x, c),
    "bounds": lambda x, c, d: x.clamp_min(-c) + x.clone().clamp_max_(c),
    "lerp": lambda x, c, d: torch.lerp(x, x * 2, c),
    "lerp of several": lambda x, c, d: into(x, lambda y: torch._foreach_lerp_([y], [x * 3], c)),
    "several": lambda x, c, d: torch._foreach_add(torch._foreach_mul([x, x + 1], c), [x, x], alpha=c)[1],
    "times bfloat16": lambda x, c, d: x.bfloat16() * c,
    "bfloat16 over, and more": lambda x, c, d: x.bfloat16() / c + c,
    "more than float16": lambda x, c, d: c + x.half() - c * x.half(),
    "less than bfloat16": lambda x, c, d: (x.bfloat16() < c) & (c > x.half()),
    "times int32": lambda x, c, d: x.int() * int(c * 3),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_captures_and_eagers_bits(name: str) -> None:
    for place, backend in (("cpu", "codegen"), ("cpu", "aot_eager"), ("cuda", "aot_eager")):
        with on_fake_device(1) if place == "cuda" else nullcontext():
            torch.manual_seed(0)
            x = torch.randn(4, 4, device=place)
            compiled = torch.compile(PROGRAMS[name], fullgraph=True, backend=backend)
            for value in VALUES:
                made, expected = compiled(x, value, place), PROGRAMS[name](x, value, place)
                assert (made.dtype, made.device, made.shape) == (expected.dtype, expected.device, expected.shape)
                assert torch.equal(made, expected), value
            assert len(compiled.explain().entries) <= 2


def test_numbers_that_do_not_fit_are_refused_as_before() -> None:
    compiled = torch.compile(lambda x, n: torch.full_like(x, n), fullgraph=True)
    x = torch.zeros(2, dtype=torch.uint8)
    for n in (3, 4, 5, 255):
        assert compiled(x, n).tolist() == [n, n]
    with pytest.raises(NumberRangeError, match="without overflow"):
        compiled(x, 256)
    assert compiled(x, 7).tolist() == [7, 7]


def test_numbers_of_other_kinds_are_captured_anew() -> None:
    compiled = torch.compile(lambda x, n: torch.full((2,), n), fullgraph=True)
    x = torch.zeros(2)
    for n in (1.5, 2.5, 3, 4, True, 3.5, 1 + 2j):
        assert torch.equal(compiled(x, n), torch.full((2,), n))
        assert compiled(x, n).dtype is torch.full((2,), n).dtype


def test_how_many_numbers_a_range_has_is_guarded() -> None:
    compiled = torch.compile(lambda x, a, b, s: torch.arange(a, b, s) + x, fullgraph=True)
    x = torch.zeros(1)
    for args in (
        (0.5, 2.0, 0.5),
        (0.7, 2.1, 0.5),
        (0.7, 3.1, 0.5),
        (0.0, -2.0, -0.5),
        (-0.0, -2.5, -0.5),
        (0.1, 2.2, 0.7),
    ):
        assert torch.equal(compiled(x, *args), torch.arange(*args))
    with pytest.raises(Exception, match="step"):
        compiled(x, 0.1, 2.2, 0.0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_is_written_over_stays_on_its_device(backend: str) -> None:
    writes: list[Callable[[Any], Any]] = [
        lambda x: x.clone().zero_(),
        lambda x: x.clone().fill_(2.0),
        lambda x: x.clone().copy_(torch.ones(4)),
    ]
    with on_fake_device(1):
        x = torch.ones(4, 4, device="cuda")
        for write in writes:
            made = torch.compile(write, fullgraph=True, backend=backend)(x)
            assert made.device == x.device
            assert torch.equal(made, write(x))


def test_a_list_of_numbers_that_the_graph_computes_is_in_it_without_its_history() -> None:
    def both(x: Any) -> Any:
        made = torch.tensor([x.sum(), x.double().mean(), 2])
        return made, made.requires_grad

    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    x = torch.randn(4, requires_grad=True)
    (made, history), (expected, _) = compiled(x), both(x)
    assert made.dtype is expected.dtype
    assert torch.equal(made, expected)
    assert history is False
