"""torch.testing: `assert_close`, for programs and tests that use it.

In: two values: Tensors, NumPy arrays, numbers, bools, None, or sequences and mappings of these. Out: nothing, or
AssertionError with torch's words: what differs, by how much, where, and at which item. TypeError for other values.
Close means |actual - expected| <= atol + rtol |expected|; without tolerances those of the dtype (whole numbers: equal).
Sparse tensors are compared part by part. The option about strides is taken and has nothing to compare.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.overrides.state import other_layouts
from compiler_core.tensor.tensor import Tensor
from compiler_core.tensor.torch_names import load
from distcompile.errors import ArgumentError

__all__ = ["assert_close"]

Message: TypeAlias = "str | Callable[[str], str] | None"

_TOLERANCES: dict[str, tuple[float, float]] = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}  # by dtype: rtol, atol


@dataclass(frozen=True, slots=True)
class _Comparison:
    """How two values are compared."""

    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    allow_subclasses: bool
    msg: Message

    def fail(self, text: str, item: str) -> None:
        """Raise AssertionError, with the user's message if there is one."""
        text += f"\n\nThe failure occurred for item {item}" if item else ""
        raise AssertionError(self.msg(text) if callable(self.msg) else text if self.msg is None else self.msg)

    def tolerances(self, *dtypes: DType) -> tuple[float, float]:
        """(rtol, atol): those given, or the largest of the dtypes'."""
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        rtols, atols = zip(*(_TOLERANCES.get(dtype.name, (0.0, 0.0)) for dtype in dtypes))
        return max(rtols), max(atols)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Message = None,
) -> None:
    """Raise AssertionError unless actual and expected are close. As torch.testing.assert_close.

    Raises ArgumentError if only one of rtol and atol is given, TypeError for values of unlike or unknown kinds.
    """
    if (rtol is None) != (atol is None):
        raise ArgumentError("Both 'rtol' and 'atol' must be either specified or omitted")
    checks = check_device, check_dtype, check_layout
    _compare(_Comparison(rtol, atol, equal_nan, *checks, allow_subclasses, msg), actual, expected, "")


def _compare(how: _Comparison, actual: Any, expected: Any, item: str) -> None:
    pair = (actual, expected)
    if all(isinstance(v, Sequence) and not isinstance(v, (str, bytes)) for v in pair):
        _compare_sequences(how, actual, expected, item)
    elif all(isinstance(v, Mapping) for v in pair):
        _compare_mappings(how, actual, expected, item)
    elif any(v is None for v in pair):
        if actual is not expected:
            how.fail(f"None mismatch: {actual} is not {expected}", item)
    elif all(isinstance(v, (bool, np.bool_)) for v in pair):
        if bool(actual) is not bool(expected):
            how.fail(f"Booleans mismatch: {actual} is not {expected}", item)
    elif all(_is_number(v) for v in pair):
        _compare_numbers(how, actual, expected, item)
    elif _are_arrays(how, actual, expected):
        if how.check_device and isinstance(actual, Tensor) and actual.device != expected.device:
            how.fail(f"The values for attribute 'device' do not match: {actual.device} != {expected.device}.", item)
        if any(type(v) in other_layouts for v in pair):
            _compare_sparse(how, actual, expected, item)
        else:
            _compare_tensors(how, _as_array(actual), _as_array(expected), item)
    else:
        raise TypeError(f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.")


def _compare_sparse(how: _Comparison, actual: Any, expected: Any, item: str) -> None:
    """Their parts, each place once; all elements, if layouts need not be alike."""
    if actual.layout is not expected.layout:
        if how.check_layout:
            layouts = f"{actual.layout!r} != {expected.layout!r}"
            how.fail(f"The values for attribute 'layout' do not match: {layouts}.", item)
        return _compare(how, actual.to_dense(), expected.to_dense(), item)
    if actual.shape != expected.shape:
        how.fail(f"The values for attribute 'shape' do not match: {actual.shape} != {expected.shape}.", item)
    for part, wanted in zip(_parts(actual), _parts(expected), strict=True):
        _compare_tensors(how, _as_array(part), _as_array(wanted), item)
    return None


def _parts(tensor: Any) -> list[Tensor]:
    once = load(("compiler_core.sparse.parts", "coalesced"))(tensor.detach())
    return [*once.pattern.indices, once.sparse.values]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, complex, np.number)) and not isinstance(value, bool)


def _are_arrays(how: _Comparison, actual: Any, expected: Any) -> bool:
    if not how.allow_subclasses and type(actual) is not type(expected):
        return False
    return any(all(isinstance(v, kind) for v in (actual, expected)) for kind in (Tensor, np.ndarray))


def _as_array(value: Any) -> np.ndarray[Any, Any]:
    return value._array("assert_close()") if isinstance(value, Tensor) else value


def _compare_sequences(how: _Comparison, actual: Sequence[Any], expected: Sequence[Any], item: str) -> None:
    if len(actual) != len(expected):
        how.fail(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", item)
    for k, (a, e) in enumerate(zip(actual, expected)):
        _compare(how, a, e, f"{item}[{k}]")


def _compare_mappings(how: _Comparison, actual: Mapping[Any, Any], expected: Mapping[Any, Any], item: str) -> None:
    missing, additional = ([k for k in a if k not in b] for a, b in ((expected, actual), (actual, expected)))
    if missing or additional:
        how.fail(
            "The keys of the mappings do not match:\n"
            f"Missing keys in the actual mapping: {sorted(missing)}\n"
            f"Additional keys in the actual mapping: {sorted(additional)}",
            item,
        )
    for key in expected:
        _compare(how, actual[key], expected[key], f"{item}[{key!r}]")


def _compare_numbers(how: _Comparison, actual: Any, expected: Any, item: str) -> None:
    a, e = (v.item() if isinstance(v, np.number) else v for v in (actual, expected))
    if how.check_dtype and type(a) is not type(e):
        how.fail(f"The (d)types do not match: {type(a)} != {type(e)}.", item)
    kinds = [{int: dt.int64, float: dt.float64}.get(type(v), dt.complex128) for v in (a, e)]
    rtol, atol = how.tolerances(*kinds)
    if not _close(np.asarray(a), np.asarray(e), rtol, atol, how.equal_nan).all():
        how.fail(_of_scalars(a, e, rtol, atol), item)


def _compare_tensors(how: _Comparison, actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], item: str) -> None:
    dtypes = [dt.of(actual), dt.of(expected)]
    if actual.shape != expected.shape:
        how.fail(f"The values for attribute 'shape' do not match: {actual.shape} != {expected.shape}.", item)
    if how.check_dtype and dtypes[0] is not dtypes[1]:
        how.fail(f"The values for attribute 'dtype' do not match: {dtypes[0]!r} != {dtypes[1]!r}.", item)
    common = dt.promote(*dtypes)
    rtol, atol = how.tolerances(*dtypes)
    wide = [array.astype(common.numpy).astype(_widest(common)) for array in (actual, expected)]
    _judge(how, wide[0], wide[1], rtol, atol, item)


def _widest(dtype: DType) -> Any:
    return np.complex128 if dtype.is_complex else np.float64 if dtype.is_inexact else np.int64


def _judge(how: _Comparison, a: Any, e: Any, rtol: float, atol: float, item: str) -> None:
    matches = _close(a, e, rtol, atol, how.equal_nan)
    if matches.all():
        return
    if a.ndim == 0:
        how.fail(_of_scalars(a.item(), e.item(), rtol, atol), item)
    with np.errstate(all="ignore"):
        absolute = np.where(matches, 0, np.abs(a - e))
        relative = np.where(matches, 0, absolute / np.abs(e)).astype(np.float32 if a.dtype.kind == "i" else np.float64)
    wrong = int((~matches).sum())
    exact = rtol == 0 and atol == 0
    how.fail(
        f"Tensor-likes are not {'equal' if exact else 'close'}!\n\n"
        f"Mismatched elements: {wrong} / {a.size} ({wrong / a.size:.1%})\n"
        f"{_greatest('absolute', absolute, atol, exact)}\n{_greatest('relative', relative, rtol, exact)}",
        item,
    )


def _close(a: Any, e: Any, rtol: float, atol: float, equal_nan: bool) -> np.ndarray[Any, Any]:
    """Elementwise: equal, or finite and near. Equal infinities are close; NaNs if asked."""
    with np.errstate(all="ignore"):
        near = (a == e) | (np.isfinite(e) & (np.abs(a - e) <= atol + rtol * np.abs(e)))
    return near | (np.isnan(a) & np.isnan(e)) if equal_nan else near  # type: ignore[no-any-return]


def _greatest(kind: str, difference: np.ndarray[Any, Any], allowed: float, exact: bool) -> str:
    place = np.unravel_index(int(difference.argmax()), difference.shape)
    text = f"Greatest {kind} difference: {difference[place].item()} at index {tuple(map(int, place))}"
    return text if exact else f"{text} (up to {allowed} allowed)"


def _of_scalars(a: Any, e: Any, rtol: float, atol: float) -> str:
    exact = rtol == 0 and atol == 0
    absolute = abs(a - e)
    relative = absolute / abs(e) if e else math.inf
    absolute_text, relative_text = ("", "") if exact else (f" (up to {atol} allowed)", f" (up to {rtol} allowed)")
    return (
        f"Scalars are not {'equal' if exact else 'close'}!\n\nExpected {e} but got {a}.\n"
        f"Absolute difference: {absolute}{absolute_text}\nRelative difference: {relative}{relative_text}"
    )
