"""What a tape keeps alive until the backward: of large values those that rules read, and nothing else."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distcompile as dc
import distcompile.nn.functional as F
from compiler_core import cuda
from compiler_core.eager.device.proof import SAMPLES, operands_of
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import OPS, NotDifferentiable
from compiler_core.ops.whole import COMPOSITES
from compiler_core.tensor.autograd import tape
from compiler_core.tensor.autograd.tape import GradNode
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.nodes.reads import _probed
from tests.fake_cupy import on_fake_device

SIZE = 512  # rows and columns: 1 MiB of f32


def arrays_of(value: Any) -> Iterator[Any]:
    """The array whose memory a saved value keeps."""
    found = value.root.raw if isinstance(value, Cell) else value
    while getattr(found, "base", None) is not None:
        found = found.base
    if isinstance(found, np.ndarray) or cuda.is_array(found):
        yield found


def kept_by(out: Any, given: Any = ()) -> dict[int, Any]:
    """By id, the arrays that the nodes behind `out` keep, but for those of `given`."""
    todo: list[Any] = [out._node]
    seen: set[int] = set()
    found: dict[int, Any] = {}
    while todo:
        node = todo.pop()
        if isinstance(node, GradNode) and id(node) not in seen:
            seen.add(id(node))
            todo += node.edges
            for value in (
                *getattr(node, "saved", ()),
                getattr(node, "out", None),
                *(getattr(node, "kept", None) or ()),
            ):
                found |= {id(array): array for array in arrays_of(value)}
    own = {id(array) for tensor in given for array in arrays_of(tensor._cell)}
    return {key: array for key, array in found.items() if key not in own}


def units(function: Callable[..., Any], *shape: int) -> float:
    """How many arrays of an operand's size the history of function(x, y) keeps, beside x and y."""
    x, y = (dc.randn(*(shape or (SIZE, SIZE))).requires_grad_() for _ in range(2))
    out = function(x, y)
    return sum(array.nbytes for array in kept_by(out, (x, y)).values()) / x._cell.raw.nbytes


CASES: dict[str, tuple[Callable[..., Any], float]] = {
    "sums": (lambda x, y: x + y - x, 0),
    "a cast, and back": (lambda x, y: (x.double() + 1).float(), 0),
    "views of what is gone": (lambda x, y: (x + y).t().reshape(-1)[: SIZE * SIZE // 2].sum(), 0),
    "a product": (lambda x, y: (x + y) * (x - y), 2),
    "a function of its result": (lambda x, y: (x + y).exp() + 1, 1),
    "a part": (lambda x, y: (x * 2)[0] + 1, 0),
    "a norm": (lambda x, y: F.layer_norm(x + y, (SIZE,)) + 1, 1),
    "a layer": (lambda x, y: F.linear(x + y, y) + 1, 1),
    "what is dropped": (lambda x, y: F.dropout(x + y, 0.5) + 1, 0.25),  # bytes of 0 and 1
}


@pytest.mark.parametrize("name", CASES)
def test_large_values_that_no_rule_reads_are_not_kept(name: str) -> None:
    function, most = CASES[name]
    assert most <= units(function) <= most + 0.1


def test_gradients_are_the_same_as_of_all_that_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    data, found = np.random.default_rng(3).standard_normal((2, 8, 8)), []
    for least in (1, 1 << 40):
        monkeypatch.setattr(tape, "LARGE", least)
        each = []
        for function, _ in CASES.values():
            dc.manual_seed(3)
            x, y = (dc.tensor(one).requires_grad_() for one in data)
            out = function(x.repeat(64, 64), y.repeat(64, 64)).sum()
            first = dc.autograd.grad(out, (x, y), create_graph=True, allow_unused=True)
            total = sum((g * g).sum() for g in first if g is not None)
            each += [g.detach().numpy() for g in first if g is not None]
            if isinstance(total, dc.Tensor) and total.requires_grad:
                second = dc.autograd.grad(total, (x, y), allow_unused=True)
                each += [g.numpy() for g in second if g is not None]
        found.append(each)
    assert len(found[0]) == len(found[1]) > len(CASES)
    for ours, all_there in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, all_there)


def test_in_autocast_a_transformers_block_keeps_what_torch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Per element of the residual stream: 2 inputs of norms in f32; in bf16 2 of products, q, k, v, what is attended,
    and 4 widths each of what gelu and the last product read: 9 of f32, which is torch's number on a GPU."""
    monkeypatch.setattr(tape, "LARGE", 1)
    monkeypatch.setattr("compiler_core.ops.attention.sizes.MANY", 1)
    width, tokens = 64, 33
    with on_fake_device():
        x = dc.randn(2, tokens, width, device="cuda").requires_grad_()
        layers = [dc.nn.Linear(a * width, b * width).cuda() for a, b in ((1, 3), (1, 1), (1, 4), (4, 1))]
        norms = [dc.nn.LayerNorm(width).cuda() for _ in range(2)]
        with dc.autocast("cuda", dc.bfloat16):
            qkv = layers[0](norms[0](x)).reshape(2, tokens, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(*qkv.unbind(0))
            h = x + layers[1](seen.transpose(1, 2).reshape(2, tokens, width))
            h = h + layers[3](F.gelu(layers[2](norms[1](h))))
            del qkv, seen
        gc.collect()
        weights = [p for layer in (*layers, *norms) for p in layer.parameters()]
        casts = sum(p.numel() * 2 for p in weights if p.dim() > 1)
        total = sum(array.nbytes for array in kept_by(h, (*weights, x)).values()) + x.numel() * 4 - casts
        assert total <= 9 * 1.05 * x.numel() * 4
        h.sum().backward()
        assert all(p.grad is not None for p in weights)


@pytest.mark.parametrize("name", sorted(SAMPLES))
@pytest.mark.parametrize("on", ["cpu", "cuda"])
def test_a_composites_backward_does_without_what_it_does_not_read(
    name: str, on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tape, "LARGE", 1)
    arrays, attrs = operands_of(name, np.float32)
    composite = COMPOSITES[name]
    expected = composite.compose(*arrays, **attrs)
    g = np.random.default_rng(4).normal(size=expected.shape).astype(expected.dtype)
    slopes = composite.vjp(g, expected, *arrays, **attrs)
    with on_fake_device():
        given = [a if a is None or a.dtype == np.uint64 else dc.tensor(a).to(on) for a in arrays]
        leaves = [a.requires_grad_() if isinstance(a, dc.Tensor) and a.is_floating_point() else None for a in given]
        out = dc.Tensor.__whole__(composite, tuple(given), attrs)
        if out is None:
            return
        out.backward(dc.tensor(g).to(on))
        for leaf, slope in zip(leaves, slopes, strict=True):
            if leaf is not None and slope is not None:
                np.testing.assert_allclose(leaf.grad.cpu().numpy(), np.asarray(slope), rtol=1e-3, atol=1e-4)


def test_no_rule_of_a_view_reads_anything() -> None:
    for op in OPS.values():
        if op.alias is None or isinstance(op.vjp, NotDifferentiable):
            continue
        for sample in op.samples:
            dtype = dc.float32 if dc.float32 in op.dtypes else op.dtypes[0]
            metas = [TensorMeta(shape, dtype) for shape in sample.shapes]
            out = op.infer(*metas, **sample.attrs)
            assert _probed(op.vjp, sample.attrs, metas, out, [True] * len(metas)) == frozenset(), op.name
