"""Attention's Triton functions: run by the interpreter against float64, compiled for GPUs, and what they refuse."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handwritten_harness import assert_near, check_compiled, contiguous, interpret, module_of, strided, unit_of

from compiler_core.codegen.triton.handwritten import Handwritten, print_call
from compiler_core.dtype import DType, bfloat16, float16, float32, float64
from compiler_core.errors import LoweringError
from compiler_core.ops.attention import by_numpy as attention_numpy
from compiler_core.ops.attention import kernels as attention_kernels
from compiler_core.ops.attention.kernels import BLOCKS, AttentionBlocks
from compiler_core.ops.attention.op import ATTENTION, ATTENTION_BACKWARD
from compiler_core.ops.attention.sizes import AttentionSizes
from compiler_core.ops.routine import Routine
from tests.sharing import some

pytestmark = pytest.mark.triton
triton = pytest.importorskip("triton")

Array = Any
_STRICT = {"strict": True}
# name -> sizes, mask, dtype, attributes; blocks are as on the device, so that whole ones, cut ones and ones on the
# diagonal all occur
CASES: dict[str, tuple[AttentionSizes, str, DType, dict[str, Any]]] = {
    "causal, whole blocks": (AttentionSizes(1, 1, 1, 256, 256, 64, 64, True), "none", bfloat16, {}),
    "blocks that are hidden": (AttentionSizes(1, 1, 1, 140, 140, 16, 16, False), "padding", float32, {}),
    "dropout, causal": (AttentionSizes(2, 4, 2, 150, 150, 32, 32, True), "none", bfloat16, {"dropout": 0.2}),
    "dropout, a mask that tests": (AttentionSizes(1, 2, 1, 40, 140, 16, 16, False), "test", float32, {"dropout": 0.9}),
    "causal, groups of heads": (AttentionSizes(1, 4, 2, 150, 150, 32, 32, True), "none", float16, {}),
    "causal, more keys": (AttentionSizes(1, 1, 1, 60, 150, 16, 24, True), "none", bfloat16, {}),
    "causal, more queries": (AttentionSizes(1, 1, 1, 200, 70, 20, 16, True), "none", float32, {}),
    "whole, widths of their own": (AttentionSizes(2, 1, 1, 33, 131, 17, 33, False), "none", float32, {}),
    "a mask that is added": (AttentionSizes(1, 2, 1, 40, 140, 16, 8, False), "added", float32, {}),
    "a mask that tests": (AttentionSizes(1, 2, 2, 70, 40, 16, 16, False), "test", float32, {}),
    "a mask of keys, causal": (AttentionSizes(2, 1, 1, 50, 50, 16, 16, True), "keys", bfloat16, {}),
    "strict": (AttentionSizes(1, 1, 1, 20, 20, 16, 16, False), "test", float32, {"strict": True}),
    "a negative scale": (AttentionSizes(1, 1, 1, 20, 40, 16, 16, True), "none", float32, {"scale": -0.5}),
    "wide": (AttentionSizes(1, 1, 1, 70, 40, 200, 130, False), "none", float16, {}),
    "tiny": (AttentionSizes(1, 2, 1, 3, 2, 1, 2, True), "none", float32, {}),
    "batches of heads 20 wide": (AttentionSizes(3, 4, 2, 70, 70, 20, 20, False), "none", bfloat16, {}),
    "heads 24 wide, of them groups": (AttentionSizes(1, 4, 2, 40, 70, 24, 24, True), "none", bfloat16, {}),
    "heads 40 wide": (AttentionSizes(2, 1, 1, 70, 70, 40, 40, False), "test", float32, {}),
    "heads 80 wide": (AttentionSizes(1, 1, 1, 70, 40, 80, 80, True), "none", float16, {}),
    "heads 96 wide": (AttentionSizes(1, 1, 1, 40, 70, 96, 96, False), "added", bfloat16, {}),
    "blocks that are hidden, strict": (AttentionSizes(2, 2, 1, 140, 70, 16, 16, False), "padding", float32, _STRICT),
    "dropout": (AttentionSizes(1, 2, 2, 70, 40, 16, 24, False), "none", float32, {"dropout": 0.5, "stream": 7}),
    "dropout, a mask that is added": (
        AttentionSizes(1, 2, 1, 40, 70, 80, 16, False),
        "added",
        float16,
        {"dropout": 0.1},
    ),
}
BESIDE = [name for name, (plan, _, dtype, _) in CASES.items() if plan.has_gradients_beside(dtype)]
KEY = np.array([0x123456789ABCDEF, 2**32 - 3, 2**40 + 1], np.uint64)  # its counters have carries
TOLERANCE = {bfloat16: 3e-2, float16: 4e-3, float32: 3e-6}


def operands_of(plan: AttentionSizes, kind: str, dtype: DType) -> list[Array]:
    """q, k, v as parts of one product, as far as their shapes let them; a mask."""
    rng = np.random.default_rng(plan.queries)
    heads = (plan.heads, plan.key_heads, plan.key_heads)
    sizes = [(plan.queries, plan.width), (plan.keys, plan.width), (plan.keys, plan.value_width)]
    longest = max(rows for rows, _ in sizes)
    product = rng.standard_normal((plan.batch, longest, sum(h * n for h, (_, n) in zip(heads, sizes))))
    product, parts, at = product.astype(dtype.numpy), [], 0
    for h, (rows, width) in zip(heads, sizes):
        part = product[:, :rows, at : at + h * width].reshape(plan.batch, rows, h, width)
        parts.append(part.swapaxes(1, 2))
        at += h * width
    if kind == "added":
        parts.append(np.broadcast_to(rng.standard_normal(plan.scores[2:]).astype(dtype.numpy), plan.scores))
    if kind == "test":
        test = rng.random((1, *plan.scores[1:])) < 0.6
        test[..., 1, :] = False
        parts.append(np.broadcast_to(test, plan.scores))
    if kind == "keys":
        parts.append(np.broadcast_to(rng.random((plan.batch, 1, 1, plan.keys)) < 0.6, plan.scores))
    if kind == "padding":  # the middle of the queries sees the first keys, all others the last
        middle = abs(np.arange(plan.queries)[:, None] - plan.queries // 2) < plan.queries // 4
        test = middle == (np.arange(plan.keys) < plan.keys // 5)
        test[3] = False
        parts.append(np.broadcast_to(test, plan.scores))
    return parts


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("name", "summed"), some([(BESIDE[0], True), *((n, False) for n in CASES), *((n, True) for n in BESIDE[1:])], 6)
)
def test_the_kernels_give_what_float64_gives(name: str, summed: bool) -> None:
    plan, kind, dtype, attrs = CASES[name]
    attrs = {"scale": plan.width**-0.5, "strict": False} | ({"stream": 0} if "dropout" in attrs else {}) | attrs
    operands = operands_of(plan, kind, dtype)
    exact = [x if x.dtype == bool else x.astype(np.float64) for x in operands]
    if "dropout" in attrs:
        operands.append(KEY)
        exact.append(KEY)
    numbers = [math.prod(shape) for shape in plan.packed(dtype)]
    packed = np.full(sum(numbers), np.nan, dtype.numpy)
    interpret(ATTENTION.lower, operands, packed, causal=plan.causal, learned=False, **attrs)
    expected = attention_numpy.forward(np, plan, *exact, **attrs)
    out, *logarithms = np.split(packed.astype(np.float64), np.cumsum(numbers)[:-1])
    assert_near(out, expected[: numbers[0]], TOLERANCE[dtype])
    assert_near(sum(logarithms), expected[numbers[0] :], max(TOLERANCE[dtype] / 100, 1e-6))

    rng = np.random.default_rng(1)
    g, g_lse = (rng.standard_normal(shape).astype(dtype.numpy) for shape in plan.result)
    sizes = [math.prod(shape) for shape in plan.gradients]
    found = np.full(sum(sizes) + summed * plan.columns, np.nan, dtype.numpy)
    attrs.pop("strict")
    interpret(
        ATTENTION_BACKWARD.lower, [g, g_lse, packed, *operands], found, causal=plan.causal, summed=summed, **attrs
    )
    cotangents = [x.astype(np.float64) for x in (g, g_lse)]
    expected = attention_numpy.backward(np, plan, *cotangents, expected, *exact, summed=False, **attrs)
    found, sums = np.split(found, [sum(sizes)])
    for part, whole in zip(gradients(plan, dtype, found), np.split(expected, np.cumsum(sizes)[:-1])):
        assert_near(part, whole, TOLERANCE[dtype])
    if summed:  # of what was written, and rounded once
        exact_sums = found.reshape(-1, plan.columns).astype(np.float64).sum(0)
        assert_near(sums, exact_sums, np.ldexp(1.0, -7 if dtype is bfloat16 else -10))


@pytest.mark.parametrize(("batch", "heads", "key_heads", "section"), [(1, 5, 5, 2), (3, 2, 1, 4)])
def test_heads_are_attended_in_sections(
    batch: int, heads: int, key_heads: int, section: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one may have fewer heads; 64 positions of 16 float32 numbers, of keys and of values, are 8 KiB."""
    plan = AttentionSizes(batch, heads, key_heads, 64, 64, 16, 16, True)
    monkeypatch.setitem(CASES, "sections", (plan, "none", float32, {}))
    monkeypatch.setattr(attention_kernels, "SECTION_NBYTES", 16 << 10)
    operands = tuple(map(strided, operands_of(plan, "none", float32)))
    attrs = {"causal": True, "scale": 1.0, "strict": False}
    (launch,) = attention_kernels.FORWARD.plan(operands, attrs).launches
    assert launch.constants["SECTION"] == section
    test_the_kernels_give_what_float64_gives("sections", summed=False)


@pytest.mark.parametrize("name", ["dropout", *some(["dropout, causal", "dropout, a mask that tests"], 0)])
def test_what_dropout_keeps_is_drawn_again_where_its_bits_would_be_many(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_kernels, "BITS_NBYTES", 0)
    test_the_kernels_give_what_float64_gives(name, summed=False)


def gradients(plan: AttentionSizes, dtype: DType, packed: Array) -> list[Array]:
    """Of q, k and v, as they lie: beside each other, or one after the other."""
    if plan.has_gradients_beside(dtype):
        return np.split(packed.reshape(plan.beside), [plan.heads, plan.heads + plan.key_heads], 2)  # type: ignore[return-value]
    return np.split(packed, np.cumsum([math.prod(shape) for shape in plan.gradients])[:-1])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_blocks_that_a_mask_hides_are_not_attended() -> None:
    """NaN in values that no query of their block sees would be in the sums."""
    plan = AttentionSizes(1, 1, 1, 140, 140, 16, 16, False)
    operands = operands_of(plan, "none", float32)
    seen = np.ones(plan.scores, np.bool_)
    seen[..., 64:128, 64:128] = False
    operands[2][:, :, 64:128] = np.nan
    packed = np.zeros(plan.queries * 17, np.float32)
    attrs = {"causal": False, "learned": False, "scale": 1.0, "strict": False}
    interpret(ATTENTION.lower, [*operands, seen], packed, **attrs)
    out = packed[: 140 * 16].reshape(140, 16)
    assert np.isfinite(out[64:128]).all()
    assert np.isnan(out[:64]).all()
    g, g_lse = (np.ones(shape, np.float32) for shape in plan.result)
    found = np.zeros(sum(map(math.prod, plan.gradients)), np.float32)
    attrs = {"causal": False, "scale": 1.0, "summed": False}
    packed[: 140 * 16].reshape(140, 16)[:64] = packed[: 140 * 16].reshape(140, 16)[128:] = 0  # as if all were finite
    interpret(ATTENTION_BACKWARD.lower, [g, g_lse, packed, *operands, seen], found, **attrs)
    assert np.isfinite(found.reshape(3, 140, 16)[0, 64:128]).all()  # of queries


# ---- compiled


def printed(function: str, dtype: DType, width: int) -> Handwritten:
    """The call that launches `function`, of a size that its blocks divide; causal."""
    plan = AttentionSizes(1, 2, 2, 512, 512, width, width, True)
    heads = contiguous(dtype, 1, 2, 512, width)
    attrs: dict[str, Any] = {"causal": True, "scale": 0.125}
    if function == "attention_forward":
        return print_call(ATTENTION.lower, (heads,) * 3, dtype, attrs | {"strict": False, "learned": False})
    attrs["summed"] = dtype is not float32
    g, g_lse = (contiguous(dtype, *shape) for shape in plan.result)
    packed = contiguous(dtype, sum(map(math.prod, plan.packed(dtype))))
    return print_call(ATTENTION_BACKWARD.lower, (g, g_lse, packed, heads, heads, heads), dtype, attrs)


def check(function: str, dtype: DType, width: int, capability: int, folder: Path) -> None:
    made = printed(function, dtype, width)
    stack = 64 if width < 128 else 300  # wide rows: the fastest spill some, and narrower blocks are slower
    unit = unit_of(dtype, capability) if width < 256 else ""  # blocks of fewer rows
    check_compiled(made, function, capability, folder, unit=unit, stack=stack)


def test_the_forward_compiles_for_hopper(tmp_path: Path) -> None:
    check("attention_forward", bfloat16, 64, 90, tmp_path)


def test_the_sums_of_gradients_compile_for_hopper(tmp_path: Path) -> None:
    check_compiled(printed("attention_sums", bfloat16, 64), "attention_sums", 90, tmp_path)


CHOICES = [(f, bfloat16 if n == 2 else float32, width, 90) for f, table in BLOCKS.items() for n, width in table]


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "dtype", "width", "capability"), [*CHOICES, *((f, bfloat16, 64, 80) for f in BLOCKS)]
)
def test_every_choice_of_blocks_compiles(
    function: str, dtype: DType, width: int, capability: int, tmp_path: Path
) -> None:
    check(function, dtype, width, capability, tmp_path)


# ---- what is refused


@pytest.mark.parametrize(
    ("dtype", "width", "why"),
    [(float64, 16, "16-bit floats and f32, not float64"), (bfloat16, 512, "heads up to 256 wide")],
)
def test_what_the_kernels_do_not_take_is_refused_with_the_reason(dtype: DType, width: int, why: str) -> None:
    with pytest.raises(LoweringError, match=why):
        printed("attention_forward", dtype, width)


def test_a_routine_without_kernels_says_so() -> None:
    assert isinstance(ATTENTION.lower, Routine)
    with pytest.raises(LoweringError, match="attention has no kernels"):
        print_call(replace(ATTENTION.lower, kernels=None), (), float32, {})


def test_blocks_are_no_larger_than_the_sizes_need() -> None:
    few = AttentionSizes(1, 1, 1, 5, 40, 64, 64, False)
    assert attention_kernels.blocks_of("attention_forward", bfloat16, few) == AttentionBlocks(16, 64, 4, 3)


def test_equal_launches_have_equal_names() -> None:
    one, other = (printed("attention_forward", bfloat16, 32) for _ in range(2))
    assert module_of(one).source == module_of(other).source
    assert one.launches[0].function != printed("attention_forward", float16, 32).launches[0].function


def test_heads_that_an_index_of_32_bits_cannot_reach_are_refused() -> None:
    far = replace(contiguous(bfloat16, 1, 1, 64, 64), strides=(1 << 40, 1 << 40, 1 << 26, 1))
    with pytest.raises(LoweringError, match="spans 2\\^31 elements or more"):
        print_call(ATTENTION.lower, (far,) * 3, bfloat16, {"causal": True, "scale": 1.0, "strict": False})
