"""FlopCounterMode: torch's totals, in all and by module, forward and backward, and those of its attention formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import distcompile as dc
from distcompile.errors import NotSupportedError
from distcompile.utils.flop_counter import FlopCounterMode, register_flop_formula
from distcompile.utils.module_tracker import ModuleTracker

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


def block(t: Any) -> Any:
    class Block(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = t.nn.Linear(8, 8)
            self.body = t.nn.Sequential(t.nn.Linear(8, 4, bias=False), t.nn.ReLU(), t.nn.Linear(4, 4))

        def forward(self, x: Any) -> Any:
            return self.body(self.up(x)) @ x[:4, :4]

    return Block()


# name -> what runs, with the library
CASES: dict[str, Callable[[Any], Any]] = {
    "linear": lambda t: t.nn.functional.linear(grad(t, 4, 8), grad(t, 3, 8), grad(t, 3)),
    "linear of 3 dims": lambda t: t.nn.Linear(8, 3)(t.ones(2, 5, 8)),
    "linear of one row": lambda t: t.nn.Linear(8, 3)(t.ones(8)),
    "mm": lambda t: t.mm(grad(t, 4, 5), t.ones(5, 6)),
    "matmul, many by one": lambda t: grad(t, 2, 3, 4, 5) @ grad(t, 5, 6),
    "bmm": lambda t: t.bmm(grad(t, 7, 4, 5), grad(t, 7, 5, 6)),
    "einsum": lambda t: t.einsum("bij,bjk->bik", grad(t, 2, 3, 4), grad(t, 2, 4, 5)),
    "addmm": lambda t: t.addmm(grad(t, 3, 3), grad(t, 3, 4), grad(t, 4, 3)),
    "baddbmm": lambda t: t.baddbmm(grad(t, 2, 3, 3), grad(t, 2, 3, 4), grad(t, 2, 4, 3)),
    "conv": lambda t: t.nn.Conv2d(4, 6, 3, stride=2, padding=1)(grad(t, 2, 4, 9, 9)),
    "conv of data": lambda t: t.nn.Conv2d(4, 6, 3, bias=False)(t.ones(2, 4, 9, 9)),
    "conv in groups": lambda t: t.nn.Conv2d(4, 6, 3, dilation=2, groups=2)(grad(t, 2, 4, 9, 9)),
    "conv1d": lambda t: t.nn.Conv1d(4, 6, 3)(grad(t, 2, 4, 9)),
    "conv3d": lambda t: t.nn.Conv3d(2, 3, 2)(grad(t, 1, 2, 4, 4, 4)),
    "conv transposed": lambda t: t.nn.ConvTranspose2d(4, 6, 3, stride=2)(grad(t, 2, 4, 9, 9)),
    "modules": lambda t: block(t)(t.ones(4, 8)),
    "attention layer": lambda t: t.nn.MultiheadAttention(8, 2, batch_first=True)(*[t.ones(2, 5, 8)] * 3)[0],
    "nothing": lambda t: t.relu(grad(t, 3)).sum(),
}


def grad(t: Any, *shape: int) -> Any:
    return t.ones(*shape, requires_grad=True)


def counted(t: Any, mode: Any, run: Callable[[Any], Any], backward: bool) -> tuple[int, dict[str, int]]:
    with mode(display=False) as counter:
        result = run(t)
        if backward:
            result.sum().backward()
    found = {module: sum(counts.values()) for module, counts in counter.get_flop_counts().items()}
    return counter.get_total_flops(), {module: flops for module, flops in found.items() if flops}


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "and backward"])
@pytest.mark.parametrize("name", CASES)
def test_counts_are_torchs(name: str, backward: bool) -> None:
    from torch.utils.flop_counter import FlopCounterMode as Theirs

    want = counted(torch, Theirs, CASES[name], backward)
    assert counted(dc, FlopCounterMode, CASES[name], backward) == want
    assert name == "nothing" or want[0] > 0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("keys", [16, 12])
def test_attention_counts_by_torchs_formula(keys: int, causal: bool) -> None:
    """On a CPU torch's mode leaves its own kernel out; the formulas are those of its kernels on a GPU."""
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    shapes = (2, 3, 16, 8), (2, 3, keys, 8), (2, 3, keys, 5)

    def attend(t: Any) -> Any:
        q, k, v = (grad(t, *shape) for shape in shapes)
        return t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    forward = sdpa_flop_count(*shapes)
    whole = forward + sdpa_backward_flop_count((2, 3, 16, 5), *shapes)
    assert counted(dc, FlopCounterMode, attend, False)[0] == forward
    assert counted(dc, FlopCounterMode, attend, True)[0] == whole


def test_compiled_graphs_count_by_their_calls() -> None:
    model, x = block(dc), dc.ones(4, 8)
    want = counted(dc, FlopCounterMode, lambda t: model(x), True)[0]
    assert counted(dc, FlopCounterMode, lambda t: dc.compile(model)(x), True)[0] == want
    again = dc.compile(model)
    again(x)
    with FlopCounterMode(display=False) as counter:
        for _ in range(3):
            again(x).sum().backward()
    assert counter.get_total_flops() == 3 * want
    assert list(counter.get_flop_counts()) == ["Global"]


def test_results_and_what_comes_after_are_untouched() -> None:
    x = dc.randn(3, 8)
    layer = dc.nn.Linear(8, 4)
    plain = layer(x)
    with FlopCounterMode(display=False):
        inside = layer(x)
    dc.testing.assert_close(inside, plain)
    before = dc.Tensor.__whole__
    with pytest.raises(ZeroDivisionError), FlopCounterMode(display=False):
        1 / 0  # noqa: B018
    assert dc.Tensor.__whole__ is before
    assert dc.equal(layer(x), plain)


def test_the_table_has_a_line_a_module_and_op(capsys: pytest.CaptureFixture[str]) -> None:
    with FlopCounterMode(depth=1):
        block(dc)(dc.ones(4, 8))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["Module", "FLOP", "%", "Total"]
    assert [line.split()[0] for line in lines[2:]] == ["Global", "-", "Block", "-"]
    assert lines[2].split()[1:] == ["1024.000", "100.00%"]


def test_own_formulas_are_refused() -> None:
    with pytest.raises(NotSupportedError, match="custom_mapping"):
        FlopCounterMode(custom_mapping={"op": math.prod})
    with pytest.raises(NotSupportedError, match="register_flop_formula"):
        register_flop_formula([])


def tracked(t: Any, tracker: Any) -> list[tuple[str, bool, list[str]]]:
    """Where a step is at some of its points."""
    seen: list[tuple[str, bool, list[str]]] = []

    def note(what: str) -> Callable[..., None]:
        return lambda *_: seen.append((what, tracker.is_bw, sorted(tracker.parents)))

    model = block(t)
    model.body[1].register_forward_pre_hook(note("relu"))
    with tracker:
        out = model(t.ones(4, 8, requires_grad=True))
        note("between")()
        for name in ("up", "body"):
            first = getattr(model, name) if name == "up" else model.body[0]
            first.weight.register_hook(note(name))
        out.sum().backward()
        note("after")()
    return seen


def test_the_tracker_knows_where_forward_and_backward_are() -> None:
    from torch.utils.module_tracker import ModuleTracker as Theirs

    want = tracked(torch, Theirs())
    assert tracked(dc, ModuleTracker()) == want
    assert [what for what, *_ in want] == ["relu", "between", "body", "up", "after"]
    assert "Block.body.1" in want[0][2]
