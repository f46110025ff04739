"""Convolution and its two gradients with channels innermost everywhere, the weight's too: what a GPU's kernels compute.

In: x: f[N, *n, C], weight: f[O, *k, C/groups], g: f[N, *o, O]; attributes as in op.py. Out: convolution_inner
f[N, *o, O], convolution_inner_input f[N, *n, C], convolution_inner_weight f[O, *k, C/groups]. These stand only in
graphs that are differentiated already: the pass graph/passes/channels_last.py puts them there for a CUDA device.
Their NumPy definition is op.py's, axes moved. On a CUDA device they are the Triton functions of
codegen/triton/kernels/convolution.py, which gather blocks where they lie; where each channel is a group of its own,
those of depthwise.py; elsewhere the definition is called back.
Limits of the kernels: one or two spatial dims; f32 (three products of tf32) and 16-bit floats (summed in f32).
Seam: cuDNN would be a `cuda` form of the same routines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from compiler_core.dtype import bfloat16, float16, float32
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops.convolution import depthwise
from compiler_core.ops.convolution import op as first
from compiler_core.ops.convolution.last import to_first, to_last
from compiler_core.ops.convolution.sizes import Sizes, ceil
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, register, run_eager
from compiler_core.ops.routine import (
    Attrs,
    KernelLaunch,
    KernelPlan,
    Routine,
    Strided,
    TritonKernels,
    is_contiguous,
    register_routine,
)
from compiler_core.ops.rules import OwnCode

DTYPES = (float32, bfloat16, float16)
_WHY_NONE = "the compiler writes it into graphs that are differentiated already"
_WHY_BACK = "its kernels are a GPU's"
_PRECISION = "tf32x3"  # of products of f32: as in attention/kernels.py
_WIDE_PROGRAMS = 264
_PROGRAMS = 512  # that keep a GPU busy: what the positions of a weight's gradient are split for


# ---- the rules


def _first(meta: TensorMeta) -> TensorMeta:
    return meta.with_shape(_pick(meta.shape, to_first(meta.ndim)))


def _last(meta: TensorMeta) -> TensorMeta:
    return meta.with_shape(_pick(meta.shape, to_last(meta.ndim)))


def _pick(shape: Shape, dims: tuple[int, ...]) -> Shape:
    return tuple(shape[d] for d in dims)


def _infer_by(op: Op) -> Callable[..., TensorMeta]:
    def infer(a: TensorMeta, b: TensorMeta, **attrs: Any) -> TensorMeta:
        return _last(op.infer(_first(a), _first(b), **attrs))

    return infer


def _eager_by(op: Op) -> Callable[..., Array]:
    def eager(xp: Any, a: Array, b: Array, **attrs: Any) -> Array:
        found = run_eager(op, tuple(xp.transpose(x, to_first(x.ndim)) for x in (a, b)), attrs)
        return xp.transpose(found, to_last(found.ndim)).copy(order="C")  # type: ignore[no-any-return]

    return eager


# ---- kernels


class ProductBlocks(NamedTuple):
    """rows, columns of a block of the result; depth: how much of the sum at a time."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


def _blocks(rows: int, columns: int, depth: int, itemsize: int) -> ProductBlocks:
    """For a product (rows, depth) x (depth, columns)."""
    wide = _padded(columns, 128 if itemsize == 2 else 64)
    tall = _padded(rows, 128 if wide >= 64 else 64)
    return ProductBlocks(tall, wide, _padded(depth, 64 if itemsize == 2 else 32), 8 if tall * wide >= 1 << 14 else 4, 3)


def _wider(blocks: ProductBlocks, rows: int, columns: int) -> ProductBlocks:
    """With 256 columns where two programs a multiprocessor are left: a fifth faster on an H200."""
    fits = blocks == ProductBlocks(128, 128, 64, 8, 3) and columns % 256 == 0
    return blocks._replace(columns=256) if fits and rows // 128 * (columns // 256) >= _WIDE_PROGRAMS else blocks


def _padded(n: int, most: int) -> int:
    return min(max(1 << (n - 1).bit_length(), 16), most)


def _sizes(x: Shape, g: Shape, kernel: Shape, attrs: Attrs) -> Sizes:
    """x, g: channels last. One spatial dim gets another before it, of length 1."""
    groups = attrs["groups"]
    (h, w), (oh, ow), (kh, kw) = _two(x[1:-1], 1), _two(g[1:-1], 1), _two(kernel, 1)
    (sh, sw), (ph, pw), (dh, dw) = _two(attrs["stride"], 1), _two(attrs["low"], 0), _two(attrs["dilation"], 1)
    c, o = x[-1] // groups, g[-1] // groups
    return Sizes(x[0], h, w, groups, c, o, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw)


def _two(dims: tuple[int, ...], fill: int) -> tuple[int, ...]:
    return (fill,) * (2 - len(dims)) + tuple(dims)


def _launch(
    function: str, names: tuple[str, ...], sizes: Sizes, blocks: ProductBlocks, programs: int, **more: Any
) -> KernelLaunch:
    constants = {**sizes._asdict(), "BM": blocks.rows, "BN": blocks.columns, "BK": blocks.depth, **more}
    return KernelLaunch(function, names, {**constants, "PRECISION": _PRECISION}, programs, blocks.warps, blocks.stages)


def _forward(operands: tuple[Strided, ...], attrs: Attrs) -> KernelPlan:
    x, weight = operands
    g = _infer_by(first.CONVOLUTION)(x.meta, weight.meta, **attrs)
    sizes = _sizes(x.shape, g.shape, weight.shape[1:-1], attrs)
    if sizes.is_depthwise:
        return depthwise.forward(sizes)
    flat, rows = sizes.C < 16, sizes.N * sizes.OH * sizes.OW
    blocks = _blocks(rows, sizes.O, sizes.C * (sizes.kernel if flat else 1), x.dtype.itemsize)
    blocks = _wider(blocks, rows, sizes.O)
    programs = ceil(rows, blocks.rows) * ceil(sizes.O, blocks.columns) * sizes.G
    return KernelPlan((_launch("convolution_forward", ("o0", "o1", "out"), sizes, blocks, programs, FLAT=flat),))


def _input(operands: tuple[Strided, ...], attrs: Attrs) -> KernelPlan:
    g, weight = operands
    own = {name: value for name, value in attrs.items() if name != "size"}
    x = (g.shape[0], *attrs["size"], weight.shape[-1] * attrs["groups"])
    sizes = _sizes(x, g.shape, weight.shape[1:-1], own)
    if sizes.is_depthwise:
        return depthwise.gradient_of_input(sizes)
    apart = (sizes.SH, sizes.SW) if sizes.DH == sizes.DW == 1 else (1, 1)
    rows = sizes.N * ceil(sizes.H, apart[0]) * ceil(sizes.W, apart[1])
    blocks = _wider(_blocks(rows, sizes.C, sizes.O, g.dtype.itemsize), rows, sizes.C)
    programs = ceil(rows, blocks.rows) * ceil(sizes.C, blocks.columns) * sizes.G * math.prod(apart)
    launch = _launch("convolution_input", ("o0", "o1", "out"), sizes, blocks, programs, AY=apart[0], AX=apart[1])
    return KernelPlan((launch,))


def _weight(operands: tuple[Strided, ...], attrs: Attrs) -> KernelPlan:
    x, g = operands
    sizes = _sizes(x.shape, g.shape, attrs["kernel"], attrs)
    if sizes.is_depthwise:
        return depthwise.gradient_of_weight(sizes)
    flat, rows = sizes.C < 16, sizes.N * sizes.OH * sizes.OW
    blocks = _blocks(sizes.O, sizes.C * (sizes.kernel if flat else 1), rows, x.dtype.itemsize)
    columns = ceil(sizes.kernel * sizes.C, blocks.columns) if flat else sizes.kernel * ceil(sizes.C, blocks.columns)
    programs = columns * ceil(sizes.O, blocks.rows) * sizes.G
    split = max(min(_PROGRAMS // programs, rows // (8 * blocks.depth)), 1)
    number = sizes.G * sizes.O * sizes.kernel * sizes.C
    target = "out" if split == 1 else "s0"
    launch = _launch(
        "convolution_weight", ("o0", "o1", target), sizes, blocks, programs * split, FLAT=flat, SPLIT=split
    )
    if split == 1:
        return KernelPlan((launch,))
    constants = {"NUMBER": number, "SPLIT": split, "BN": 512}
    total = KernelLaunch("convolution_sum", ("s0", "out"), constants, ceil(number, 512), 4, 1)
    return KernelPlan((launch, total), ((float32, split * number),))


def _refuses(operands: tuple[Strided, ...], attrs: Attrs) -> str:
    if operands[0].dtype not in DTYPES:
        return f"kernels of convolutions are for 16-bit floats and f32, not {operands[0].dtype.name}"
    if len(attrs["stride"]) > 2:
        return "kernels of convolutions are for one and two spatial dims"
    if not all(layout.numel for layout in operands):
        return "a convolution of nothing"
    if any(math.prod(layout.shape[1:]) >= 1 << 31 for layout in operands):
        return "an image of a convolution has 2^31 elements or more"
    images = operands[0].shape[0], *attrs.get("size", operands[0].shape[1:-1])
    if max(math.prod(images), operands[0].numel // operands[0].shape[-1]) >= 1 << 31:
        return "a convolution has 2^31 positions or more"
    weight = operands[1].numel
    if "kernel" in attrs:  # the weight's own gradient
        weight = operands[0].shape[-1] * operands[1].shape[-1] // attrs["groups"] * math.prod(attrs["kernel"])
    if weight >= 1 << 31:
        return "a convolution's weight has 2^31 elements or more"
    return ""


# ---- registration


def _samples(op: Op) -> tuple[Sample, ...]:
    """Those of convolution.py, axes moved, that are not empty."""
    found = []
    for sample in op.samples:
        moved = tuple(_pick(shape, to_last(len(shape))) for shape in sample.shapes)
        if all(map(math.prod, moved)):
            found.append(Sample(moved, sample.attrs, low=sample.low, high=sample.high))
    return tuple(found)


_OURS = OwnCode("made by our own code generators, for their layouts")


def _register(op: Op, plan: Callable[..., KernelPlan], flops: Callable[..., int]) -> Op:
    name, eager = op.name.replace("convolution", "convolution_inner"), _eager_by(op)

    def define(out: Array, *operands: Array, **attrs: Any) -> None:
        with np.errstate(all="ignore"):
            out[...] = eager(np, *operands, **attrs)

    def cost(a: TensorMeta, b: TensorMeta, **attrs: Any) -> int:
        return flops(_first(a), _first(b), **attrs)

    kernels = TritonKernels("convolution", _refuses, plan)
    routine = Routine(name, define, _WHY_BACK, accepts=is_contiguous, flops=cost, kernels=kernels)
    none = NotDifferentiable(_WHY_NONE)
    return register(
        Op(name, _infer_by(op), eager, none, register_routine(routine), _samples(op), DTYPES, engines=_OURS)
    )


INNER: Mapping[Op, Op] = {
    first.CONVOLUTION: _register(first.CONVOLUTION, _forward, first.flops),
    first.CONVOLUTION_INPUT: _register(first.CONVOLUTION_INPUT, _input, first.flops_input),
    first.CONVOLUTION_WEIGHT: _register(first.CONVOLUTION_WEIGHT, _weight, first.flops_weight),
}
