"""Before a composite's kernels are used on a device they give the composition's numbers there, once.

In: a definition of device_rules.py, or one that is pointwise, and the kernels of a dtype. Out: whether its results and
gradients, of a few small operands, are those of the composition on the CPU up to rounding. A definition that raises, or
gives others, is not used in this process; a warning says so, once. It costs a few milliseconds, and one wait for the
device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from compiler_core import cuda, log
from compiler_core.eager.device_kernels import DeviceKernels
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import COMPOSITES

_KEY, _CLASSES = np.array([5, 6, 1], np.uint64), np.array([2, 0, -100, 36])
_WEIGHTS = [np.random.default_rng(6).normal(size=s).astype(np.float32) for s in ((16, 8), (16,), (3, 111))]
_LOSS = {"ignore_index": -100, "reduction": "mean"}
SAMPLES: dict[str, tuple[Sequence[Any], dict[str, Any]]] = {  # shapes, or operands as they are, and attributes
    "batch_norm": (((4, 3, 2, 21), None, None, (3,), (3,)), {"eps": 1e-5}),
    "group_norm": (((4, 6, 2, 21), (6,), (6,)), {"groups": 2, "eps": 1e-5}),
    "dropout": (((40, 9), _KEY), {"p": 0.3, "stream": 4}),
    "with_number": (((3, 111),), {"op": "mul", "number": 0.1}),
    "linear": (((5, 8), (16, 8), (16,)), {}),  # rows of 16 bytes, as cuBLASLt wants them
    "lowered_linear": (((5, 8), _WEIGHTS[0], _WEIGHTS[1]), {}),
    "widened_sum": (((3, 111), _WEIGHTS[2]), {}),
    "attention": (((2, 9, 4), (2, 9, 4), (2, 9, 6), None), {"causal": True, "scale": 0.5}),
    "embedding": (((5, 3), np.array([[1, 4], [1, 0]])), {"padding_idx": None}),
    "cross_entropy": (((4, 37), _CLASSES), _LOSS),
}
MORE: dict[str, tuple[Sequence[Any], dict[str, Any]]] = {  # where other kernels do the same
    "batch_norm": (((16, 3, 1100), None, None, (3,), (3,)), {"eps": 1e-5}),
}
_SLACK = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2, "bfloat16": 1e-1}  # relative to the largest number
_proved: dict[tuple[DeviceKernels, str], bool] = {}


def is_proved(name: str, k: DeviceKernels, forward: Callable[..., Any], backward: Callable[..., Any]) -> bool:
    """Whether definition `name` may be used with these kernels."""

    def difference() -> str:
        wrong = _difference(name, SAMPLES, k, forward, backward)
        return _difference(name, MORE, k, forward, backward) if name in MORE and not wrong else wrong

    return is_right_once(name, k, difference)


def is_right_once(name: str, k: DeviceKernels, difference: Callable[[], str]) -> bool:
    """Whether `difference`, asked once, finds nothing wrong with what `name` gives by these kernels; a warning says."""
    found = _proved.get((k, name))
    if found is None:
        try:
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


def operands_of(
    name: str, dtype: Any, samples: Mapping[str, tuple[Sequence[Any], dict[str, Any]]] = SAMPLES
) -> tuple[list[Any], dict[str, Any]]:
    """Its sample, drawn from a fixed seed."""
    rng, (shapes, attrs) = np.random.default_rng(3), samples.get(name) or _of_derived(name)
    return [rng.normal(size=s).astype(dtype) if isinstance(s, tuple) else s for s in shapes], attrs


def _of_derived(name: str) -> tuple[Sequence[Any], dict[str, Any]]:
    """Of a composite that is pointwise, or works by rows."""
    one = COMPOSITES[name]
    numbers, count = dict.fromkeys(one.numbers, 0.75), one.compose.__code__.co_argcount - 1
    if not one.rows:
        return ((3, 111),), numbers
    return ((70, 37), *[(37,)] * count), {**numbers, **({one.place: 1} if one.place else {})}


def _difference(
    name: str, samples: Mapping[str, Any], k: DeviceKernels, forward: Callable[..., Any], backward: Callable[..., Any]
) -> str:
    """What is wrong; empty if nothing is."""
    arrays, attrs = operands_of(name, k.dtype, samples)
    composite = COMPOSITES[name]
    expected = composite.compose(*arrays, **attrs)
    g = np.random.default_rng(4).normal(size=expected.shape).astype(k.dtype)
    slopes = composite.vjp(g, expected, *arrays, **attrs)
    number = cuda.current()
    there = [_there(a, number) for a in arrays]
    needs = [s is not None and s.dtype in (k.dtype, np.float32) for s in arrays]
    computed = forward(k, *there, **attrs)
    if computed is None:  # it declines this dtype
        return ""
    out, kept = computed
    grads = backward(k, needs, cuda.put(g, number), out, kept, *there, **attrs)
    pairs = [(out, expected), *((a, b) for a, b, need in zip(grads, slopes, needs) if need)]
    for place, (made, right) in enumerate(pairs):
        if not _is_near(cuda.fetch(made), right, _SLACK[k.dtype.name]):
            return "other numbers" if place == 0 else f"another gradient, number {place}"
    return ""


def _there(array: Any, number: int) -> Any:
    is_key = array is None or array.dtype == np.uint64
    return array if is_key else cuda.put(array, number)


def _is_near(made: Array, right: Any, slack: float) -> bool:
    expected = np.asarray(right)
    if made.shape != expected.shape or made.dtype != expected.dtype:
        return False
    a, b = made.astype(np.float64), expected.astype(np.float64)
    is_same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.abs(b[np.isfinite(b)])
    return bool((is_same | (np.abs(a - b) <= slack * finite.max(initial=1.0))).all())
