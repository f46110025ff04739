"""Composites that eager code computes whole, under vmap: their kernels run over all examples at once.

In: a composite and operands of which the first stands for a batch. Out: `Mapped`, which the tape takes for a composite:
forward and backward of one example, computed by the composite's own on arrays with the batch in front. What works by
element or row takes them as they are; of others the batch is folded into the first dim. Parameters are one for all
examples; the gradient that each example gives them is computed beside (`_PARAMETERS`). Where something does not fit
(a mask for each example, a weight for each, nested batches) it declines, and the composition's ops run by their rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from compiler_core.ops import prims
from compiler_core.ops.batching.value import Batched, Level
from compiler_core.ops.registry import Array, Attrs, Value

if TYPE_CHECKING:
    from compiler_core.ops.whole import Composite

Grads: TypeAlias = Sequence[Value | None] | None


def mapped(composite: Composite, operands: Sequence[Any]) -> Mapped | None:
    """`composite` for operands that stand for a batch; None where it has to be composed."""
    first = operands[0]
    if type(first) is not Batched or type(first.value) is not np.ndarray or not first.value.size:
        return None
    name = composite.name
    fits = composite.pointwise or (first.ndim > 0 and (composite.rows or name in _FORMS))  # a number has no row
    for other in operands[1:]:
        is_batched = type(other) is Batched and other.level is first.level and type(other.value) is np.ndarray
        if other is not None and not (is_batched if composite.pointwise or name in _ALL else type(other) is np.ndarray):
            return None
    if name == "cross_entropy":
        return MappedLoss(composite, first.level) if first.ndim in (1, 2) else None
    return Mapped(composite, first.level) if fits else None


def takes(composite: Any, grad: Value) -> bool:
    """Whether a composite's backward of arrays takes this cotangent: no Tensor, which may carry a tangent."""
    return not hasattr(grad, "_cell") and (type(grad) is not Batched or isinstance(composite, Mapped))


class Mapped:
    """A composite of one example of `level`. Two are equal if the composites are: what they read is the same."""

    __slots__ = ("composite", "form", "level")
    remakes_out = False

    def __init__(self, composite: Composite, level: Level) -> None:
        self.composite, self.level = composite, level
        self.form: Form = _FORMS.get(composite.name, _as_it_is)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapped) and other.composite is self.composite

    def __hash__(self) -> int:
        return hash((Mapped, self.composite))

    @property
    def name(self) -> str:
        return self.composite.name

    @property
    def lies(self) -> str:
        return self.composite.lies

    @property
    def reads(self) -> frozenset[int] | None:
        return None if self.composite.name in _PARAMETERS else self.composite.reads

    @property
    def reads_out(self) -> bool:
        return self.composite.reads_out

    def vjp(self, g: Value, out: Value, *operands: Value, **attrs: Any) -> tuple[Value | None, ...]:
        """The cotangents by the composition's own rules."""
        return self.composite.vjp(g, out, *operands, **attrs)

    def forward(self, *operands: Any, **attrs: Any) -> tuple[Batched, Any] | None:
        """As a composite's, the result for all examples."""
        arrays, how = self.form(self, operands, attrs)
        made = self.composite.forward(*arrays, **how)
        if made is None:
            return None
        out, kept = made
        return Batched(self._unfolded(out), self.level), kept

    def backward(self, needs: Sequence[bool], g: Value, out: Value, kept: Any, *operands: Any, **attrs: Any) -> Grads:
        """As a composite's: each example's cotangents."""
        of_parameters = _PARAMETERS.get(self.name)
        only_first = not any(need and type(v) is not Batched for need, v in zip(needs[1:], operands[1:]))
        if not (of_parameters or only_first):
            return None
        given = _array(g, self.level)
        if given is None:
            return None
        arrays, how = self.form(self, operands, attrs)
        folded = self.form is not _as_it_is
        grad = given.reshape(-1, *given.shape[2:]) if folded else given
        asked = [need and (not of_parameters or k == 0) for k, need in enumerate(needs)]
        held = out.value if type(out) is Batched else out
        found: Sequence[Any] | None = [None] * len(needs)
        if any(asked):
            found = self.composite.backward(asked, grad, held, kept, *arrays, **how)
        if found is None:
            return None
        grads: list[Any] = [None if d is None else Batched(self._unfolded(d), self.level) for d in found]
        if of_parameters and not only_first:
            grads[1:] = of_parameters(self, needs, given, operands, attrs)
        return grads

    def _unfolded(self, array: Array) -> Array:
        """An array of all examples, with the batch in front."""
        return array if self.form is _as_it_is else array.reshape(self.level.size, -1, *array.shape[1:])


class MappedLoss(Mapped):
    """cross_entropy: a row for each target, reduced over those of an example."""

    __slots__ = ()

    def forward(self, *operands: Any, **attrs: Any) -> tuple[Batched, Any] | None:
        """As a composite's, the result for all examples."""
        x, target = (operand.value for operand in operands)
        rows = x.reshape(-1, x.shape[-1])
        made = self.composite.forward(rows, target.reshape(-1), **{**attrs, "reduction": "none"})
        if made is None:
            return None
        losses, kept = made[0].reshape(self.level.size, -1), made[1]
        counts = np.sum(target.reshape(losses.shape) != attrs["ignore_index"], 1, x.dtype)
        if attrs["reduction"] == "none":
            return Batched(losses.reshape(target.shape), self.level), (*kept, counts)
        totals = losses.sum(1)
        with np.errstate(invalid="ignore"):  # of an example without a target NaN
            return Batched(totals / counts if attrs["reduction"] == "mean" else totals, self.level), (*kept, counts)

    def backward(self, needs: Sequence[bool], g: Value, out: Value, kept: Any, *operands: Any, **attrs: Any) -> Grads:
        """As a composite's: each example's cotangents."""
        given, target = _array(g, self.level), operands[1].value
        if given is None:
            return None
        *kept, counts = kept
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = given / counts if attrs["reduction"] == "mean" else given
        if attrs["reduction"] != "none":
            factor = np.repeat(factor, target.size // max(len(counts), 1))
        rows = (kept[-1], target.reshape(-1))  # the logits, as they were
        how = {**attrs, "reduction": "none"}
        found = self.composite.backward((True, False), factor.reshape(-1), None, tuple(kept), *rows, **how)
        if found is None or found[0] is None:
            return None
        return Batched(found[0].reshape(self.level.size, *operands[0].shape), self.level), None


def _array(value: Value, level: Level) -> Array | None:
    """The array for all examples of a cotangent; None if it is none."""
    if type(value) is Batched and value.level is level and type(value.value) is np.ndarray:
        return value.value
    return np.broadcast_to(value, (level.size, *value.shape)) if type(value) is np.ndarray else None


# ---- forms: operands and attributes for all examples

Form: TypeAlias = Callable[[Mapped, Sequence[Any], Attrs], tuple[list[Any], Attrs]]


def _as_it_is(self: Mapped, operands: Sequence[Any], attrs: Attrs) -> tuple[list[Any], Attrs]:
    """The batch is one more dim in front."""
    first, *others = operands
    arrays = [_with_batch(first, self.level), *(v.value if type(v) is Batched else v for v in others)]
    dim = attrs.get("dim")
    return arrays, attrs if dim is None or dim < 0 else {**attrs, "dim": dim + 1}


def _folded(self: Mapped, operands: Sequence[Any], attrs: Attrs) -> tuple[list[Any], Attrs]:
    """The batch beside the first dim."""
    first, *others = operands
    array = _with_batch(first, self.level)
    shape = (array.shape[0] * array.shape[1], *array.shape[2:])
    return [array.reshape(shape) if isinstance(array, np.ndarray) else array._replace(shape=shape), *others], attrs


def _with_batch(value: Any, level: Level) -> Any:
    """The array of all examples; for what the tape let go of, its shape."""
    return value.value if type(value) is Batched else value._replace(shape=(level.size, *value.shape))


_FORMS: dict[str, Form] = {
    "linear": _as_it_is,
    "attention": _as_it_is,
    "group_norm": _folded,
    "convolution": _folded,
}
_ALL = frozenset({"attention", "cross_entropy"})  # of which each operand is one of each example


# ---- gradients of parameters, an array for each example


def _of_linear(self: Mapped, needs: Sequence[bool], g: Array, operands: Sequence[Any], attrs: Attrs) -> list[Any]:
    size, x = self.level.size, operands[0].value
    rows, inner = g.reshape(size, -1, g.shape[-1]), x.reshape(size, -1, x.shape[-1])
    columns = rows.transpose(0, 2, 1)
    weight = None
    if needs[1]:
        weight = columns * inner if rows.shape[1] == 1 else np.matmul(columns, inner)
    return _batched(self, weight, rows.sum(1) if needs[2] else None)


def _of_convolution(self: Mapped, needs: Sequence[bool], g: Array, operands: Sequence[Any], attrs: Attrs) -> list[Any]:
    x, weight, *_ = operands
    grad = Batched(g, self.level)
    found = prims.convolution_weight(x, grad, tuple(weight.shape)[2:], **attrs) if needs[1] else None
    return [found, *_batched(self, g.sum((1, *range(3, g.ndim))) if needs[2] else None)]


def _of_norm(self: Mapped, needs: Sequence[bool], g: Array, operands: Sequence[Any], attrs: Attrs) -> list[Any]:
    """weight, and perhaps bias, of what is normal along the last dims."""
    x, *parameters = operands
    over = tuple(range(1, g.ndim - attrs["dims"]))
    weight = bias = None
    if needs[1]:
        normal = self.composite.forward(x.value, *(None for _ in parameters), **attrs)
        weight = (g * normal[0]).sum(over)  # type: ignore[index]
    if len(needs) > 2 and needs[2]:
        bias = g.sum(over)
    return _batched(self, weight, bias)[: len(parameters)]


def _batched(self: Mapped, *arrays: Array | None) -> list[Any]:
    """Arrays of all examples as values of one."""
    return [None if a is None else Batched(a, self.level) for a in arrays]


_PARAMETERS: dict[str, Callable[..., list[Any]]] = {
    "linear": _of_linear,
    "convolution": _of_convolution,
    "layer_norm": _of_norm,
    "rms_norm": _of_norm,
}
