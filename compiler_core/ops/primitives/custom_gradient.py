"""custom_gradient: the identity on its first operand, whose gradient goes where a rule says.

In: a value x, then `sources` tensors that get gradients, then what these are computed from. Out: x.
A `Rule` is its name, which is how graphs print it, and what it does:
  HISTORY      x is what memory holds now, after a write outside of autograd; all of the gradient goes to the source,
               which is what a reader of that memory depends on (a parameter after an update under no_grad)
  OVERWRITTEN  x replaced the source wholly, which gets zeros, as from torch
  COPIED       x, which is the first source, replaced the second wholly, which gets zeros
  BEGINS       x, which is the source, is the first gradient of a backward in the graph, that of the value which comes
               next: `slot` says of which backward, counted from 0
  ENDS         x, which is the source, is what that backward found for the value which comes next (aot/within.py)
  others       have one call for each of several values (`slot` is the number of each), and are asked once for all of
               them: an `autograd.Function` (tensor/autograd/function_rules.py)
Whoever differentiates a graph asks the rule (aot/custom_gradient.py). The op's own vjp is that of the identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compiler_core.errors import GraphError
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.batching.running import spread
from compiler_core.ops.checks import EVERY
from compiler_core.ops.registry import Array, Attrs, Op, Sample, Value, bind, meta_of, register
from compiler_core.ops.rules import Decomposed, Indexed


class Rule(str):
    """See the head of this file. joint: whether the calls of this rule are asked together."""

    __slots__ = ()
    joint = False

    def pull(self, cotangents: Sequence[Value | None], others: Sequence[Value], sources: int) -> Sequence[Value | None]:
        """The gradients of the first `sources` of `others`. cotangents: one a slot, None where none came."""
        raise NotImplementedError

    def over_batch(self, size: int) -> Rule:
        """The rule of a batch of examples, where all operands have it in front."""
        return self


class _History(Rule):
    __slots__ = ()

    def pull(self, cotangents: Sequence[Value | None], others: Sequence[Value], sources: int) -> Sequence[Value | None]:
        return cotangents


class _Overwritten(Rule):
    __slots__ = ()

    def pull(self, cotangents: Sequence[Value | None], others: Sequence[Value], sources: int) -> Sequence[Value | None]:
        meta = meta_of(others[0])
        return (prims.full(meta.shape, 0, meta.dtype),)


class _Copied(Rule):
    __slots__ = ()

    def pull(self, cotangents: Sequence[Value | None], others: Sequence[Value], sources: int) -> Sequence[Value | None]:
        meta = meta_of(others[1])
        return (*cotangents, prims.full(meta.shape, 0, meta.dtype))


class _Mark(Rule):
    __slots__ = ()

    def pull(self, cotangents: Sequence[Value | None], others: Sequence[Value], sources: int) -> Sequence[Value | None]:
        return cotangents[-1:]


HISTORY, OVERWRITTEN, COPIED = _History("history"), _Overwritten("overwritten"), _Copied("copied")
BEGINS, ENDS = _Mark("begins"), _Mark("ends")
# a graph that was parsed has only names
BY_NAME: dict[str, Rule] = {rule: rule for rule in (HISTORY, OVERWRITTEN, COPIED, BEGINS, ENDS)}


def rule_of(attrs: Mapping[str, Any]) -> Rule:
    """The rule of a call. Raises GraphError for one of which only the name is left."""
    rule = attrs["rule"]
    if isinstance(rule, Rule):
        return rule
    if rule not in BY_NAME:
        raise GraphError(f"a graph that was read from text has no rule {rule!r}", remedy="capture the function again")
    return BY_NAME[rule]


def _infer(x: TensorMeta, *others: TensorMeta, rule: str, slot: int, sources: int) -> TensorMeta:
    return x


def _eager(xp: Any, x: Array, *others: Array, rule: str, slot: int, sources: int) -> Array:
    return x


def _vjp(g: Value, out: Value, x: Value, *others: Value, **attrs: Any) -> tuple[Value | None, ...]:
    metas = [meta_of(other) for other in others]
    return g, *(prims.full(meta.shape, 0, meta.dtype) if meta.dtype.is_inexact else None for meta in metas)


def _mapped(op: Op, size: int, are_batched: Sequence[bool], operands: Sequence[Value], attrs: Attrs) -> Value:
    every = [v if yes else spread(v, size) for v, yes in zip(operands, are_batched, strict=True)]
    return bind(op, *every, **{**attrs, "rule": rule_of(attrs).over_batch(size)})


def _emit(e: Any, index: Any, read: Any, metas: tuple[TensorMeta, ...], **attrs: Any) -> Any:
    return read[0](index)


_ATTRS = {"rule": "history", "slot": 0, "sources": 1}

CUSTOM_GRADIENT = register(
    Op(
        "custom_gradient",
        infer=_infer,
        eager=_eager,
        vjp=_vjp,
        vmap=_mapped,
        lower=Indexed(_emit),
        samples=(Sample(((2, 3), (2, 3)), _ATTRS), Sample(((), ()), _ATTRS), Sample(((2,), (3,)), _ATTRS)),
        dtypes=EVERY,
        shares=True,
        follows=True,
        only_for_autograd=True,
        doc="identity; the gradient goes where a rule says",
        engines=Decomposed(lambda x, *others, **attrs: x),
    )
)
