"""Which of its operands, and whether its result, a node's rule reads: what it has to save.

In: a tape node. Out: numbers of operands, -1 for the result. Method: the rule runs once on values that have a shape and
a dtype alone, and know which of the operands they were made of: what a wanted gradient was made of is read. Rules read
no data (`ops/registry.py`), so this holds for all values of these shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Attrs, NotDifferentiable, Op, Telling, Value, meta_of

_CACHE_LIMIT = 1 << 12
_found: dict[tuple[Any, ...], frozenset[int]] = {}


class Probe:
    """A value of which only shape and dtype are known, and what it was made of."""

    __slots__ = ("dtype", "made_of", "shape")
    __bind_priority__ = 4

    def __init__(self, meta: TensorMeta, made_of: frozenset[int]) -> None:
        self.shape, self.dtype, self.made_of = meta.shape, meta.dtype, made_of

    @staticmethod
    def __bind__(op: Op, values: tuple[Value, ...], attrs: Attrs) -> Probe:
        made_of = [value.made_of for value in values if isinstance(value, Probe)]
        return Probe(op.infer(*map(meta_of, values), **attrs), frozenset().union(*made_of))


def read_by(node: Any) -> frozenset[int]:
    """What the rule of an OpNode reads, for those of its edges through which gradients go.

    Of one computed whole: what its own backward reads, and what the composition's rules do, where they run instead.
    """
    op, found = node.op, read_by_rule(node)
    if type(op) is Op:
        return found
    own = [k for k, saved in enumerate(node.saved) if saved is not None and (op.reads is None or k in op.reads)]
    return found.union(own, (-1,)) if op.reads_out else found.union(own)


def read_by_rule(node: Any) -> frozenset[int]:
    """As `read_by`, but of one computed whole what its composition's rules read."""
    op, attrs = node.op, node.attrs
    if type(op) is Op and op.alias is not None:
        return _NOTHING  # a view's rule asks for shapes alone
    if "stream" in attrs:  # the number of a draw
        attrs = {name: value for name, value in attrs.items() if name != "stream"}
    told: list[Any] = [op, *attrs.items()]
    for edge, saved in zip(node.edges, node.saved):
        raw = getattr(saved, "raw", saved)
        told += (edge is not None, None) if raw is None else (edge is not None, raw.shape, raw.dtype)
    key = tuple(told)
    found = _found.get(key)
    if found is None:
        if len(_found) >= _CACHE_LIMIT:
            _found.clear()
        needs = tuple([edge is not None for edge in node.edges])
        metas = [None if saved is None else _meta(saved) for saved in node.saved]
        with Telling.unheard():
            found = _found[key] = _probed(op.vjp, node.attrs, metas, _meta(node.out), needs)
    return found


_NOTHING: frozenset[int] = frozenset()


def _meta(saved: Any) -> TensorMeta:
    return meta_of(getattr(saved, "raw", saved))


def _probed(
    rule: Any, attrs: Attrs, metas: Sequence[TensorMeta | None], out: TensorMeta, needs: Sequence[bool]
) -> frozenset[int]:
    if isinstance(rule, NotDifferentiable):
        return frozenset()
    probes = [None if meta is None else Probe(meta, frozenset((k,))) for k, meta in enumerate(metas)]
    grads = rule(Probe(out, frozenset()), Probe(out, frozenset((-1,))), *probes, **attrs)
    wanted = [grad for grad, need in zip(grads, needs) if need and isinstance(grad, Probe)]
    return frozenset().union(*[grad.made_of for grad in wanted])
