"""Canonicalise, the part on views put together again: a cat of parts of one array that is this array in other order.

In: a `cat` and the rewriter. Out: a permute of a reshape of the array, or None. Each part is followed through reshapes,
permutes and slices to where its elements lie in the array (ops/aliasing.py); if the cat, as one view of it, has all its
elements, once, nothing has to be copied here. So the gradient of attention's q, k and v, which its kernels write as
their common product's, is read as it is.
"""

from __future__ import annotations

from typing import NamedTuple

from compiler_core.graph.ir import Call, Node
from compiler_core.graph.passes.rewrite import Rewriter
from compiler_core.meta import Shape
from compiler_core.ops.aliasing import Strides, contiguous_strides

_MOVES = ("reshape", "permute", "slice")


class _Place(NamedTuple):
    """Where the elements of a node lie in `source`, which is contiguous."""

    source: Node
    strides: Strides
    offset: int


def cat_of_views(rewriter: Rewriter, call: Call) -> Node | None:
    """See the head of this file."""
    places = [_place(part) for part in call.args]
    known = [place for place in places if place is not None]
    if len(known) != len(places) or any(place.source is not known[0].source for place in known):
        return None
    source, strides = known[0].source, _joined(call, known)
    if strides is None or call.meta.numel != source.meta.numel or known[0].offset != 0:
        return None
    dims = [d for d in sorted(range(len(strides)), key=lambda d: -strides[d]) if call.shape[d] != 1]
    lying = tuple(call.shape[d] for d in dims)
    if tuple(strides[d] for d in dims) != contiguous_strides(lying):
        return None
    made = rewriter.call("reshape", source, shape=lying)
    order = sorted(range(len(dims)), key=lambda k: dims[k])
    return rewriter.call("reshape", rewriter.call("permute", made, dims=tuple(order)), shape=call.shape)


def _place(node: Node) -> _Place | None:
    if not (isinstance(node, Call) and node.op.name in _MOVES):
        return _Place(node, contiguous_strides(node.shape), 0)
    inner, alias = _place(node.args[0]), node.op.alias
    if inner is None or alias is None:
        return None
    strides = alias.strides(node.args[0].shape, inner.strides, **node.attrs)
    offset = inner.offset + alias.offset(inner.strides, **node.attrs)
    return None if strides is None else _Place(inner.source, strides, offset)


def _joined(call: Call, places: list[_Place]) -> Strides | None:
    """The strides of the parts side by side, if they lie at even distances."""
    dim, first = call.attrs["dim"], places[0]
    sizes = [part.shape[dim] for part in call.args]
    if len(places) < 2 or 0 in sizes:
        return None
    step, rest = divmod(places[1].offset - first.offset, sizes[0])
    at = 0
    for part, place, size in zip(call.args, places, sizes):
        same = all(
            a == b for d, (n, a, b) in enumerate(zip(part.shape, place.strides, first.strides)) if n != 1 and d != dim
        )
        if rest or not same or place.offset != first.offset + at * step or (size > 1 and place.strides[dim] != step):
            return None
        at += size
    strides: Shape = (*first.strides[:dim], step, *first.strides[dim + 1 :])
    return strides
