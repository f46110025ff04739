"""The judge of one gradient: how far eager and compiled are from a reference, and whether that is well.

In: arrays. Out: `Comparison`. Error measure: max |g - ref| / max |ref| over the elements that are finite in the
reference (absolute where it is zero). A compiled gradient passes if err(compiled) <= factor * err(eager) + tiny, with
tiny = `ulps` units of rounding of the parameter's dtype: eager is the yardstick, so no tolerance has to be guessed.
Whatever is not finite must be the same: NaN where the reference has NaN, +inf where it has +inf, -inf where -inf. That
eager has it too is no excuse, but is said. A reference without a finite element proves nothing, and does not hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from compiler_core.ops.registry import Array

LOOSE_ULPS = 1e4  # an eager error beyond this many units of rounding is a weak yardstick


@dataclass(frozen=True, slots=True)
class Tolerance:
    """err(compiled) <= factor * err(eager) + ulps * eps(dtype)."""

    factor: float = 4.0
    ulps: float = 32.0

    def limit(self, eager_error: float, dtype: np.dtype[Any]) -> float:
        eager = eager_error if math.isfinite(eager_error) else 0.0
        return self.factor * eager + self.ulps * float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One kind of gradient of one parameter. failure: empty, or what is wrong. note: what could not be compared."""

    eager_error: float
    compiled_error: float
    failure: str
    note: str = ""


def strangeness(gradient: Array, reference: Array) -> str:
    """Where NaNs and infinities are not the reference's, in words; empty if they are."""
    a, b = gradient.astype(np.float64), reference.astype(np.float64)
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return f"NaN in {np.isnan(a).sum()} of {a.size} elements, reference in {np.isnan(b).sum()}"
    infinite = np.isinf(a) | np.isinf(b)
    if not np.array_equal(a[infinite], b[infinite]):
        place = int(np.argmax(infinite & (a != b)))
        count = int((a[infinite] != b[infinite]).sum())
        return f"infinite differently in {count} of {a.size} elements: {a.flat[place]}, reference {b.flat[place]:.3g}"
    return ""


def error_of(gradient: Array, reference: Array) -> float:
    """Largest deviation, relative to the reference's largest element. inf where NaNs or infinities differ."""
    if gradient.size == 0:
        return 0.0
    if strangeness(gradient, reference):
        return math.inf
    a, b = gradient.astype(np.float64), reference.astype(np.float64)
    finite = np.isfinite(b)
    if not finite.any():
        return 0.0
    scale = float(np.abs(b[finite]).max())
    return float(np.abs(a[finite] - b[finite]).max()) / (scale or 1.0)


def judge(
    what: str, reference: Array | None, eager: Array | None, compiled: Array | None, tolerance: Tolerance
) -> Comparison:
    """Judge one gradient, or anything else that comes in these three forms. what: "local", "reduced", ..."""
    sides = {"reference": reference, "eager": eager, "compiled": compiled}
    if reference is None or eager is None or compiled is None:
        present = [who for who, array in sides.items() if array is not None]
        return Comparison(0.0, 0.0, f"{what}: only {' and '.join(present)} gave a gradient" if present else "")
    if not reference.shape == eager.shape == compiled.shape:
        shapes = ", ".join(f"{who} {list(a.shape)}" for who, a in sides.items() if a is not None)
        return Comparison(math.inf, math.inf, f"{what}: shapes differ: {shapes}")
    eager_error, compiled_error = error_of(eager, reference), error_of(compiled, reference)
    strange = strangeness(compiled, reference) if compiled.size else ""
    if strange:
        shared = " (eager too)" if not strangeness(compiled, eager) else ""
        return Comparison(eager_error, compiled_error, f"{what}: {strange}{shared}")
    if reference.size and not np.isfinite(reference.astype(np.float64)).any():
        text = f"{what}: proves nothing, the float64 reference is {reference.flat[0]} and nowhere finite"
        return Comparison(eager_error, compiled_error, text)
    limit = tolerance.limit(eager_error, compiled.dtype)
    failure = "" if compiled_error <= limit else f"{what}: error {compiled_error:.2e} > {limit:.2e}"
    return Comparison(eager_error, compiled_error, failure, _note(what, reference, eager_error, compiled.dtype))


def _note(what: str, reference: Array, eager_error: float, dtype: np.dtype[Any]) -> str:
    """What weakens the judgement."""
    strange = int((~np.isfinite(reference.astype(np.float64))).sum())
    if strange:
        return f"{what}: the float64 reference itself is not finite in {strange} of {reference.size} elements"
    if eager_error > LOOSE_ULPS * float(ml_dtypes.finfo(dtype).eps):  # type: ignore[no-untyped-call]
        return f"{what}: eager itself is {eager_error:.1e} from float64, so the yardstick is loose"
    return ""
