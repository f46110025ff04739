"""Attention: the op against torch and against its composition, eager and compiled; what reaches it; what it stores.

The op's definitions are held to finite differences, and its C++ to NumPy, by the conformance tests (tests/conformance).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.codegen.cpp.program import print_source
from compiler_core.config import config
from compiler_core.dtype import bool_, float32, float64
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.passes import AttentionComposed
from compiler_core.graph.verify import verify
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as C
from compiler_core.ops import prims
from compiler_core.ops.attention.composite import written_out
from compiler_core.ops.attention.sizes import AttentionSizes
from compiler_core.ops.linear_algebra.packing import unpack
from compiler_core.ops.registry import meta_of, use_trace
from compiler_core.schedule.from_graphs import lower_and_schedule
from compiler_core.tensor.autograd.gradcheck import gradcheck, gradgradcheck
from distcompile.nn import functional as F

# name -> shapes of q, k, v, mask (or None), keyword arguments
CASES: dict[str, tuple[tuple[tuple[int, ...] | None, ...], dict[str, Any]]] = {
    "causal": (((2, 3, 40, 16), (2, 3, 40, 16), (2, 3, 40, 16), None), {"is_causal": True}),
    "whole, other lengths": (((2, 2, 7, 24), (2, 2, 19, 24), (2, 2, 19, 5), None), {"scale": 0.3}),
    "causal, more keys": (((1, 2, 5, 8), (1, 2, 9, 8), (1, 2, 9, 8), None), {"is_causal": True}),
    "causal, more queries": (((1, 2, 300, 8), (1, 2, 140, 8), (1, 2, 140, 8), None), {"is_causal": True}),
    "one head": (((6, 8), (5, 8), (5, 4), None), {}),
    "three dims": (((3, 6, 8), (3, 5, 8), (3, 5, 4), (6, 5)), {}),
    "groups of heads": (((2, 6, 9, 8), (2, 2, 11, 8), (2, 2, 11, 8), None), {"enable_gqa": True}),
    "repeated keys": (((2, 4, 9, 8), (1, 1, 9, 8), (2, 1, 9, 8), None), {"is_causal": True}),
    "five dims": (((2, 2, 2, 5, 4), (2, 2, 2, 6, 4), (2, 2, 2, 6, 4), (2, 1, 1, 5, 6)), {}),
    "mask of keys": (((2, 3, 17, 8), (2, 3, 33, 8), (2, 3, 33, 8), (2, 1, 1, 33)), {}),
}


def operands(name: str, dtype: Any = np.float64) -> list[Any]:
    shapes = CASES[name][0]
    rng = np.random.default_rng(len(name))
    return [None if shape is None else rng.standard_normal(shape).astype(dtype) for shape in shapes]


def outcome(library: Any, function: Callable[..., Any], arrays: list[Any], *, learned: bool = True) -> list[Any]:
    """The result, and the gradients of all operands that are floats."""
    make = library.tensor if library is dc else library.from_numpy
    tensors = [None if a is None else make(a.copy()) for a in arrays]
    leaves = [
        t for t, a in zip(tensors, arrays) if a is not None and a.dtype != bool and (learned or a is not arrays[3])
    ]
    for leaf in leaves:
        leaf.requires_grad_()
    out = function(*tensors)
    weights = np.random.default_rng(5).standard_normal(tuple(out.shape)).astype(arrays[0].dtype)
    (out * make(weights)).sum().backward()
    return [out.detach().numpy(), *(leaf.grad.numpy() for leaf in leaves)]


def call(attention: Callable[..., Any], name: str) -> Callable[..., Any]:
    options = CASES[name][1]
    return lambda q, k, v, mask: attention(q, k, v, mask, **options)


def assert_alike(found: list[Any], expected: list[Any], tolerance: float = 1e-9) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def composition(q: Any, k: Any, v: Any, mask: Any, **options: Any) -> Any:
    scale = options.get("scale", q.shape[-1] ** -0.5)
    return written_out(q, k, v, mask, 0.0, options.get("is_causal", False), scale, options.get("enable_gqa", False))


@pytest.mark.parametrize(
    ("name", "kind"),
    [(n, k) for n in CASES for k in ("added", "added, fixed", "test") if CASES[n][0][3] or k == "added"],
)
def test_the_op_is_its_composition(name: str, kind: str) -> None:
    arrays = operands(name)
    if kind == "test":
        arrays[3] = arrays[3] > -0.4
    learned = kind == "added"
    expected = outcome(dc, call(composition, name), arrays, learned=learned)
    attention = call(F.scaled_dot_product_attention, name)
    assert_alike(outcome(dc, attention, arrays, learned=learned), expected)
    if learned:
        assert_alike(outcome(dc, dc.compile(attention, fullgraph=True), arrays), expected)


@pytest.mark.parametrize("kind", ["causal", "added", "test", "groups of heads"])
def test_with_dropout_the_op_is_its_composition(kind: str) -> None:
    """The bits are the same; so are gradients, and theirs."""
    is_grouped, length, keys = kind == "groups of heads", 7, 5
    heads = 2 if is_grouped else 4
    rng, key, how = np.random.default_rng(1), np.array([9, 2**32 - 1, 3], np.uint64), {"dropout": 0.4, "stream": 2}
    shapes = [(2, 4, length, 6), (2, heads, keys, 6), (2, heads, keys, 3)]
    arrays = [rng.standard_normal(shape) for shape in shapes]
    if kind in ("added", "test"):
        mask = rng.standard_normal((2, 4, length, keys))
        arrays.append(mask if kind == "added" else mask > -0.7)

    def composed(*x: Any) -> Any:
        mask = x[3] if len(x) > 3 else None
        return written_out(*x[:3], mask, 0.4, kind == "causal", 0.5, is_grouped, (key, 2))

    def op(*x: Any) -> Any:
        packed = prims.attention(*x, key, scale=0.5, causal=kind == "causal", learned=True, strict=False, **how)
        sizes = AttentionSizes.of([meta_of(part) for part in x], kind == "causal")
        return C.permute(unpack(packed, sizes.packed(float64))[0], (0, 2, 1, 3))

    assert_alike(outcome(dc, op, arrays), outcome(dc, composed, arrays))
    leaves = [dc.tensor(x) if x.dtype == bool else dc.tensor(x).requires_grad_() for x in arrays]
    assert gradcheck(op, leaves)
    assert gradgradcheck(op, leaves)


@pytest.mark.parametrize("name", CASES)
def test_the_op_is_torchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    if name == "repeated keys":
        pytest.skip("torch's fused kernel wants equal batches")
    arrays = operands(name, np.float32)
    expected = outcome(torch, call(torch.nn.functional.scaled_dot_product_attention, name), arrays)
    assert_alike(outcome(dc, call(F.scaled_dot_product_attention, name), arrays), expected, 2e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_attended_in_f32(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    arrays = operands("causal", np.float32)[:3]

    def run(library: Any) -> list[Any]:
        make = library.tensor if library is dc else library.from_numpy
        tensors = [make(a).to(getattr(library, dtype)) for a in arrays]
        for t in tensors:
            t.requires_grad_()
        attention = library.nn.functional.scaled_dot_product_attention
        out = (
            library.compile(attention)(*tensors, is_causal=True)
            if library is dc
            else attention(*tensors, is_causal=True)
        )
        out.float().sum().backward()
        return [x.float().numpy() for x in (out.detach(), *(t.grad for t in tensors))]

    assert_alike(run(dc), run(torch), 2e-2)


# ---- what is not finite


def test_queries_that_see_nothing_or_only_minus_infinity_give_zero_as_torch() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    q, k, v = (np.abs(rng.standard_normal((1, 1, 4, 8))).astype(np.float32) for _ in range(3))
    q[0, 0, 1] = -np.inf
    for is_causal in (False, True):
        theirs = torch.nn.functional.scaled_dot_product_attention(
            *map(torch.from_numpy, (q, k, v)), is_causal=is_causal
        )
        for kind in (lambda f: f, dc.compile):
            ours = kind(F.scaled_dot_product_attention)(*map(dc.tensor, (q, k, v)), is_causal=is_causal)
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)
            assert not ours.numpy()[0, 0, 1].any()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_spreads_where_it_is_seen(value: float) -> None:
    q, k, v = (a.astype(np.float32)[:1, :1] for a in operands("causal")[:3])
    k = np.abs(k)
    k[0, 0, 20] = value
    for kind in (lambda f: f, dc.compile):
        out = kind(F.scaled_dot_product_attention)(*map(dc.tensor, (np.abs(q), k, v)), is_causal=True).numpy()[0, 0]
        assert np.isfinite(out[:20]).all()  # the scores there are hidden
        assert np.isnan(out[20:]).all()


# ---- higher derivatives, other backends


def test_first_and_second_derivatives() -> None:
    rng = np.random.default_rng(3)
    shapes = ((1, 2, 3, 2), (1, 1, 4, 2), (1, 1, 4, 3), (3, 4))
    leaves = [dc.tensor(rng.uniform(-1, 1, shape)).requires_grad_() for shape in shapes]

    def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)

    assert gradcheck(attention, leaves)
    assert gradgradcheck(attention, leaves)
    assert gradgradcheck(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), leaves[:1])


def graph_of(kind: str) -> Graph:
    builder = GraphBuilder("g")
    shapes = [(2, 4, 6, 8), (2, 2, 6, 8), (2, 2, 6, 8)]
    inputs = [builder.placeholder("x", TensorMeta(shape, float32)) for shape in shapes]
    masks = {"added": float32, "test": bool_}
    mask = builder.placeholder("m", TensorMeta((6, 6), masks[kind])) if kind in masks else None
    with use_trace(builder):
        result = C.scaled_dot_product_attention(*inputs, mask, is_causal=kind == "causal", enable_gqa=True)
    return builder.build([result])


@pytest.mark.parametrize("kind", ["causal", "added", "test"])
def test_a_backend_without_the_routine_gets_the_composition(kind: str) -> None:
    graph = graph_of(kind)
    assert "attention" in {call.op.name for call in graph.calls}
    made = AttentionComposed().apply(graph)
    verify(made)
    assert "attention" not in {call.op.name for call in made.calls}
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(node.shape).astype(np.float32) for node in graph.inputs]
    if kind == "test":
        arrays[3] = arrays[3] > -0.5
    np.testing.assert_allclose(interpret(made, arrays)[0], interpret(graph, arrays)[0], rtol=1e-5, atol=1e-6)


# ---- what is stored, and read


def test_nothing_of_the_size_of_the_scores_is_stored_and_nothing_is_copied() -> None:
    """q, k, v in the layout that a projection gives them, the result in the one that the next projection reads."""
    time, heads, width = 512, 2, 16

    def block(x: Any, w: Any) -> Any:
        parts = [t.reshape(1, time, heads, width).transpose(1, 2) for t in (x @ w).split(heads * width, dim=2)]
        return F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).reshape(1, time, -1) @ w

    seen: list[Graph] = []

    def backend(graph: Any, examples: Any) -> Any:
        seen.append(graph.ir)
        return lambda *arrays: interpret(graph.ir, arrays)

    x, w = dc.randn(1, time, heads * width), dc.randn(heads * width, 3 * heads * width).requires_grad_()
    dc.compile(block, backend=backend)(x, w).sum().backward()
    for program in lower_and_schedule(seen):
        largest = max(int(buffer.numel) for buffer in program.buffers)
        assert largest <= time * 3 * heads * width < time * time
        routines = [line for line in print_source([program]).units["main"].splitlines() if "dc_attention" in line]
        assert any("<A>" in line for line in routines)
    forward = lower_and_schedule(seen[:1])[0]
    assert len(forward.kernels) == 0  # products and attention only: no copies


def test_threads_take_blocks_of_queries_and_give_the_same_bits() -> None:
    arrays = operands("causal, more queries", np.float32)[:3]
    found = []
    for threads in (1, 2):
        with config.patch(num_threads=threads):
            attention = dc.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
            found.append(outcome(dc, attention, arrays))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


# ---- attention that is written out


def nano_gpt(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """As nanoGPT's slow path: a buffer says which keys are seen."""
    scores = (q @ k.transpose(-2, -1)) * (1.0 / k.size(-1) ** 0.5)
    scores = scores.masked_fill(mask[: q.shape[-2], : k.shape[-2]] == 0, float("-inf"))
    return F.softmax(scores, dim=-1) @ v


def made_mask(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = q @ k.transpose(-2, -1) / 2.0
    scores = scores.masked_fill(dc.ones(q.shape[-2], k.shape[-2]).tril() == 0, float("-inf"))
    return dc.softmax(scores, dim=-1) @ v


def upper_mask(q: Any, k: Any, v: Any, mask: Any) -> Any:
    hidden = dc.triu(dc.ones(q.shape[-2], k.shape[-2], dtype=dc.bool), 1)
    return dc.where(hidden, float("-inf"), q @ k.transpose(-2, -1)).softmax(-1) @ v


def band_mask(q: Any, k: Any, v: Any, mask: Any) -> Any:
    seen = dc.tril(dc.ones(q.shape[-2], k.shape[-2], dtype=dc.bool), 2)
    return dc.where(seen, q @ k.transpose(-2, -1), float("-inf")).softmax(-1) @ v


def added_mask(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return F.softmax((q * 0.3) @ k.transpose(-2, -1) + mask, dim=-1) @ v


def no_mask(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return F.softmax(0.25 * q @ k.mT, dim=-1) @ v


def kept_weights(q: Any, k: Any, v: Any, mask: Any) -> Any:
    weights = F.softmax(q @ k.mT, dim=-1)
    return dc.cat([weights @ v, weights], -1)


def kept_scores(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = q @ k.mT
    return F.softmax(scores, dim=-1) @ v + scores.sum()


def with_dropout(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return F.dropout(F.softmax(q @ k.mT, dim=-1), 0.5) @ v


def over_rows(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return F.softmax(q @ k.mT, dim=-2) @ v


def half_of_large(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return dc.where(mask == 0, -1e9, q @ k.mT).softmax(-1) @ v


RECOGNISED = {nano_gpt: "test", made_mask: "causal", upper_mask: "causal", band_mask: "test", added_mask: "added",
              no_mask: "none"}  # fmt: skip
LEFT = (kept_weights, kept_scores, with_dropout, over_rows, half_of_large)


def written_operands(shape: tuple[int, ...] = (2, 3, 8, 4)) -> list[Any]:
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(shape) for _ in range(3)]
    return [*arrays, np.tri(shape[-2])]


def captured(function: Callable[..., Any], arrays: list[Any]) -> tuple[Graph, Any]:
    seen: list[Graph] = []

    def backend(graph: Any, examples: Any) -> Any:
        seen.append(graph.ir)
        return lambda *given: interpret(graph.ir, given)

    result = dc.compile(function, backend=backend, fullgraph=True)(*map(dc.tensor, arrays))
    return seen[0], result.numpy()


@pytest.mark.parametrize("function", RECOGNISED, ids=lambda f: f.__name__)
def test_attention_that_is_written_out_becomes_the_op(function: Callable[..., Any]) -> None:
    for arrays in (written_operands(), written_operands((5, 8, 4))):
        graph, found = captured(function, arrays)
        (call,) = (c for c in graph.calls if c.op.name == "attention")
        kind = "causal" if call.attrs["causal"] else "none"
        if len(call.args) == 4:
            kind = "test" if call.args[3].dtype is bool_ else "added"
        assert kind == RECOGNISED[function]
        assert "exp" not in {c.op.name for c in graph.calls}
        assert_alike([found], [function(*map(dc.tensor, arrays)).numpy()])
    learned = function is added_mask
    expected = outcome(dc, function, arrays, learned=learned)
    assert_alike(outcome(dc, dc.compile(function, fullgraph=True), arrays, learned=learned), expected)


@pytest.mark.parametrize("function", LEFT, ids=lambda f: f.__name__)
def test_what_is_not_attention_alone_stays(function: Callable[..., Any]) -> None:
    graph, _ = captured(function, written_operands())
    assert "attention" not in {call.op.name for call in graph.calls}


def test_a_written_out_query_that_sees_nothing_stays_nan() -> None:
    arrays = written_operands()
    arrays[3][3] = 0
    for backend in ("aot_eager", "codegen"):
        found = outcome(dc, dc.compile(nano_gpt, backend=backend), arrays, learned=False)
        expected = outcome(dc, nano_gpt, arrays, learned=False)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-9, atol=1e-9)
        assert np.isnan(found[0][:, :, 3]).all()
        assert np.isnan(expected[3]).all()
        assert np.isnan(found[3]).all()
