"""Boundaries and rules of a program's own on the tape: one node each, whose backward is a Python function.

In: what `aot/boundary.py` is called with outside of a trace, and the calls of one `custom_gradient` rule of a graph
that is run on Tensors. Out: the same values, with the function as their history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compiler_core.aot.boundary import ON_TAPE, Gradients, Hook, OnTape, Spread, checked, run_hook
from compiler_core.aot.custom_gradient import by_slot
from compiler_core.graph.ir import Call, Node
from compiler_core.ops.primitives.custom_gradient import rule_of
from compiler_core.ops.registry import Value, meta_of
from compiler_core.tensor.autograd.backward import attach_node
from compiler_core.tensor.autograd.grad_mode import is_grad_enabled, thread_mode
from compiler_core.tensor.autograd.tape import FunctionNode
from compiler_core.tensor.tensor import Tensor


def hook_on_tape(tensors: tuple[Tensor, ...], fn: Hook) -> tuple[Tensor, ...]:
    """`gradient_boundary` of Tensors: no node if none of them needs a gradient."""
    flowing = [i for i, t in enumerate(tensors) if t.requires_grad] if is_grad_enabled() else []
    if not flowing:
        return tensors
    passed = [Tensor._wrap(tensors[i]._read()) for i in flowing]
    metas, hook = [meta_of(t) for t in passed], Spread.over(fn, len(tensors), flowing)
    inputs = [tensors[i] for i in flowing]
    _record("gradient_boundary", inputs, passed, lambda given: run_hook(hook, given, metas), runs_anyway=True)
    behind = dict(zip(flowing, passed))
    return tuple(behind.get(i, t) for i, t in enumerate(tensors))


def backward_on_tape(
    outputs: tuple[Tensor, ...], inputs: tuple[Tensor, ...], backward: Hook, saved: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """`opaque_backward` of Tensors, of which one needs a gradient."""
    passed = tuple(Tensor._wrap(t._read()) for t in outputs)
    metas, kept = [meta_of(t) for t in inputs], tuple(t.detach() for t in saved)

    def pull(cotangents: Gradients) -> Gradients:
        return checked(backward(kept, *cotangents) or (), metas, "a backward rule")

    _record("opaque_backward", inputs, passed, pull)
    return passed


def _record(
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    pull: Callable[[Gradients], Gradients],
    *,
    runs_anyway: bool = False,
) -> None:
    """One tape node whose backward is `pull`, on Tensors."""

    def backward(grads: Sequence[Any]) -> Sequence[Any]:
        given = [g if g is None or isinstance(g, Tensor) else Tensor._wrap(g) for g in grads]
        found = pull(given)
        return found if thread_mode.enabled else [None if t is None else t._read() for t in found]

    edges = tuple(t._edge() for t in inputs)
    attach_node(FunctionNode(name, edges, len(outputs), backward, raw=False, runs_anyway=runs_anyway), outputs)


# -- rules of their own


def rule_on_tape(group: Sequence[Call], environment: Mapping[Node, Value]) -> dict[Node, Value]:
    """The results of one rule's calls on Tensors, with the rule as their history."""
    first = group[0]
    others = [_as_tensor(environment[arg]) for arg in first.args[1:]]
    results = [Tensor._wrap(_as_tensor(environment[call.args[0]])._read()) for call in group]
    sources, rule = first.attrs["sources"], rule_of(first.attrs)
    kept = [other if other.is_leaf and other.requires_grad else other._snapshot() for other in others]

    def backward(grads: Sequence[Value | None]) -> Sequence[Value | None]:
        given = [g if g is None or not thread_mode.enabled or isinstance(g, Tensor) else Tensor._wrap(g) for g in grads]
        values = kept if thread_mode.enabled else [other._read() for other in kept]
        return rule.pull(by_slot(group, given), values, sources)

    edges = tuple(other._edge() for other in others[:sources])
    if thread_mode.enabled and any(edge is not None for edge in edges):
        attach_node(FunctionNode(rule.split(".")[0], edges, len(group), backward, raw=False), results)
    return dict(zip(group, results))


def _as_tensor(value: Value) -> Tensor:
    return value if isinstance(value, Tensor) else Tensor._wrap(value)


ON_TAPE.fill(OnTape(hook_on_tape, backward_on_tape))
