"""What a mask selects: elementwise code on it and its way back are in the graph; all else breaks where it is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import distcompile as dc
from compiler_core.errors import GraphBreak
from distcompile import Tensor
from distcompile.nn import functional as F

Program = Callable[[Tensor, Tensor], Any]


def scaled(x: Tensor, mask: Tensor) -> Any:
    x[mask] *= 2
    return x


def among_themselves(x: Tensor, mask: Tensor) -> Any:
    x[x > 0] = x[x > 0].sqrt() / x[x > 0] - 0.5
    return x


def functions(x: Tensor, mask: Tensor) -> Any:
    x[mask] = F.gelu(x[mask].clamp(-1, 1)) + dc.exp(-x[mask]).neg()
    return x


def beside_other_tensors(x: Tensor, mask: Tensor) -> Any:
    rows = mask[:, 0]
    x[rows] = x[rows] * dc.tensor([1.0, 2.0, 3.0]) + x.detach().sum()
    return x


def in_place(x: Tensor, mask: Tensor) -> Any:
    part = x[mask]
    again = part.mul_(3)
    part += 1
    x[mask] = again
    return x, part is again


def selections(x: Tensor, mask: Tensor) -> Any:
    kept = x[mask]
    return kept, (kept * 2).abs(), x[mask[:, 1]], kept > 0, kept.dtype


def summed(x: Tensor, mask: Tensor) -> Any:
    return x[mask].sum(), F.relu(x[mask]).mean(), x[mask[:, 0]].mean()


def selected_by_name(x: Tensor, mask: Tensor) -> Any:
    return x.masked_select(mask), dc.masked_select(x * 2, mask=x > 0).mean()


def nothing_infinite(x: Tensor, mask: Tensor) -> Any:
    x = x * mask  # zeros where it does not hold
    x[mask] = x[mask].abs().log() / x[mask]
    return x


def kept_in_a_list(x: Tensor, mask: Tensor) -> Any:
    found = [x[mask]]
    x[mask] = 0.0
    return found, x


def handed_through_a_break(x: Tensor, mask: Tensor) -> Any:
    kept = x[mask] + 1
    x[mask] = kept
    rows = kept.shape[0]
    return kept * rows, x, kept.sort().values


def other_ranks(x: Tensor, mask: Tensor) -> Any:
    rows = mask[:, 0]
    return x[rows] * x[rows][:, :1], dc.masked_select(x, rows[:, None]), x[rows, 0] + x[:, 0][rows]


def other_masks(x: Tensor, mask: Tensor) -> Any:
    x[mask] = x[~mask][: int(mask.sum())].repeat(9)[: int(mask.sum())]
    return x, x[mask].max()


def shapes_that_need_data(x: Tensor, mask: Tensor) -> Any:
    kept = x[mask]
    return dc.cat([kept, kept * 2]), kept.view(-1, 1), len(kept), kept[:1], F.softmax(kept, 0)


def sizes_that_are_given(x: Tensor, mask: Tensor) -> Any:
    kept = x[mask]
    return kept.expand(2, -1), kept[None].expand(4, -1) * 2, kept.new_zeros(4, 3), kept.new_full((4, 3), 2.0) + 1


WHOLE = [scaled, among_themselves, functions, beside_other_tensors, in_place, selections, summed, nothing_infinite]
WHOLE += [kept_in_a_list, selected_by_name]
BROKEN = [handed_through_a_break, other_masks, other_ranks, shapes_that_need_data, sizes_that_are_given]


def leaves(result: Any) -> list[Any]:
    return [x for part in result for x in leaves(part)] if isinstance(result, (tuple, list)) else [result]


def seen(program: Program, run: Program, seed: int) -> list[Any]:
    """Results, and the gradients of each."""
    dc.manual_seed(seed)
    x = dc.randn(4, 3, requires_grad=True)
    mask = dc.rand(4, 3) > 0.4
    found: list[Any] = []
    for result in leaves(run(x.clone() if program is not nothing_infinite else x, mask)):
        found.append(result)
        if isinstance(result, Tensor) and result.requires_grad:
            result.square().sum().backward(retain_graph=True)
            found.append(x.grad)
            x.grad = None
    return found


def check(program: Program, backend: str, fullgraph: bool) -> None:
    compiled = dc.compile(program, backend=backend, fullgraph=fullgraph)
    for seed in (0, 1, 2):
        for mine, eager in zip(seen(program, compiled, seed), seen(program, program, seed), strict=True):
            if not isinstance(eager, Tensor):
                assert mine == eager
                continue
            assert (mine.shape, mine.dtype, mine.requires_grad) == (eager.shape, eager.dtype, eager.requires_grad)
            dc.testing.assert_close(mine, eager, equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("program", WHOLE)
def test_in_one_graph(program: Program) -> None:
    check(program, "eager", fullgraph=True)


@pytest.mark.parametrize("program", BROKEN)
def test_after_a_break(program: Program) -> None:
    check(program, "eager", fullgraph=False)
    with pytest.raises(GraphBreak, match="needs the data of a traced tensor"):
        check(program, "eager", fullgraph=True)


@pytest.mark.parametrize("program", [among_themselves, selections, summed, nothing_infinite])
def test_to_machine_code(program: Program) -> None:
    check(program, "codegen", fullgraph=True)


@pytest.mark.parametrize("text", ["s / w", "dc.fmod(s, w)", "dc.xlogy(s, w)", "s ** w", "dc.special.xlog1py(w, s - 2)"])
@pytest.mark.parametrize("at", [0.0, -0.5, 2.0])
def test_a_parameter_beside_a_selection_takes_no_gradient_of_what_is_not_selected(text: str, at: float) -> None:
    """Where the mask is false, 0 times an infinite slope would be NaN."""

    def program(x: Tensor, w: Tensor) -> Tensor:
        result: Tensor = eval(text, {"dc": dc, "s": x[x > 0.25], "w": w}).sum()
        return result

    found = []
    for function in (program, dc.compile(program)):
        x = dc.tensor([[0.2, 0.5, 0.9], [0.1, 0.3, 0.95]], dtype=dc.float64, requires_grad=True)
        w = dc.tensor(at, dtype=dc.float64, requires_grad=True)
        found.append([part.detach() for part in dc.autograd.grad(function(x, w), (x, w))])
    for mine, eager in zip(found[1], found[0], strict=True):
        dc.testing.assert_close(mine, eager, rtol=1e-12, atol=0.0, equal_nan=True)
