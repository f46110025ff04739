"""Canonicalise, the part on movement and reductions: compositions of reshape, permute, expand, slice, pad, cat, sum.

In: a call and the rewriter. Out: a shorter equal form, or None. Shapes are NumPy's; `expand` is `broadcast_to`.
These are the rules that clean up after automatic differentiation: the vjp of expand is a sum, of a slice a pad, of
every composite's keepdim a reshape.
"""

from __future__ import annotations

import math

import numpy as np

from compiler_core.graph.ir import Call, Node
from compiler_core.graph.passes.rewrite import Rewriter, Rule, splat
from compiler_core.meta import Shape
from compiler_core.ops.registry import OPS


def _is(node: Node, op: str) -> bool:
    return isinstance(node, Call) and node.op.name == op


def _attr(node: Node, name: str) -> tuple[int, ...]:
    assert isinstance(node, Call)
    value: tuple[int, ...] = tuple(node.attrs[name])
    return value


def without_ones(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def _same_shape(rewriter: Rewriter, call: Call) -> Node | None:
    """A reshape or expand that changes nothing."""
    return call.args[0] if call.args[0].shape == call.shape else None


def _whole_slice(rewriter: Rewriter, call: Call) -> Node | None:
    """A slice that takes everything, in order."""
    whole = call.args[0].shape == call.shape and all(step > 0 for step in _attr(call, "steps"))
    return call.args[0] if whole else None


# -- reshape


def _reshape_of_reshape(rewriter: Rewriter, call: Call) -> Node | None:
    inner = call.args[0]
    return rewriter.call("reshape", inner.operands[0], shape=call.shape) if _is(inner, "reshape") else None


# -- permute


def _identity_permute(rewriter: Rewriter, call: Call) -> Node | None:
    return call.args[0] if _attr(call, "dims") == tuple(range(len(call.shape))) else None


def _permute_of_permute(rewriter: Rewriter, call: Call) -> Node | None:
    inner = call.args[0]
    if not _is(inner, "permute"):
        return None
    dims = tuple(_attr(inner, "dims")[d] for d in _attr(call, "dims"))
    return rewriter.call("permute", inner.operands[0], dims=dims)


def _permute_of_ones(rewriter: Rewriter, call: Call) -> Node | None:
    """Moving only dimensions of size 1 is a reshape."""
    moved = [d for d in _attr(call, "dims") if call.args[0].shape[d] != 1]
    return rewriter.call("reshape", call.args[0], shape=call.shape) if moved == sorted(moved) else None


def _permute_of_matmul(rewriter: Rewriter, call: Call) -> Node | None:
    """(a b)^T = b^T a^T, if nobody else reads a b: a weight's gradient comes out in the weight's own layout."""
    inner, rank = call.args[0], len(call.shape)
    if not _is(inner, "matmul") or rewriter.use_count(inner) != 1:
        return None
    swap = (*range(rank - 2), rank - 1, rank - 2)
    if _attr(call, "dims") != swap:
        return None
    a, b = inner.operands
    return rewriter.call("matmul", rewriter.call("permute", b, dims=swap), rewriter.call("permute", a, dims=swap))


# -- expand


def _expand_of_expand(rewriter: Rewriter, call: Call) -> Node | None:
    inner = call.args[0]
    return rewriter.call("expand", inner.operands[0], shape=call.shape) if _is(inner, "expand") else None


def _expand_of_leading_ones(rewriter: Rewriter, call: Call) -> Node | None:
    """expand(reshape(x)) = expand(x) where the reshape only put 1s in front."""
    inner = call.args[0]
    if not _is(inner, "reshape"):
        return None
    source = inner.operands[0].shape
    ones = len(inner.shape) - len(source)
    return (
        rewriter.call("expand", inner.operands[0], shape=call.shape)
        if ones > 0 and inner.shape == (1,) * ones + source
        else None
    )


def _expand_without_copies(rewriter: Rewriter, call: Call) -> Node | None:
    """An expand that adds only dimensions of size 1 is a reshape."""
    return (
        rewriter.call("reshape", call.args[0], shape=call.shape) if call.meta.numel == call.args[0].meta.numel else None
    )


# -- slice, pad, cat, flip


def _slice_of_slice(rewriter: Rewriter, call: Call) -> Node | None:
    """Two slices with positive steps are one."""
    inner = call.args[0]
    if not _is(inner, "slice") or min(*_attr(call, "steps"), *_attr(inner, "steps"), 1) < 1:
        return None
    starts, steps, stops = [], [], []
    for start, step, size, outer_start, outer_step in zip(
        _attr(inner, "starts"), _attr(inner, "steps"), call.shape, _attr(call, "starts"), _attr(call, "steps")
    ):
        starts.append(start + outer_start * step)
        steps.append(step * outer_step)
        stops.append(starts[-1] + (size - 1) * steps[-1] + 1)
    if call.meta.numel == 0:
        return None
    return rewriter.call("slice", inner.operands[0], starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


def slice_of_cat(rewriter: Rewriter, call: Call) -> Node | None:
    """A slice with step 1 that lies within one part of a cat is a slice of that part."""
    inner = call.args[0]
    if not _is(inner, "cat") or any(step != 1 for step in _attr(call, "steps")):
        return None
    assert isinstance(inner, Call)
    dim = inner.attrs["dim"]
    starts, stops, offset = list(_attr(call, "starts")), list(_attr(call, "stops")), 0
    for part in inner.args:
        end = offset + part.shape[dim]
        if offset <= starts[dim] and stops[dim] <= end and starts[dim] < stops[dim]:
            starts[dim], stops[dim] = starts[dim] - offset, stops[dim] - offset
            return rewriter.call("slice", part, starts=tuple(starts), stops=tuple(stops), steps=_attr(call, "steps"))
        offset = end
    return None


def slice_of_pad(rewriter: Rewriter, call: Call) -> Node | None:
    """A slice with step 1 of what was padded, or of the padding alone."""
    inner = call.args[0]
    if not _is(inner, "pad") or any(step != 1 for step in _attr(call, "steps")) or not call.meta.numel:
        return None
    assert isinstance(inner, Call)
    spans = [_range(inner, d) for d in range(len(call.shape))]
    starts, stops = _attr(call, "starts"), _attr(call, "stops")
    if any(stop <= low or high <= start for start, stop, (low, high) in zip(starts, stops, spans)):
        return rewriter.full(call.meta, inner.attrs["value"])
    if any(start < low or high < stop for start, stop, (low, high) in zip(starts, stops, spans)):
        return None
    within = {
        "starts": tuple(start - low for start, (low, _) in zip(starts, spans)),
        "stops": tuple(stop - low for stop, (low, _) in zip(stops, spans)),
    }
    return rewriter.call("slice", inner.args[0], **within, steps=_attr(call, "steps"))


def add_of_pads(rewriter: Rewriter, call: Call) -> Node | None:
    """pad(a) + pad(b), zeros around, side by side in one dimension = pad(cat(a, b)): a split's gradients."""
    left, right = call.args
    if not (_is(left, "pad") and _is(right, "pad") and _zero_padded(left) and _zero_padded(right)):
        return None
    dims = [d for d in range(len(call.shape)) if _range(left, d) != _range(right, d)]
    if len(dims) != 1:
        return None
    (dim,) = dims
    if _range(left, dim)[0] > _range(right, dim)[0]:
        left, right = right, left
    if _range(left, dim)[1] != _range(right, dim)[0]:
        return None
    joined = rewriter.call("cat", *_parts(left.operands[0], dim), *_parts(right.operands[0], dim), dim=dim)
    low, high = list(_attr(left, "low")), list(_attr(right, "high"))
    return rewriter.call("pad", joined, low=tuple(low), high=tuple(high), value=0)


def _zero_padded(node: Node) -> bool:
    assert isinstance(node, Call)
    return bool(node.attrs["value"] == 0) and min(*_attr(node, "low"), *_attr(node, "high"), 0) >= 0


def _range(node: Node, dim: int) -> tuple[int, int]:
    """Where along `dim` the operand of a pad lies."""
    low = _attr(node, "low")[dim]
    return low, low + node.operands[0].shape[dim]


def _parts(node: Node, dim: int) -> tuple[Node, ...]:
    """The parts that `node` joins along `dim`."""
    return node.args if isinstance(node, Call) and node.op.name == "cat" and node.attrs["dim"] == dim else (node,)


def _cat_of_slices(rewriter: Rewriter, call: Call) -> Node | None:
    """Slices of one array side by side are one; also where from the sliced dim on each was made one dim."""
    dim, at, start = call.attrs["dim"], -1, 0
    source: Node | None = None
    for part in call.args:
        inner = part.operands[0] if _is(part, "reshape") else part
        if not _is(inner, "slice") or part.shape[:dim] != inner.shape[:dim]:
            return None
        if part.shape != inner.shape and len(part.shape) != dim + 1:
            return None
        whole, starts, stops = inner.operands[0], _attr(inner, "starts"), _attr(inner, "stops")
        others = (d for d in range(len(inner.shape)) if d != dim)
        if any(step != 1 for step in _attr(inner, "steps")) or any(inner.shape[d] != whole.shape[d] for d in others):
            return None
        if source is None:
            source, start = whole, starts[dim]
        elif whole is not source or starts[dim] != at or len(part.shape) != len(call.args[0].shape):
            return None
        at = stops[dim]
    if source is None:
        return None
    low, high = [0] * len(source.shape), list(source.shape)
    low[dim], high[dim] = start, at
    made = rewriter.call("slice", source, starts=tuple(low), stops=tuple(high), steps=(1,) * len(low))
    return rewriter.call("reshape", made, shape=call.shape)


def _pad_by_nothing(rewriter: Rewriter, call: Call) -> Node | None:
    return call.args[0] if not any((*_attr(call, "low"), *_attr(call, "high"))) else None


def _cat_of_one(rewriter: Rewriter, call: Call) -> Node | None:
    return call.args[0] if len(call.args) == 1 else None


# -- reductions


def _reduce_nothing(rewriter: Rewriter, call: Call) -> Node | None:
    """Reducing no dimension, or only dimensions of size 1, is a reshape."""
    source = call.args[0]
    if call.dtype is not source.dtype or any(source.shape[d] != 1 for d in _attr(call, "dims")):
        return None
    return rewriter.call("reshape", source, shape=call.shape)


def _reduce_of_reduce(rewriter: Rewriter, call: Call) -> Node | None:
    """sum(sum(x)) is one sum over both sets of dimensions; likewise prod, max, min."""
    inner = call.args[0]
    if not _is(inner, call.op.name) or inner.dtype is not inner.operands[0].dtype:
        return None
    gone = _attr(inner, "dims")
    kept = [d for d in range(len(inner.operands[0].shape)) if d not in gone]
    dims = tuple(sorted((*gone, *(kept[d] for d in _attr(call, "dims")))))
    return rewriter.call(call.op, inner.operands[0], dims=dims)


def _reduce_of_unit_reshape(rewriter: Rewriter, call: Call) -> Node | None:
    """reduce(reshape(x)) = reshape(reduce(x)) where the reshape only adds or drops dimensions of size 1."""
    inner = call.args[0]
    if not _is(inner, "reshape"):
        return None
    source = inner.operands[0]
    if without_ones(source.shape) != without_ones(inner.shape):
        return None
    counted = [d for d, size in enumerate(inner.shape) if size != 1]
    places = [d for d, size in enumerate(source.shape) if size != 1]
    dims = tuple(places[counted.index(d)] for d in _attr(call, "dims") if inner.shape[d] != 1)
    reduced = rewriter.call(call.op, source, dims=dims)
    return rewriter.call("reshape", reduced, shape=call.shape)


def _sum_of_expand(rewriter: Rewriter, call: Call) -> Node | None:
    """A sum over copies is a product with their number, if the dtype can say that number; of 16-bit floats where

    nothing else is summed: else they would be rounded twice.
    """
    inner, dims = call.args[0], _attr(call, "dims")
    if not _is(inner, "expand") or not call.dtype.is_floating_point or call.dtype is not inner.dtype:
        return None
    source, rank = inner.operands[0], len(inner.shape)
    aligned = (1,) * (rank - len(source.shape)) + source.shape
    copied = [d for d in dims if aligned[d] != inner.shape[d]]
    count = math.prod(inner.shape[d] for d in copied)
    others = any(aligned[d] != 1 for d in dims)
    if not copied or not count or (others and call.dtype.compute is not call.dtype):
        return None
    with np.errstate(over="ignore"):
        if float(np.asarray(count).astype(call.dtype.numpy)) != count:
            return None
    rest = rewriter.call("sum", rewriter.call("reshape", source, shape=aligned), dims=dims)
    scaled = rewriter.call("mul", rest, rewriter.full(rest.meta, float(count)))
    return rewriter.call("expand", scaled, shape=call.shape)


def _pad_extends_full(rewriter: Rewriter, call: Call) -> Node | None:
    """Padding a constant with its own value."""
    value = splat(call.args[0])
    return rewriter.full(call.meta, value) if value is not None and value == call.attrs["value"] else None


_REDUCTION_RULES: tuple[Rule, ...] = (_reduce_nothing, _reduce_of_reduce, _reduce_of_unit_reshape)

MOVEMENT_RULES: dict[str, tuple[Rule, ...]] = {
    **{name: _REDUCTION_RULES for name, op in OPS.items() if op.nests},
    "sum": (*_REDUCTION_RULES, _sum_of_expand),
    "reshape": (_same_shape, _reshape_of_reshape),
    "permute": (_identity_permute, _permute_of_permute, _permute_of_ones, _permute_of_matmul),
    "expand": (_same_shape, _expand_of_expand, _expand_of_leading_ones, _expand_without_copies),
    "slice": (_whole_slice, _slice_of_slice, slice_of_pad),
    "pad": (_pad_by_nothing, _pad_extends_full),
    "cat": (_cat_of_one, _cat_of_slices),
}
