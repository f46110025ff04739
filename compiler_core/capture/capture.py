"""Capture: one call of the user's function, recorded as a Graph with the guards under which it holds.

In: a function (or module), the arguments of a call. Out: `Captured`. The function runs once, on the same argument
handles, under a `CaptureTrace`: ops become nodes, reads of outside tensors placeholders, writes to them extra outputs.
Method: dispatch tracing (as in JAX). Python control flow is followed as this call takes it; what it depends on beside
tensors is guarded (`arguments.py`, `environment.py`). Python that needs a traced value raises GraphBreak.
Invariant: nothing the user can see has changed when capture returns, or raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any

from compiler_core import dtype as dtypes
from compiler_core.aot.boundary import Boundary
from compiler_core.capture.arguments import (
    guard_arguments,
    guard_module,
    guard_tensor,
    module_tensors,
    require_gradient,
)
from compiler_core.capture.effects import EffectWatch
from compiler_core.capture.environment import CodeRecorder, RandomWatch, guard_environment, variables
from compiler_core.capture.guards import Check, Found, Guards
from compiler_core.capture.module_protocol import ModuleProtocol, is_module, unwrapped
from compiler_core.capture.outputs import Outputs, describe_outputs
from compiler_core.capture.pytree import Spec, flatten
from compiler_core.capture.trace import CaptureTrace, Known, Lifted, view_beside_write
from compiler_core.errors import GraphBreak
from compiler_core.graph.ir import Graph
from compiler_core.ops.casting import casting
from compiler_core.ops.registry import use_trace
from compiler_core.tensor.cell import Cell, ViewCell
from compiler_core.tensor.grad_mode import thread_mode
from compiler_core.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Captured:
    """A traced call.

    graph: returns the nodes of `outputs`, then the new values of `written`. inputs: what each placeholder reads; None
    for the rng key, which serves `draws` draws. spec: the tree that the results are the leaves of. guards, check: when
    the graph may be used; `check` gives the graph's inputs. boundaries: the backward hooks met. shard: what the draws
    are for. gradient_owner: the module in it that announced a gradient strategy.
    """

    graph: Graph
    inputs: tuple[Lifted | None, ...]
    outputs: Outputs
    spec: Spec
    written: tuple[Written, ...]
    guards: Guards
    check: Check
    boundaries: dict[int, Boundary]
    draws: int
    shard: int
    gradient_owner: ModuleProtocol | None


@dataclass(frozen=True, slots=True)
class Written:
    """A cell from outside that the call writes: that of an argument tensor, or `cell` itself."""

    cell: Cell
    argument: int

    def now(self, arguments: Sequence[Tensor]) -> Cell:
        """The cell in a call with these argument tensors."""
        return self.cell if self.argument < 0 else arguments[self.argument]._cell


def root_module(function: Callable[..., Any]) -> ModuleProtocol | None:
    """The module that `function` is, or is a method of."""
    owner: Any = function.__self__ if isinstance(function, MethodType) else unwrapped(function)
    return owner if is_module(owner) else None


def capture(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Captured:
    """Trace `function(*args, **kwargs)`. Raises GraphBreak if it cannot be traced."""
    guards, known = guard_call(function, args, kwargs)
    trace = CaptureTrace(name, known)
    recorder = CodeRecorder()
    breaks = GraphBreak.made()
    with use_trace(trace):
        with RandomWatch(recorder), EffectWatch(function, args, kwargs) as effects, recorder:
            result = function(*args, **kwargs)
        if GraphBreak.made() != breaks:
            raise GraphBreak("a graph break was caught by the function that is captured")
        leaves, spec = flatten(result, effects.made)
        outputs = describe_outputs(leaves, trace)
    _check_written(trace)
    _sort_placeholders(trace, known)
    graph = trace.build([*outputs.nodes, *trace.written.values()])
    guard_environment(guards, function, recorder)
    _check_covered(guards, trace)
    _guard_lifted(guards, trace)
    _guard_aliases(guards, trace, known)
    check = guards.build(name)
    still_holds(guards, check(args, kwargs))
    by_placeholder = {lift.placeholder: lift for lift in trace.lifted.values()}
    inputs = tuple(by_placeholder.get(node) for node in graph.inputs)
    arguments = {entry.handle._cell: entry.argument for entry in known if entry.code}
    written = tuple(Written(cell, arguments.get(cell, -1)) for cell in trace.written)
    return Captured(
        graph,
        inputs,
        outputs,
        spec,
        written,
        guards,
        check,
        trace.boundaries,
        trace.draws,
        trace.shard,
        trace.gradient_owner,
    )


def guard_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Guards, list[Known]]:
    """Guards on what a call shows before it is traced, and the tensors known by then."""
    guards = Guards()
    mode = guards.bind(thread_mode, "mode")
    guards.require(
        f"{mode}.enabled is {thread_mode.enabled}", f"gradients are {'on' if thread_mode.enabled else 'off'}"
    )
    default = guards.bind(dtypes.get_default_dtype(), "dtype")
    getter = guards.bind(dtypes.get_default_dtype, "get_default_dtype")
    guards.require(f"{getter}() is {default}", f"the default dtype is {dtypes.get_default_dtype().name}")
    state = guards.bind(casting, "casting")
    wanted = "None" if casting.acting is None else guards.bind(casting.acting, "dtype")
    guards.require(f"{state}.acting is {wanted}", f"autocast is {casting.acting or 'off'}")
    known = guard_arguments(guards, args, kwargs)
    module = root_module(function)
    if module is not None:
        guard_module(guards, guards.bind(module, "module"), module, "self")
        known.extend(module_tensors(module, "self"))
    for name, code, value in variables(guards, function):
        if isinstance(value, Tensor) and id(value) not in guards.covered:
            known.append(guard_tensor(guards, code, value, name))
        elif is_module(unwrapped(value)):
            known.extend(module_tensors(unwrapped(value), name))
    return guards, known


def still_holds(guards: Guards, found: Found) -> tuple[list[Any], tuple[Any, ...]]:
    """What the guards' check `found`, if they hold. Raises GraphBreak if they do not: it is called right after tracing,
    so the traced code has changed what it depends on."""
    if isinstance(found, int):
        raise GraphBreak(
            "the compiled function changes what it depends on",
            expected=guards.describe(found),
            remedy="keep state changes outside of the compiled function",
        )
    return found


def _sort_placeholders(trace: CaptureTrace, known: Sequence[Known]) -> None:
    """Arguments in call order, parameters and buffers in registration order, then the rest as met."""
    place = {id(entry): i for i, entry in reversed(list(enumerate(known)))}
    by_placeholder = {lift.placeholder: place.get(id(lift.known), len(known)) for lift in trace.lifted.values()}
    trace.placeholders.sort(key=lambda node: by_placeholder.get(node, len(known) + 1))


def _check_written(trace: CaptureTrace) -> None:
    """No cell that is written may be the base of a view from outside that was read before the write."""
    if any(cell.root is not cell and cell.root in trace.written for cell, _ in trace.lifted):
        raise view_beside_write()


def _check_covered(guards: Guards, trace: CaptureTrace) -> None:
    """Every tensor that was read must be one that the guards find again: another may stand in its place next time."""
    for lift in trace.lifted.values():
        known = lift.known
        if known is not None and not known.code and id(known.handle) not in guards.covered:
            raise GraphBreak(
                f"a tensor {lift.placeholder.meta} is read that is reached through something that may change",
                expected="tensors that are arguments, parameters, buffers or attributes of modules, or variables",
                remedy="pass it as an argument, or make it a buffer",
            )


def _guard_lifted(guards: Guards, trace: CaptureTrace) -> None:
    """Input expressions for the placeholders, and guards on the tensors that are not arguments."""
    by_placeholder = {lift.placeholder: lift for lift in trace.lifted.values()}
    for node in trace.placeholders:
        lift = by_placeholder.get(node)
        if lift is None:
            guards.inputs.append("None")  # the rng key: taken when the call runs
        elif lift.known is not None and lift.known.code:
            guards.inputs.append(f"{lift.known.code}._cell.current()")
        else:
            guards.inputs.append(_bound_input(guards, lift))


def _bound_input(guards: Guards, lift: Lifted) -> str:
    """The value of a tensor that is the same at every call, after guards that it still stands for this cell."""
    cell = guards.bind(lift.cell, "cell")
    if lift.known is not None:
        handle = guards.bind(lift.known.handle, "tensor")
        guards.require(f"{handle}._cell is {cell}", f"{lift.known.source} is stored where it was")
        require_gradient(guards, handle, lift.known.handle, lift.known.source)
    return f"{cell}.current()" if isinstance(lift.cell, ViewCell) else f"{cell}.raw"  # what waits, the entry settles


def _guard_aliases(guards: Guards, trace: CaptureTrace, known: Sequence[Known]) -> None:
    """Tensors that were one must be one again; where something is written, distinct memory must stay distinct."""
    arguments = [entry for entry in known if entry.code]
    used = {cell for cell, _ in trace.lifted} | trace.written.keys()
    bound = [entry for entry in known if not entry.code and entry.handle._cell in used]
    for i, a in enumerate(arguments):
        for b in (*arguments[:i], *bound):
            other = f"{b.code}._cell" if b.code else guards.bind(b.handle._cell, "cell")
            if a.handle._cell is b.handle._cell:
                guards.require(f"{a.code}._cell is {other}", f"{a.source} and {b.source} are the same tensor")
            elif trace.written and (b.code or b.handle._cell in trace.written):
                shared = a.handle._cell.root is b.handle._cell.root
                guards.require(
                    f"({a.code}._cell.root is {other}.root) is {shared}",
                    f"{a.source} and {b.source} {'' if shared else 'do not '}share memory",
                )
