"""A recurrent layer as one op: equal to its steps written out, in values, gradients and theirs; its size in a trace.

The op's definitions are held to finite differences, and its C++ to NumPy, by the conformance tests (tests/conformance).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.config import config
from compiler_core.errors import AutogradError
from compiler_core.ops.recurrent.sizes import runs_of
from compiler_core.tensor.autograd.gradcheck import gradcheck, gradgradcheck
from distcompile.nn.functional.recurrent import STEPS, Weights, last_rows, run, run_layer


def by_op(mode: str, rows: Any, sizes: list[int], *args: Any, **kwargs: Any) -> Any:
    """`run_layer`, given the batch size of each step, as `run` is."""
    return run_layer(mode, rows, runs_of(list(sizes)), *args, **kwargs)


GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}
SIZES = {"padded": [5] * 4, "packed": [5, 5, 3, 1, 1], "one step": [3], "nobody": [0, 0]}
INPUT, HIDDEN = 3, 18  # 18: a whole vector of f64, and part of one


def operands(mode: str, sizes: list[int], hidden: int = HIDDEN, *, bias: bool = True) -> list[Any]:
    """Rows, weights, biases, first states, all float64 and requiring gradients."""
    rng, gates = np.random.default_rng(len(sizes)), GATES[mode] * hidden
    shapes = [(sum(sizes), INPUT), (gates, INPUT), (gates, hidden), *([(gates,)] * 2 if bias else [])]
    shapes += [(sizes[0], hidden)] * (2 if mode == "LSTM" else 1)
    return [dc.tensor(rng.uniform(-0.6, 0.6, shape)).requires_grad_() for shape in shapes]


def layer_of(function: Any, mode: str, sizes: list[int], *, reverse: bool, bias: bool = True) -> Any:
    """(rows, weights ..., first ...) -> (h, last states ...)."""

    def call(rows: Any, *rest: Any) -> tuple[Any, ...]:
        count = 4 if bias else 2
        h, last = function(mode, rows, sizes, rest[count:], Weights(*rest[:count]), reverse=reverse)
        return (h, *last)

    return call


def written_out(mode: str, *rest: Any, **options: Any) -> Any:
    return run(STEPS[mode], *rest, **options)


def results(call: Any, leaves: list[Any]) -> list[Any]:
    """Values and gradients."""
    for leaf in leaves:
        leaf.grad = None
    out = call(*leaves)
    weights = np.random.default_rng(9)
    sum((part * dc.tensor(weights.standard_normal(tuple(part.shape)))).sum() for part in out).backward()
    return [*(part.detach().numpy() for part in out), *(leaf.grad.numpy().copy() for leaf in leaves)]


@pytest.mark.parametrize("backend", ["tape", "codegen"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("mode", GATES)
def test_the_op_is_its_steps_written_out(mode: str, sizes: str, reverse: bool, backend: str) -> None:
    leaves = operands(mode, SIZES[sizes])
    expected = results(layer_of(written_out, mode, SIZES[sizes], reverse=reverse), leaves)
    call = layer_of(by_op, mode, SIZES[sizes], reverse=reverse)
    found = results(call if backend == "tape" else dc.compile(call, fullgraph=True), leaves)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("mode", GATES)
def test_without_bias(mode: str) -> None:
    leaves = operands(mode, [4, 4, 2], bias=False)
    expected = results(layer_of(written_out, mode, [4, 4, 2], reverse=True, bias=False), leaves)
    for kind in (lambda f: f, dc.compile):
        found = results(kind(layer_of(by_op, mode, [4, 4, 2], reverse=True, bias=False)), leaves)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mode", GATES)
def test_first_and_second_derivatives_are_differences(mode: str, reverse: bool) -> None:
    leaves = operands(mode, [2, 1], hidden=2)
    call = layer_of(by_op, mode, [2, 1], reverse=reverse)
    assert gradcheck(call, leaves)
    assert gradgradcheck(lambda *given: tuple(part.sin() for part in call(*given)), leaves)


@pytest.mark.parametrize("mode", GATES)
def test_a_trace_is_as_long_for_35_steps_as_for_500(mode: str) -> None:
    def lengths(steps: int) -> list[int]:
        call = dc.compile(layer_of(by_op, mode, [2] * steps, reverse=False), backend="aot_eager")
        results(call, operands(mode, [2] * steps))
        return [len(graph.nodes) for _, graph in call.explain().entries[0].graphs]

    assert lengths(35) == lengths(500)
    assert len(lengths(35)) == 3  # joint, forward, backward


def test_two_threads_compute_what_one_does() -> None:
    leaves = operands("LSTM", [14, 14, 6], hidden=90)
    call = layer_of(by_op, "LSTM", [14, 14, 6], reverse=False)
    expected = results(call, leaves)
    with config.patch(num_threads=2):
        found = results(dc.compile(call), leaves)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_writing_to_the_output_before_backward_is_named() -> None:
    layer = dc.nn.LSTM(3, 4)
    out, _ = layer(dc.randn(5, 2, 3))
    out.mul_(2)
    with pytest.raises(AutogradError, match="in place"):
        out.sum().backward()


@pytest.mark.parametrize("sizes", [[4] * 3, [4, 4, 2, 1], [3, 2, 1]])
@pytest.mark.parametrize("reverse", [False, True])
def test_last_rows(sizes: list[int], reverse: bool) -> None:
    starts = np.cumsum([0, *sizes])
    lengths = [sum(size > k for size in sizes) for k in range(sizes[0])]
    wanted = [starts[0 if reverse else length - 1] + k for k, length in enumerate(lengths)]
    rows = dc.arange(sum(sizes)).reshape(-1, 1)
    assert last_rows(rows, runs_of(sizes), reverse=reverse).reshape(-1).tolist() == wanted
