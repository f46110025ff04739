"""Places in the graph that a gradient passes, as programs hold them: what `autograd.grad` takes for a tensor.

In: a Node and the number of one of its outputs. Out: the tape's edge, and the shape and dtype that the gradient has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import meta_of


class GradientEdge(NamedTuple):
    """A place in the graph where a gradient passes; the tensor that it was asked of may be gone."""

    node: Any
    output_nr: int
    ownership_token: object | None = None


def tape_edge(place: GradientEdge) -> Any:
    """The tape's edge of a place: a tape node, or a leaf."""
    return place.node._edges.get(place.output_nr, place.node._node)


def meta_at(place: Any) -> TensorMeta:
    """Shape and dtype of a tensor, or of what passes a place."""
    thing = tape_edge(place) if isinstance(place, GradientEdge) else place
    if hasattr(thing, "_cell"):
        return meta_of(thing._cell.raw)
    meta: TensorMeta | None = getattr(thing, "meta", None)
    return meta or meta_of(getattr(thing.out, "raw", thing.out))
