"""Operands for conformance tests, generated from the op registry: a new op needs no new test.

In: `OPS` and each op's samples. Out: `all_cases()`: (op, sample, dtype, arrays), and the variant they are.
Complex operands have both parts from the sample's range.
Variants: "plain", the sample as given; "strided", the same numbers in non-contiguous arrays; and for pointwise ops and
reductions "empty" and "single" (every size 0, or 1) and "special" (NaN, infinities, zeros of both signs).
The numbers depend on nothing but the case's name.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from compiler_core import ops as registration  # importing it registers the primitives
from compiler_core.aot import boundary, branch, loop, scan  # they register more
from compiler_core.dtype import DType, bool_, complex128, float32, float64, of
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import OPS, Array, NotDifferentiable, Op, Sample, meta_of
from compiler_core.ops.rules import Pointwise, Reduction

assert registration
assert boundary
assert branch
assert loop
assert scan

SPECIAL = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -2.5, 1e-30, 3e38, 0.5)


class Case(NamedTuple):
    """One application of one op."""

    op: Op
    sample: Sample
    dtype: DType
    arrays: tuple[Array, ...]
    variant: str
    name: str

    def eager(self) -> Array:
        """What the op's definition gives."""
        return self.op.eager(np, *self.arrays, **self.sample.attrs)

    def meta(self) -> TensorMeta:
        """What infer promises of it."""
        return self.op.infer(*map(meta_of, self.arrays), **self.sample.attrs)

    def has_cotangents(self) -> bool:
        """Whether there is a vjp, and a floating result to start it from."""
        return not isinstance(self.op.vjp, NotDifferentiable) and self.meta().dtype.is_inexact


# in 16 bits a term is rounded elsewhere on a GPU: right to the size of the terms, not the sum
SUMS = ("attention", "convolution")


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, low: float, high: float) -> Array:
    """Values of `dtype` within [low, high], as far as it reaches; integers are whole numbers of that range or above."""
    if dtype is bool_:
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.is_floating_point:
        return np.asarray(rng.uniform(low, high, shape)).astype(dtype.numpy)
    if dtype.is_complex:
        return np.asarray(rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(dtype.numpy)
    first = max(math.ceil(low), 0 if dtype.kind == "u" else -100)
    return np.asarray(rng.integers(first, max(math.floor(high), first + 3), shape)).astype(dtype.numpy)


def operands(rng: np.random.Generator, sample: Sample, dtype: DType) -> tuple[Array, ...]:
    """The operands that `sample` asks for."""
    if sample.make is not None:
        return tuple(sample.make(rng, dtype))
    return tuple(draw(rng, shape, dtype, sample.low, sample.high) for shape in sample.shapes)


def strided(array: Array) -> Array:
    """The same numbers, not contiguous: every second element of a larger array with its dims reversed."""
    store = np.zeros([2 * n for n in reversed(array.shape)], array.dtype).T
    view: Array = store[(*(slice(None, None, 2) for _ in array.shape), ...)]
    view[...] = array
    return view


def special_values(op: Op, sample: Sample, dtype: DType) -> tuple[Array, ...]:
    """Every pair of SPECIAL for two operands; for a reduction, each of them in a row with ordinary ones."""
    with np.errstate(over="ignore"):
        values = np.array(SPECIAL).astype(dtype.numpy)
    if isinstance(op.lower, Reduction):
        ordinary = np.ones((len(values), 3), dtype.numpy)
        return (np.concatenate([ordinary[:, :1], values[:, None], ordinary[:, 1:]], axis=1),)
    if len(sample.shapes) == 1:
        return (values,)
    a, b = (np.ascontiguousarray(v) for v in np.meshgrid(values, values))
    return (a, b) if len(sample.shapes) == 2 else (np.arange(a.size).reshape(a.shape) % 2 == 0, a, b)


def _reshaped(case_shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    return tuple(size for _ in case_shape) or (size,)


def _variants(op: Op, sample: Sample, dtype: DType, first: bool) -> Iterator[tuple[str, Sample, tuple[Array, ...]]]:
    """(variant, sample, operands); the variants of size and of value are made once per op and dtype."""
    rng = np.random.default_rng(zlib.crc32(f"{op.name}{sample.shapes}{sorted(sample.attrs)}{dtype.name}".encode()))
    plain = operands(rng, sample, dtype)
    yield "plain", sample, plain
    if dtype in (float32, bool_) and any(a.ndim for a in plain):
        yield "strided", sample, tuple(map(strided, plain))
    regular = isinstance(op.lower, (Pointwise, Reduction))
    if not (first and regular):
        return
    if dtype.is_floating_point:
        attrs = {"dims": (1,)} if isinstance(op.lower, Reduction) else {}
        yield "special", Sample(sample.shapes, attrs), special_values(op, sample, dtype)
    if isinstance(op.lower, Pointwise) and sample.make is None:
        for variant, size in (("empty", 0), ("single", 1)):
            shapes = tuple(_reshaped(shape, size) for shape in sample.shapes)
            sized = Sample(shapes, sample.attrs, sample.low, sample.high)
            yield variant, sized, operands(rng, sized, dtype)
    if isinstance(op.lower, Reduction):
        single = Sample(((1, 1),), {"dims": (1,)}, sample.low, sample.high)
        yield "single", single, operands(rng, single, dtype)
        rows = Sample(((0, 3),), {"dims": (1,)}, sample.low, sample.high)
        yield "empty", rows, operands(rng, rows, dtype)


@cache
def all_cases() -> tuple[Case, ...]:
    """Every case of every op."""
    cases = []
    for op in OPS.values():
        seen: set[DType] = set()
        for number, sample in enumerate(op.samples):
            for dtype in sample.dtypes or op.dtypes:
                for variant, made, arrays in _variants(op, sample, dtype, dtype not in seen):
                    name = f"{op.name}-{number}-{dtype.short}-{variant}"
                    cases.append(Case(op, made, dtype, arrays, variant, name))
                seen.add(dtype)
    return tuple(cases)


def by_op(cases: Sequence[Case]) -> list[Any]:
    """Parameters of a test: the cases of one op each. One test a case would take longer to start than to run."""
    ops = dict.fromkeys(case.op.name for case in cases)
    return [pytest.param(tuple(c for c in cases if c.op.name == name), id=name) for name in ops]


def assert_near(result: Array, expected: Array) -> None:
    """Within the dtype's tolerance of the largest element."""
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    relative, absolute = tolerance(of(expected))
    wide, right = result.astype(np.float64), expected.astype(np.float64)
    largest = np.max(np.abs(right), initial=0.0, where=np.isfinite(right))
    np.testing.assert_allclose(wide, right, rtol=relative, atol=absolute + relative * largest, equal_nan=True)


def check_each(check: Callable[[Case], None], cases: Sequence[Case]) -> None:
    """Check every case; an error tells all those at which the check failed."""
    wrong = []
    for case in cases:
        try:
            check(case)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other cases are checked too
            wrong.append(f"{case.name}: {type(error).__name__}: {error}")
    assert not wrong, f"{len(wrong)} of {len(cases)} cases\n" + "\n".join(wrong)


def differentiable_cases() -> tuple[Case, ...]:
    """The cases at which finite differences mean something: float64 or complex128 in and out."""
    wide = (float64, complex128)
    right = [c for c in all_cases() if c.dtype in wide and c.variant in ("plain", "single", "empty")]
    return tuple(c for c in right if c.has_cotangents() and c.meta().dtype in wide)


def tolerance(dtype: DType) -> tuple[float, float]:
    """(relative, absolute) error allowed between two right computations of one primitive in `dtype`."""
    return {"f64": (1e-12, 1e-13), "f32": (3e-6, 1e-6), "f16": (2e-3, 1e-4), "bf16": (1.6e-2, 1e-4)}.get(
        dtype.real.short, (0.0, 0.0)
    )


def assert_same(actual: Array, expected: Array, dtype: DType) -> None:
    """Same shape and dtype; equal numbers, or near ones if floating (NaN equals NaN)."""
    assert actual.dtype == expected.dtype, f"dtype {actual.dtype}, expected {expected.dtype}"
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    rtol, atol = tolerance(dtype)
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(actual, expected)
    else:
        wide = [x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (actual, expected)]
        np.testing.assert_allclose(*wide, rtol=rtol, atol=atol, equal_nan=True)
