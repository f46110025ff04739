"""The program's own functions that run as they are see sizes as numbers; what gives no graph at some sizes falls back.

In: functions that look at sizes natively, by text, type or hash, where an expression would be taken for a number in
silence. Out: what eager code gives, at several sizes, and which calls were captured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import distcompile as torch
from compiler_core.capture import captured
from distcompile import _dynamo

SIZES = (5, 3, 12, 11, 5)
TABLE = {5: 2.0, 3: 7.0, 11: 3.0}


def agrees(function: Callable[..., Any], sizes: tuple[int, ...] = SIZES) -> Any:
    """The compiled function, after it gave what eager code gives, gradients too."""
    compiled = torch.compile(function, dynamic=True, backend="aot_eager")
    for n in sizes:
        found = []
        for one in (function, compiled):
            x = torch.arange(n * 4.0).reshape(n, 4).requires_grad_()
            result = one(x)
            result.sum().backward()
            assert x.grad is not None
            found.append((result.tolist(), x.grad.tolist()))
        assert found[0] == found[1], f"at {n}"
    return compiled


@_dynamo.allow_in_graph
def looks(x: Any, *numbers: int) -> Any:
    seen = [x.shape[0], x.size(0), x.size()[0], len(x), x.numel(), x.nelement(), x.stride(0), x[1:].storage_offset()]
    assert all(type(n) is int for n in (*seen, *numbers, x.nbytes, torch.numel(x)))
    return x * TABLE.get(x.shape[0], 1.0) + len(f"{x.shape[0]} {x.shape}")


def test_a_function_that_is_allowed_sees_numbers() -> None:
    agrees(lambda x: looks(x) + looks(x * 2, x.shape[0], x.shape[0] + 1))


def test_one_that_asks_no_size_keeps_symbols() -> None:
    @_dynamo.allow_in_graph
    def flat(x: Any) -> Any:
        return torch.sin(x).reshape(-1)

    assert len(agrees(lambda x: flat(x) * x.shape[0]).explain().entries) == 1


@_dynamo.allow_in_graph
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.rows = x.shape[0]
        return x * len(str(x.shape[0]))

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * len(str(ctx.rows)) * len(str(grad.shape[0]))


def test_a_function_with_its_own_gradient_that_is_allowed_sees_numbers() -> None:
    agrees(lambda x: Scaled.apply(x))


class Holder:
    def __init__(self, rows: int) -> None:
        self.rows = rows


@_dynamo.allow_in_graph
def reads(x: Any, held: Any) -> Any:
    rows = held() if callable(held) else held.rows
    return x * TABLE.get(rows, 1.0) + len(str(rows))


@pytest.mark.filterwarnings("ignore:.*sizes are constants")
@pytest.mark.parametrize("hold", [Holder, lambda n: lambda: n], ids=["object", "closure"])
def test_an_object_that_holds_sizes_makes_them_constants(hold: Any) -> None:
    agrees(lambda x: reads(x, hold(x.shape[0])))


SEEN = {"rows": 0}
KEPT = Holder(0)


@_dynamo.allow_in_graph
def reads_what_is_around(x: Any) -> Any:
    return x * TABLE.get(SEEN["rows"], 1.0) + KEPT.rows


def test_sizes_that_were_written_before_are_numbers() -> None:
    def written(x: Any) -> Any:
        SEEN["rows"], KEPT.rows = x.shape[0], x.shape[0] + 1
        return reads_what_is_around(x)

    agrees(written)


@torch.compiler.assume_constant_result
def factor(x: Any) -> float:
    return TABLE.get(x.shape[0], 1.0)


def test_a_constant_result_is_one_of_the_sizes_of_its_tensors() -> None:
    agrees(lambda x: x * factor(x) * factor(x * 2))


@torch.library.custom_op("own_code::scale", mutates_args=())
def scale(x: torch.Tensor, n: int, f: float) -> torch.Tensor:
    return x * float(f"{n}") + f


@pytest.mark.filterwarnings("error")
def test_an_operator_of_the_programs_takes_sizes() -> None:
    agrees(lambda x: scale(x.detach(), x.shape[0] + 1, x.shape[0]) + x)


def test_a_graph_that_fails_at_other_sizes_is_captured_with_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = captured.graph_at

    def failing(graph: Any, numbers: Any, name: str) -> Any:
        if 12 in numbers.values():
            raise ValueError("no graph for 12")
        return plain(graph, numbers, name)

    monkeypatch.setattr(captured, "graph_at", failing)
    with pytest.warns(
        UserWarning, match="sizes are constants where it is compiled: ValueError: no graph for 12"
    ) as said:
        agrees(lambda x: x.sin() * x.shape[0])
    assert len([one for one in said if "sizes are constants" in str(one.message)]) == 1


def test_apply_ends_the_graph() -> None:
    def doubled(x: Any) -> Any:
        return x.detach().clone().apply_(lambda v: v * 2) + x

    agrees(doubled)


@pytest.mark.filterwarnings("error")
def test_windows_of_unlike_lengths() -> None:
    def pooled(x: Any) -> Any:
        image = x.reshape(1, 1, 4, -1)
        return torch.nn.functional.adaptive_avg_pool2d(image.detach(), 3) + torch.nn.functional.adaptive_max_pool2d(
            image, 3
        )

    agrees(pooled)
