"""Before a composite's kernels are used on a device they give the composition's numbers there, once.

In: a definition of rules.py, or one that is pointwise, and the kernels of a dtype. Out: whether its results and
gradients, of a few small operands, are those of the composition on the CPU up to rounding. A definition that raises, or
gives others, is not used in this process; a warning says so, once. It costs a few milliseconds, and one wait for the
device. Products of f32 are exact meanwhile, though tf32 may be permitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from compiler_core import cuda, log
from compiler_core.eager.device.kernels import DeviceKernels
from compiler_core.ops.registry import Array, Telling
from compiler_core.ops.whole import COMPOSITES

_KEY, _CLASSES = np.array([5, 6, 1], np.uint64), np.array([2, 0, -100, 36])
_WEIGHTS = [np.random.default_rng(6).normal(size=s).astype(np.float32) for s in ((16, 8), (16,), (3, 111))]
_FILTERS = [np.random.default_rng(8).normal(size=s).astype(np.float32) for s in ((16, 8, 3, 3), (16,))]
_PLACES = {"stride": (2, 1), "low": (1, 0), "high": (1, 0), "dilation": (1, 1), "groups": 1}
_DEPTHWISE = {"stride": (1, 1), "low": (1, 2), "high": (1, 2), "dilation": (1, 1), "groups": 6}
_LOSS = {"ignore_index": -100, "reduction": "mean", "smoothing": 0.0}
_MAXIMA: dict[str, Any] = {"kernel": (3, 3), "stride": (2, 2), "dilation": (1, 1), "low": (1, 1), "high": (1, 0)}
_AVERAGES: dict[str, Any] = {
    **{"kernel": (3, 2), "stride": (2, 1), "low": (1, 1), "high": (1, 1), "counts": (4, 7)},
    **{"count_include_pad": False, "divisor_override": None},
}
_ALONG: dict[str, Any] = {"kernel": (4,), "stride": (4,), "low": (0,), "high": (0,), "counts": (7,)}
Sample: TypeAlias = "tuple[Sequence[Any], dict[str, Any]]"


class Last(tuple[int, ...]):
    """The shape of an operand that lies with channels last."""


SAMPLES: dict[str, Sample] = {  # shapes, or operands as they are, and attributes
    "average": (((4, 6, 2, 21),), {"dims": (2, 3), "keepdim": True}),
    "batch_norm": (((4, 3, 2, 21), None, None, (3,), (3,)), {"eps": 1e-5}),
    "group_norm": (((4, 6, 2, 21), (6,), (6,)), {"groups": 2, "eps": 1e-5}),
    "roll": (((4, 3, 5, 7),), {"cuts": (0, 2, 4, 0)}),
    "dropout": (((40, 9), _KEY), {"p": 0.3, "stream": 4}),
    "index": (((5, 3), np.array([[1, 4], [1, 0]])), {}),
    "with_number": (((3, 111),), {"op": "mul", "number": 0.1}),
    "linear": (((5, 8), (16, 8), (16,)), {}),  # rows of 16 bytes, as cuBLASLt wants them
    "lowered_linear": (((5, 8), _WEIGHTS[0], _WEIGHTS[1]), {}),
    "affine": (((5, 8), (8, 16), (16,)), {}),
    "lowered_affine": (((5, 8), _WEIGHTS[0].T.copy(), _WEIGHTS[1]), {}),
    "widened_sum": (((3, 111), _WEIGHTS[2]), {}),
    "widened_product": (((3, 16, 5, 4), _WEIGHTS[1].reshape(16, 1, 1)), {}),
    "maxima_of_windows": (((2, 3, 7, 6),), _MAXIMA),
    "averages_of_windows": (((2, 3, 7, 6),), _AVERAGES),
    "convolution": (((2, 8, 5, 6), (16, 8, 3, 3), (16,)), _PLACES),
    "lowered_convolution": (((2, 8, 5, 6), *_FILTERS), _PLACES),
    "attention": (((2, 9, 4), (2, 9, 4), (2, 9, 6), None), {"causal": True, "scale": 0.5}),
    "embedding": (((5, 3), np.array([[1, 4], [1, 0]])), {"padding_idx": None}),
    "cross_entropy": (((4, 37), _CLASSES), _LOSS),
}
_PER_CHANNEL = [np.random.default_rng(7).uniform(0.5, 2, 16).astype(np.float32) for _ in range(2)]
_EPS = {"eps": 1e-5}
MORE: dict[str, Sequence[Sample]] = {  # where other kernels do the same, or other dtypes stand beside each other
    "cross_entropy": ((((4, 37), _CLASSES), {**_LOSS, "reduction": "sum", "smoothing": 0.2}),),
    "widened_product": (
        ((Last((3, 16, 5, 4)), _WEIGHTS[1].reshape(16, 1, 1)), {}),
        (((3, 111), _WEIGHTS[2]), {}),
        (((5, 9, 16), _WEIGHTS[1]), {}),
        ((Last((3, 5, 4, 7)), _WEIGHTS[2][:, :1].reshape(3, 1, 1, 1)), {}),
    ),
    "roll": (((Last((2, 16, 5, 7)),), {"cuts": (1, 0, 4, 3)}), (((3, 5, 4, 24),), {"cuts": (0, 2, 1, 0)})),
    "average": (
        ((Last((3, 16, 40, 50)),), {"dims": (2, 3), "keepdim": False}),
        (((3, 5, 40, 50),), {"dims": (0, 2, 3), "keepdim": False}),
        (((300, 24),), {"dims": (0,), "keepdim": True}),
    ),
    "batch_norm": (
        (((16, 3, 2200), None, None, (3,), (3,)), _EPS),
        (((6, 16, 4, 8), None, None, *_PER_CHANNEL), _EPS),
        ((Last((6, 16, 4, 8)), None, None, *_PER_CHANNEL), _EPS),
        ((Last((40, 3, 5, 9)), None, None, (3,), (3,)), _EPS),
        (((9, 16), None, None, _PER_CHANNEL[0], None), _EPS),
        ((Last((2, 16, 5, 9)), *_PER_CHANNEL, *_PER_CHANNEL), _EPS),
    ),
    "maxima_of_windows": (
        ((Last((2, 16, 7, 6)),), _MAXIMA),
        (((2, 8, 30),), {"kernel": (4,), "stride": (3,), "dilation": (2,), "low": (2,), "high": (1,)}),
        ((Last((2, 3, 5, 8)),), {**_MAXIMA, "stride": (1, 3), "dilation": (2, 1), "high": (0, 0)}),
    ),
    "averages_of_windows": (
        ((Last((2, 16, 7, 6)),), {**_AVERAGES, "count_include_pad": True}),
        (((2, 8, 30),), {**_ALONG, "count_include_pad": False, "divisor_override": 3}),
        ((Last((2, 3, 7, 6)),), {**_AVERAGES, "high": (3, 2), "counts": (5, 8), "count_include_pad": True}),
    ),
    "group_norm": (
        (((3, 16, 24, 40), *_PER_CHANNEL), {"groups": 1, **_EPS}),
        ((Last((3, 16, 24, 40)), *_PER_CHANNEL), {"groups": 1, **_EPS}),
        ((Last((2, 3, 5, 900)), (3,), None), {"groups": 1, **_EPS}),
        (((2, 16, 8), *_PER_CHANNEL), {"groups": 2, **_EPS}),
        (((5, 16), _PER_CHANNEL[0], None), {"groups": 4, **_EPS}),
    ),
    "convolution": (
        (((3, 6, 9, 10), (6, 1, 3, 3), (6,)), _DEPTHWISE),
        ((Last((2, 6, 9, 10)), (6, 1, 3, 5), (6,)), {**_DEPTHWISE, "stride": (2, 2)}),
    ),
}
_WITHOUT_SLOPES = {"batch_norm": (1, 2)}  # operands whose gradients are the composition's
_SLACK = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2, "bfloat16": 1e-1}  # relative to the largest number
_proved: dict[tuple[DeviceKernels, str], bool] = {}


def is_proved(name: str, k: DeviceKernels, forward: Callable[..., Any], backward: Callable[..., Any]) -> bool:
    """Whether definition `name` may be used with these kernels."""

    def difference() -> str:
        for sample in (SAMPLES.get(name) or _of_derived(name), *MORE.get(name, ())):
            wrong = _difference(name, sample, k, forward, backward)
            if wrong:
                return wrong
        return ""

    return is_right_once(name, k, difference)


def is_right_once(name: str, k: DeviceKernels, difference: Callable[[], str]) -> bool:
    """Whether `difference`, asked once, finds nothing wrong with what `name` gives by these kernels; a warning says."""
    found = _proved.get((k, name))
    if found is None:
        try:
            with _without_tf32(), Telling.unheard():
                wrong = difference()
        except Exception as error:
            if isinstance(error, MemoryError):
                raise
            wrong = f"{type(error).__name__}: {error}"
        if wrong:
            text = f"{name} of {k.dtype} runs op by op on CUDA devices: its kernel gives {wrong}"
            log.warn_once(f"eager {name}", text)
        _proved[k, name] = found = not wrong
    return found


@contextmanager
def _without_tf32() -> Iterator[None]:
    before, cuda.precision.tf32 = cuda.precision.tf32, False
    try:
        yield
    finally:
        cuda.precision.tf32 = before


def operands_of(name: str, dtype: Any, sample: Sample | None = None) -> tuple[list[Any], dict[str, Any]]:
    """Its sample, drawn from a fixed seed."""
    rng, (shapes, attrs) = np.random.default_rng(3), sample or SAMPLES.get(name) or _of_derived(name)
    return [_drawn(rng, s, dtype) if isinstance(s, tuple) else s for s in shapes], attrs


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    made: Array = rng.normal(size=shape).astype(dtype)
    return np.moveaxis(np.moveaxis(made, 1, -1).copy(), -1, 1) if isinstance(shape, Last) else made


def _of_derived(name: str) -> Sample:
    """Of a composite that is pointwise, or works by rows."""
    one = COMPOSITES[name]
    numbers, count = dict.fromkeys(one.numbers, 0.75), one.operands - 1
    if not one.rows:
        return ((3, 111),) * one.operands, numbers
    return ((70, 37), *[(37,)] * count), {**numbers, **({one.place: 1} if one.place else {})}


def _difference(
    name: str, sample: Sample, k: DeviceKernels, forward: Callable[..., Any], backward: Callable[..., Any]
) -> str:
    """What is wrong; empty if nothing is."""
    arrays, attrs = operands_of(name, k.dtype, sample)
    composite = COMPOSITES[name]
    expected = composite.compose(*arrays, **attrs)
    g = np.random.default_rng(4).normal(size=expected.shape).astype(expected.dtype)
    slopes = composite.vjp(g, expected, *arrays, **attrs)
    number = cuda.current()
    there = [_there(a, number) for a in arrays]
    without = _WITHOUT_SLOPES.get(name, ())
    needs = [s is not None and s.dtype in (k.dtype, np.float32) and n not in without for n, s in enumerate(arrays)]
    computed = forward(k, *there, **attrs)
    if computed is None:  # it declines this dtype
        return ""
    out, kept = computed
    grads = backward(k, needs, cuda.put(g, number), out, kept, *there, **attrs)
    pairs = [(out, expected), *((a, b) for a, b, need in zip(grads, slopes, needs) if need)]
    for place, (made, right) in enumerate(pairs):
        if not is_near(cuda.fetch(made), right, k.dtype):
            return "other numbers" if place == 0 else f"another gradient, number {place}"
    return ""


def _there(array: Any, number: int) -> Any:
    """On the device; what lies with channels last does so there."""
    if array is None or array.dtype == np.uint64:
        return array
    if array.ndim > 2 and not array.flags.c_contiguous:
        return cuda.put(np.moveaxis(array, 1, -1), number).transpose(0, array.ndim - 1, *range(1, array.ndim - 1))
    return cuda.put(array, number)


def is_near(made: Array, right: Any, dtype: Any) -> bool:
    """Whether these are the right numbers up to the rounding of `dtype`."""
    expected, slack = np.asarray(right), _SLACK[dtype.name]
    if made.shape != expected.shape or made.dtype != expected.dtype:
        return False
    a, b = made.astype(np.float64), expected.astype(np.float64)
    is_same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.abs(b[np.isfinite(b)])
    return bool((is_same | (np.abs(a - b) <= slack * finite.max(initial=1.0))).all())
