"""Calls of an `autograd.Function`: what is recorded before and after forward, and how backward is run.

In: a Function, its arguments, what its forward left in the context and returned. Out: the outputs, with one node for
the call. backward runs on Tensors, so that it can be differentiated again (unless it is `once_differentiable`). Its
gradients are checked: one for each argument, summed to the argument's shape where they are broadcast, cast to its
dtype; anything else is an AutogradError. Under a trace the call is recorded in the graph (function_rules.py).
Limit: an argument that is a view cannot be marked dirty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from compiler_core.device import cpu
from compiler_core.errors import AutogradError
from compiler_core.forward import level
from compiler_core.location import user_location
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import current_trace, meta_of
from compiler_core.records import dataclass
from compiler_core.tensor.autograd.backward import attach_node
from compiler_core.tensor.autograd.grad_mode import Inference, taping, thread_mode
from compiler_core.tensor.autograd.inference import has_no_version, saved_error
from compiler_core.tensor.autograd.tape import FunctionNode
from compiler_core.tensor.autograd.watching import watch
from compiler_core.tensor.batching import lifted_edges
from compiler_core.tensor.making.placement import moved
from compiler_core.tensor.memory.rebinding import rebound
from compiler_core.tensor.nodes.saving import Packed, pack_context
from compiler_core.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Application:
    """One call of a Function: which, its arguments, the user's line."""

    function: Any
    arguments: tuple[Any, ...]
    location: str


_observed: ContextVar[list[Application] | None] = ContextVar("observed_functions", default=None)


@contextmanager
def observe_functions() -> Iterator[list[Application]]:
    """Within the block, in this thread, calls of Functions are added to the list that it gives."""
    applications: list[Application] = []
    token = _observed.set(applications)
    try:
        yield applications
    finally:
        _observed.reset(token)


class FunctionContext:
    """What forward leaves for backward."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self._saved: list[tuple[Any, int]] = []  # tensors or None, or what a hook packed of them; versions
        self._no_grad: set[int] = set()
        self._dirty: tuple[Tensor, ...] = ()
        self._materialize = True
        self.saved_for_forward: tuple[Tensor | None, ...] | None = None
        self._pushing = False  # whether jvp runs

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for backward; writing to them in place until then is an error."""
        self._saved = [(t, -1 if t is None else version_of(t)) for t in tensors]

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for jvp."""
        self.saved_for_forward = tensors

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What was saved; in jvp, what was saved for that. Raises AutogradError if one was changed in place."""
        if self._pushing and self.saved_for_forward is not None:
            return self.saved_for_forward
        for number, (tensor, version) in enumerate(self._saved):
            if isinstance(tensor, Packed):
                return tuple(one.with_history() if isinstance(one, Packed) else one for one, _ in self._saved)
            if tensor is not None and is_changed(tensor, version):
                raise AutogradError(
                    f"saved tensor {number} was changed in place: version {tensor._cell.version}, saved at {version}",
                    remedy="clone() it before writing to it",
                )
        return tuple(tensor for tensor, _ in self._saved)

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """These outputs get no gradient."""
        self._no_grad = {id(t) for t in tensors}

    def mark_dirty(self, *tensors: Tensor) -> None:
        """These arguments were changed in place by forward, and are among what it returns."""
        self._dirty = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (the default) or None for an output that got no gradient."""
        self._materialize = value


def version_of(tensor: Tensor) -> int:
    """Its version, from -2 down where it is saved under a trace: a later call of the same code finds it at another."""
    version: int = tensor._cell.version
    return version if current_trace() is None else -2 - version


def is_changed(tensor: Tensor, version: int) -> bool:
    """Whether a tensor was changed in place since `version_of` told its version; after a graph break, as none is known,
    no."""
    if version <= -2:
        return current_trace() is not None and tensor._cell.version != -2 - version
    return bool(tensor._cell.version != version)


def begin(function: Any, args: tuple[Any, ...]) -> FunctionContext:
    """The context of a call."""
    observed = _observed.get()
    if observed is not None:
        observed.append(Application(function, args, user_location()))
    return FunctionContext(tuple(isinstance(a, Tensor) and a.requires_grad for a in args))


def finish(function: Any, ctx: FunctionContext, args: tuple[Any, ...], output: Any) -> Any:
    """The outputs of a call whose forward has run without recording, with backward as their history."""
    tangents = [level.tangent_of(arg) for arg in args] if level.on else ()
    if any(one is not None for one in tangents):
        made = _recorded(function, ctx, args, output)
        push_forward(function, ctx, args, tangents, made)
        return made
    return _recorded(function, ctx, args, output)


def _is_differentiable(arg: Any) -> bool:
    return isinstance(arg, Tensor) and arg.dtype.is_inexact


def push_forward(function: Any, ctx: FunctionContext, args: Sequence[Any], tangents: Sequence[Any], made: Any) -> None:
    """Give the outputs of a call the tangents that the user's jvp makes of those of the arguments."""
    outputs = made if isinstance(made, tuple) else (made,)
    given = [
        _zeros(meta_of(arg)) if t is None and ctx._materialize and _is_differentiable(arg) else t
        for arg, t in zip(args, tangents)
    ]
    with level.resting():
        ctx._pushing = True
        found = function.jvp(ctx, *given)
        ctx._pushing, ctx.saved_for_forward = False, None
    found = found if isinstance(found, tuple) else (found,)
    if len(found) != len(outputs):
        raise AutogradError(
            f"{function.__name__}.jvp returned an incorrect number of tangents",
            expected=f"{len(outputs)}, one for each output",
            got=str(len(found)),
        )
    for output, one in zip(outputs, found):
        if isinstance(output, Tensor) and id(output) not in ctx._no_grad:
            level.give(output, one)


def _recorded(function: Any, ctx: FunctionContext, args: tuple[Any, ...], output: Any) -> Any:
    if not (thread_mode.enabled and any(ctx.needs_input_grad)):
        return output
    call = FunctionCall(function, ctx, args, output if isinstance(output, tuple) else (output,))
    if current_trace() is None or taping.depth:
        results = call.record()
    else:
        from compiler_core.tensor.autograd.function_rules import record_in_graph

        results = record_in_graph(call)
    return tuple(results) if isinstance(output, tuple) else results[0]


class FunctionCall:
    """One call of a Function.

    metas: of the outputs, None for one that is no Tensor. wanted: of the arguments that require a gradient.
    differentiable: the places of outputs that get a history.
    """

    def __init__(self, function: Any, ctx: FunctionContext, args: Sequence[Any], outputs: Sequence[Any]) -> None:
        self.function, self.ctx, self.args, self.outputs = function, ctx, args, outputs
        self.name = function.__name__
        self.dirty = check_dirty(self.name, ctx, args, outputs)
        self.metas = [meta_of(o) if isinstance(o, Tensor) else None for o in outputs]
        self.needs = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)  # the program may change ctx's
        self.wanted = [meta_of(a) if need else None for a, need in zip(args, self.needs)]
        self.differentiable = [
            k
            for k, o in enumerate(outputs)
            if isinstance(o, Tensor) and o.dtype.is_inexact and id(o) not in ctx._no_grad
        ]

    def record(self) -> list[Any]:
        """The results, with a node on the tape. Raises AutogradError where an inference tensor was saved."""
        if Inference.in_use and any(t is not None and has_no_version(t._cell) for t, _ in self.ctx._saved):
            raise saved_error()
        if current_trace() is None:  # what saved them may have been traced, up to a graph break
            self.ctx._saved = [(t, v if v > -2 else t._cell.version) for t, v in self.ctx._saved]
        results = [o if id(o) in self.dirty else fresh(o) for o in self.outputs]
        edges = lifted_edges(self.args, results)
        node = FunctionNode(self.name, edges, len(results), self._pull, raw=False)
        attach_node(node, [r if k in self.differentiable else None for k, r in enumerate(results)])
        if watch.active:
            handles = {id(made): given for made, given in zip(self.outputs, results)}
            self.ctx._saved = pack_context(self.ctx._saved, handles)
        for result in results:
            if id(result) in self.dirty:
                rebound(result)
        return results

    def _pull(self, grads: Sequence[Any]) -> Sequence[Any]:
        """The engine's gradients are arrays unless create_graph."""
        tensors = [None if g is None else g if isinstance(g, Tensor) else Tensor._wrap(g) for g in grads]
        results = pull(self.function, self.ctx, tensors, self.metas, self.wanted)
        if thread_mode.enabled or level.on:
            return results
        return [r._read() if isinstance(r, Tensor) else r for r in results]


def pull(
    function: Any,
    ctx: FunctionContext,
    grads: Sequence[Tensor | None],
    metas: Sequence[TensorMeta | None],
    wanted: Sequence[TensorMeta | None],
) -> list[Any]:
    """The user's backward: a gradient (or None) for each argument, from one for each output. See `FunctionCall`."""
    tensors = list(grads)
    if ctx._materialize:
        place = next((t.device for t in grads if t is not None), cpu)
        tensors = [moved(_zeros(m), place) if t is None and m is not None else t for t, m in zip(tensors, metas)]
    given = function.backward(ctx, *tensors)
    return _checked(function.__name__, given if isinstance(given, tuple) else (given,), wanted)


def check_dirty(name: str, ctx: FunctionContext, args: Sequence[Any], outputs: Sequence[Any]) -> set[int]:
    """The ids of the arguments changed in place. Raises AutogradError for one whose history cannot be rewritten."""
    for tensor in ctx._dirty:
        if not any(tensor is a for a in args) or not any(tensor is o for o in outputs):
            what = "a tensor was marked dirty that is not both an argument and an output"
        elif tensor.is_leaf and tensor.requires_grad:
            what = "a leaf that requires a gradient is changed in place"
        elif tensor._view is not None:
            what = "a view is changed in place, which is not supported"
        else:
            continue
        raise AutogradError(
            f"{name}: {what}", expected="an argument that is returned, no leaf and no view",
            got=str(meta_of(tensor)), remedy="pass a clone()",
        )  # fmt: skip
    return {id(t) for t in ctx._dirty}


def fresh(output: Any) -> Any:
    """A handle of its own for an output: forward may return an argument, or keep what it returns."""
    return Tensor._from_cell(output._cell) if isinstance(output, Tensor) else output


def _checked(name: str, grads: Sequence[Any], wanted: Sequence[TensorMeta | None]) -> list[Any]:
    """One gradient for each argument, in its shape and dtype. Raises AutogradError for one that does not fit it."""
    extra = grads[len(wanted) :]
    if len(grads) < len(wanted) or any(g is not None for g in extra):
        raise AutogradError(
            f"{name}.backward returned an incorrect number of gradients",
            expected=f"{len(wanted)}, one for each argument of forward",
            got=str(len(grads)),
        )
    return [_fitting(name, k, g, meta) for k, (g, meta) in enumerate(zip(grads, wanted))]


def _fitting(name: str, position: int, grad: Any, meta: TensorMeta | None) -> Any:
    """The gradient of argument `position`, summed and cast to its meta; None where it needs none."""
    if grad is None or meta is None:
        return None
    if not isinstance(grad, Tensor):
        raise AutogradError(f"{name}.backward: gradient {position} is no Tensor", got=type(grad).__name__)
    shape = tuple(grad.shape)
    if shape != meta.shape:
        if not _broadcasts(meta.shape, shape):
            raise AutogradError(
                f"{name}.backward returned an invalid gradient at index {position}",
                expected=f"a shape that {meta.shape} broadcasts to",
                got=str(shape),
            )
        grad = grad.sum_to_size(meta.shape)
    return grad if grad.dtype is meta.dtype else grad.to(meta.dtype)


def _broadcasts(small: Shape, large: Shape) -> bool:
    lead = len(large) - len(small)
    return lead >= 0 and all(n in (1, m) for n, m in zip(small, large[lead:]))


def refuse(grads: Sequence[Any]) -> Sequence[Any]:
    raise AutogradError("differentiating twice a function that was marked with @once_differentiable")


def _zeros(meta: TensorMeta) -> Tensor:
    return Tensor._wrap(prims.full(meta.shape, 0, meta.dtype))
