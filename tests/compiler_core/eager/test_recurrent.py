"""Recurrent layers in one native call are torch's, and the op's of NumPy: values, gradients, gradients of gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile
from compiler_core.eager import recurrent as eager_recurrent
from compiler_core.eager.native import kernels
from compiler_core.ops import prims
from compiler_core.ops.recurrent.layer import recurrent_layer
from compiler_core.ops.recurrent.sizes import GATES, RecurrentSizes
from compiler_core.ops.whole import COMPOSITES
from compiler_core.tensor.observed import ALL, observed

RUNS = [((3, 4),), ((14, 2), (5, 1), (2, 2)), ((1, 1),), ((25, 3), (24, 1))]
Layer = dict[str, Any]


def operands(mode: str, hidden: int, runs: Any, dtype: Any, seed: int = 0) -> list[Any]:
    rng, sizes = np.random.default_rng(seed), RecurrentSizes(mode, hidden, runs, False)
    width = sizes.gates * hidden
    shapes = [(sizes.rows, width), (width, hidden), (width,), *[(sizes.batch, hidden)] * (2 if mode == "lstm" else 1)]
    return [rng.uniform(-0.5, 0.5, shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("mode", GATES)
@pytest.mark.parametrize("hidden", [16, 37])
@pytest.mark.parametrize("reverse", [False, True])
def test_it_is_the_op_of_numpy(mode: str, hidden: int, reverse: bool) -> None:
    assert kernels() is not None
    for dtype, tolerance in ((np.float32, 2e-5), (np.float64, 1e-12)):
        for runs in RUNS:
            layer: Layer = {"mode": mode, "runs": runs, "reverse": reverse}
            arrays = operands(mode, hidden, runs, dtype)
            made = COMPOSITES["recurrent_layer"].forward(*arrays, **layer)
            assert made is not None
            np.testing.assert_allclose(made[0], prims.recurrent(*arrays[:3], arrays[3:], **layer), atol=tolerance)
            found = []
            for composes in (False, True):
                leaves = [distcompile.tensor(a, requires_grad=True) for a in arrays]
                if composes:
                    with observed(composes=ALL):
                        out = recurrent_layer(*leaves, **layer)
                else:
                    out = recurrent_layer(*leaves, **layer)
                weights = distcompile.tensor(np.random.default_rng(1).standard_normal(out.shape).astype(dtype))
                (out * weights).sum().backward()
                found.append([leaf.grad.numpy() for leaf in leaves])
            for mine, its in zip(*found, strict=True):
                np.testing.assert_allclose(mine, its, atol=50 * tolerance, rtol=50 * tolerance)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_layers_are_torchs(name: str, bidirectional: bool) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, g = rng.standard_normal((7, 5, 20)), rng.standard_normal((7, 5, 24 * (1 + bidirectional)))

    def told(t: Any) -> list[Any]:
        layer = getattr(t.nn, name)(20, 24, 2, bidirectional=bidirectional).double()
        with t.no_grad():
            for k, parameter in enumerate(layer.parameters()):
                draws = np.random.default_rng(k).uniform(-0.3, 0.3, tuple(parameter.shape))
                parameter.copy_(t.tensor(draws))
        steps = t.tensor(x, requires_grad=True)
        output, last = layer(steps)
        (output * t.tensor(g)).sum().backward()
        packed = t.nn.utils.rnn.pack_padded_sequence(steps.detach(), [7, 5, 5, 2, 1])
        ragged, _ = layer(packed)
        last = last[0] if isinstance(last, tuple) else last
        grads = [parameter.grad for parameter in layer.parameters()]
        return [v.detach().numpy() for v in (output, last, ragged.data, steps.grad, *grads)]

    for mine, its in zip(told(distcompile), told(torch), strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("mode", GATES)
def test_gradients_of_gradients_and_no_gradient(mode: str) -> None:
    layer: Layer = {"mode": mode, "runs": ((2, 3),), "reverse": False}
    arrays = operands(mode, 16, layer["runs"], np.float64)

    def slope(x: Any, *rest: Any) -> Any:
        out = recurrent_layer(x, *rest, **layer)
        (dx,) = distcompile.autograd.grad((out * out).sum(), x, create_graph=True)
        return (dx * dx).sum()

    leaves = [distcompile.tensor(a, requires_grad=True) for a in arrays]
    slope(*leaves).backward()
    step, place = 1e-6, (1, 3)
    moved = []
    for s in (step, -step):
        x = arrays[0].copy()
        x[place] += s
        with distcompile.enable_grad():
            moved.append(slope(distcompile.tensor(x, requires_grad=True), *leaves[1:]).item())
    np.testing.assert_allclose(leaves[0].grad[place].item(), (moved[0] - moved[1]) / (2 * step), rtol=1e-5)
    with distcompile.no_grad():
        assert not recurrent_layer(*leaves, **layer).requires_grad


def test_arrays_with_gaps_and_a_weight_that_was_changed() -> None:
    layer: Layer = {"mode": "lstm", "runs": ((2, 3),), "reverse": True}
    arrays = operands("lstm", 16, layer["runs"], np.float32)
    expected = recurrent_layer(*map(distcompile.tensor, arrays), **layer)
    spread = [distcompile.tensor(np.repeat(a, 2, -1))[..., ::2] for a in arrays]
    assert distcompile.equal(recurrent_layer(*spread, **layer), expected)
    leaves = [distcompile.tensor(a, requires_grad=True) for a in arrays]
    weight = leaves[1] * 1
    out = recurrent_layer(leaves[0], weight, *leaves[2:], **layer)
    weight.add_(1)
    with pytest.raises(RuntimeError):
        out.sum().backward()


def test_few_units_and_other_operands_are_the_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = COMPOSITES["recurrent_layer"].forward
    layer: Layer = {"mode": "gru", "runs": ((2, 2),), "reverse": False}
    assert forward(*operands("gru", eager_recurrent.SMALLEST - 1, layer["runs"], np.float32), **layer) is None
    arrays = operands("gru", 16, layer["runs"], np.float32)
    assert forward(*arrays[:3], arrays[3].astype(np.float64), **layer) is None
    assert forward(arrays[0][1:], *arrays[1:], **layer) is None
    monkeypatch.setattr(eager_recurrent, "_layer", lambda *told: None)
    assert forward(*arrays, **layer) is None
