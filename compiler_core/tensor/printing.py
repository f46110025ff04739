"""The text of a Tensor, laid out as torch lays it out.

In: a Tensor. Out: `tensor([[1., 2.]], requires_grad=True)`: four digits, scientific where magnitudes differ by more
than 1000, edges alone above 1000 elements, complex numbers as two such texts (`1.+2.j`), dtype where Python's literals
would not give it, then the history. On a traced tensor: a graph break (its data is not known).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from compiler_core import dtype as dt
from compiler_core.breaking import breaks_graph
from compiler_core.forward.level import tangent_of
from compiler_core.ops.batching.value import levels_of
from compiler_core.ops.registry import Array
from compiler_core.records import dataclass
from compiler_core.tensor.autograd.tape import GradNode
from compiler_core.tensor.nodes.names import name_of

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


@dataclass(slots=True)
class PrintOptions:
    """How Tensors are laid out, as torch.set_printoptions says. sci_mode None: where magnitudes ask for it."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


OPTIONS = PrintOptions()
_PROFILES: dict[str, dict[str, float]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}


@breaks_graph("it is set how tensors are printed")
def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """torch.set_printoptions. profile: "default", "short" or "full"; what is given beside it counts more."""
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    chosen = {name: value for name, value in given.items() if value is not None}
    for name, value in {**_PROFILES.get(profile or "", {}), **chosen}.items():
        setattr(OPTIONS, name, value)
    OPTIONS.sci_mode = sci_mode


@contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """A region with other options of `set_printoptions`."""
    before = dataclasses.asdict(OPTIONS)
    set_printoptions(**options)
    try:
        yield
    finally:
        set_printoptions(**before)


def format_tensor(tensor: Tensor, *, tensor_contents: str | None = None) -> str:
    """`repr` of a Tensor, under its class's name (`printed_as`); within Parameter() where it is marked as one.

    tensor_contents: what stands for its numbers.
    """
    prefix = vars(type(tensor)).get("printed_as", type(tensor).__name__) + "("
    if levels := levels_of(tensor._cell.raw):
        return f"BatchedTensor({prefix[:-1]} of shape {tuple(tensor.shape)}, in {len(levels)} levels of vmap)"
    if tensor.is_meta:
        text = with_suffixes(f"{prefix}{tensor_contents or '...'}", _meta_suffixes(tensor), len(prefix))
    else:
        numbers = format_contents(tensor, len(prefix)) if tensor_contents is None else tensor_contents
        text = with_suffixes(prefix + numbers, _suffixes(tensor, tensor._array("printing")), len(prefix))
    return f"Parameter({text})" if vars(tensor).get("_is_param") else text


def format_contents(tensor: Tensor, indent: int) -> str:
    """A Tensor's numbers in brackets; `indent` characters stand before the first."""
    array = tensor._array("printing")
    if array.size == 0:
        return "[]"
    summarize = array.size > OPTIONS.threshold
    shown = _edges(array) if summarize else array
    return _nested(array, indent, summarize, _formatter(shown))


def _meta_suffixes(tensor: Tensor) -> list[str]:
    dtype = [] if tensor.dtype is dt.get_default_dtype() else [f"dtype={tensor.dtype!r}"]
    return ["device='meta'", f"size={tuple(tensor.shape)}", *dtype, *history(tensor)]


def _suffixes(tensor: Tensor, array: Array) -> list[str]:
    dtype, place = dt.of(array), tensor.device
    result = [f"device='{place}'"] if place.is_gpu else []
    if array.size == 0 and array.ndim != 1:
        result.append(f"size={tuple(array.shape)}")
    literals = (dt.get_default_dtype(), dt.of_number(complex), dt.int64, dt.bool_)
    implied = dtype in literals and (array.size or dtype is dt.get_default_dtype())
    if not implied:
        result.append(f"dtype={dtype!r}")
    return result + history(tensor)


def history(tensor: Tensor) -> list[str]:
    """What a Tensor's text says of its history."""
    edge, carried = tensor._edge(), tangent_of(tensor)
    tangent = [] if carried is None else [f"tangent={carried}"]
    if isinstance(edge, GradNode):
        return [f"grad_fn=<{name_of(edge)}>", *tangent]
    return tangent if edge is None else ["requires_grad=True", *tangent]


def with_suffixes(text: str, suffixes: list[str], indent: int, force_newline: bool = False) -> str:
    """`text`, the suffixes after commas, on further lines where the width asks for it, and a bracket."""
    last_line = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if force_newline or last_line + len(suffix) + 2 > OPTIONS.linewidth:
            text += ",\n" + " " * indent + suffix
            last_line, force_newline = indent + len(suffix), False
        else:
            text += ", " + suffix
            last_line += len(suffix) + 2
    return text + ")"


def _edges(array: Array) -> Array:
    """The elements that are shown of an array too large to show."""
    for dim in range(array.ndim):
        if array.shape[dim] > 2 * OPTIONS.edgeitems:
            keep = [*range(OPTIONS.edgeitems), *range(array.shape[dim] - OPTIONS.edgeitems, array.shape[dim])]
            array = np.take(array, keep, dim)
    return array


class _Numbers(NamedTuple):
    """Number -> text. width: that of the widest finite number but 0, by which lines are broken."""

    text: Callable[[Any], str]
    width: int


def _aligned(text: Callable[[Any], str], width: int) -> _Numbers:
    return _Numbers(lambda v: text(v).rjust(width), width)


def _formatter(shown: Array) -> _Numbers:
    """How these are printed."""
    if shown.dtype.kind == "c":
        real, imag = (_formatter(part) for part in (shown.real, shown.imag))
        width = real.width + imag.width + 1
        return _Numbers(lambda v: _complex_text(real.text(v.real), imag.text(v.imag).lstrip()), width)
    if shown.dtype.kind in "biu":
        return _aligned(str, max(len(str(v)) for v in shown.reshape(-1).tolist()))
    values = shown.reshape(-1).astype(np.float64)
    counted = values[np.isfinite(values) & (values != 0)]
    finite = np.abs(counted)
    if finite.size == 0:
        integral, scientific = True, False
    else:
        high, low = float(finite.max()), float(finite.min())
        integral = bool((finite == np.ceil(finite)).all())
        asked = OPTIONS.sci_mode
        scientific = high / low > 1000 or high > 1e8 or (low < 1e-4 and not integral) if asked is None else asked
    plain = _number_format(integral, scientific)
    return _aligned(lambda v: plain(float(v)), max((len(plain(float(v))) for v in counted), default=1))


def _complex_text(real: str, imag: str) -> str:
    return f"{real}{'' if imag.startswith('-') else '+'}{imag}j"


def _number_format(integral: bool, scientific: bool) -> Callable[[float], str]:
    if scientific:
        return lambda v: f"{v:.{OPTIONS.precision}e}"
    if integral:
        return lambda v: f"{v:.0f}" + ("." if math.isfinite(v) else "")
    return lambda v: f"{v:.{OPTIONS.precision}f}"


def _nested(array: Array, indent: int, summarize: bool, number: _Numbers) -> str:
    if array.ndim == 0:
        return number.text(array.item()).strip()
    if array.ndim == 1:
        return _vector(array, indent, summarize, number)
    if summarize and array.shape[0] > 2 * OPTIONS.edgeitems:
        first = [_nested(a, indent + 1, summarize, number) for a in array[: OPTIONS.edgeitems]]
        parts = [*first, "...", *(_nested(a, indent + 1, summarize, number) for a in array[-OPTIONS.edgeitems :])]
    else:
        parts = [_nested(a, indent + 1, summarize, number) for a in array]
    return "[" + ("," + "\n" * (array.ndim - 1) + " " * (indent + 1)).join(parts) + "]"


def _vector(array: Array, indent: int, summarize: bool, number: _Numbers) -> str:
    values = array.astype(np.float64).tolist() if array.dtype.kind not in "biuc" else array.tolist()
    if summarize and len(values) > 2 * OPTIONS.edgeitems:
        texts = [
            *map(number.text, values[: OPTIONS.edgeitems]),
            " ...",
            *map(number.text, values[-OPTIONS.edgeitems :]),
        ]
    else:
        texts = [number.text(v) for v in values]
    per_line = max(1, (OPTIONS.linewidth - indent) // (number.width + 2))
    lines = [", ".join(texts[i : i + per_line]) for i in range(0, len(texts), per_line)]
    return "[" + ("," + "\n" + " " * (indent + 1)).join(lines) + "]"
