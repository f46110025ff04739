"""autograd.Function: a user's own forward with a user's own backward, as torch.autograd.Function.

In: a subclass with static `forward(ctx, *args)` (or `forward(*args)` and `setup_context`) and `backward(ctx,
*grads)`. Out: `apply(*args)`: runs forward without recording, then records one node. backward runs on Tensors, so
that it can be differentiated again (unless it is `once_differentiable`). Its gradients are checked: one for each
argument, summed to the argument's shape where they are broadcast, cast to its dtype; anything else is an AutogradError.
A traced call whose gradient is needed is a graph break: the compiler cannot see into the rule.
Limit: an argument that is a view cannot be marked dirty.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from compiler_core.errors import AutogradError, GraphBreak
from compiler_core.location import user_location
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import current_trace, meta_of
from compiler_core.tensor.autograd import attach_node
from compiler_core.tensor.grad_mode import no_grad, thread_mode
from compiler_core.tensor.tape import FunctionNode
from compiler_core.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Application:
    """One call of a Function: which, its arguments, the user's line."""

    function: type[Function]
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
        self._saved: list[tuple[Tensor | None, int]] = []
        self._no_grad: set[int] = set()
        self._dirty: tuple[Tensor, ...] = ()
        self._materialize = True

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for backward; writing to them in place until then is an error."""
        self._saved = [(t, -1 if t is None else t._version) for t in tensors]

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What was saved. Raises AutogradError if one was changed in place."""
        for number, (tensor, version) in enumerate(self._saved):
            if tensor is not None and tensor._version != version:
                raise AutogradError(
                    f"saved tensor {number} was changed in place: version {tensor._version}, saved at {version}",
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


class Function:
    """Base class of user-defined differentiable functions."""

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs. First argument: the context, unless `setup_context` is defined."""
        raise NotImplementedError("a Function defines forward")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """One gradient (or None) for each argument of forward."""
        raise NotImplementedError("a Function defines backward")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Fill the context after a forward that does not take it."""
        raise NotImplementedError

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run forward; record backward if an argument requires a gradient."""
        observed = _observed.get()
        if observed is not None:
            observed.append(Application(cls, args, user_location()))
        needs = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        recorded = thread_mode.enabled and any(needs)
        if recorded and current_trace() is not None:
            raise GraphBreak(
                f"{cls.__name__} has a backward of its own, which cannot be traced",
                where=user_location(),
                remedy="call it outside the compiled function",
            )
        ctx = FunctionContext(needs)
        with no_grad():
            output = cls._run_forward(ctx, args)
        if not recorded:
            return output
        single = not isinstance(output, tuple)
        outputs = (output,) if single else output
        dirty = cls._check_dirty(ctx, args, outputs)
        results = [o if id(o) in dirty else _fresh(o) for o in outputs]
        metas = [meta_of(r) if isinstance(r, Tensor) else None for r in results]
        edges = tuple(a._edge() if isinstance(a, Tensor) else None for a in args)
        wanted = [meta_of(a) if need else None for a, need in zip(args, needs)]
        node = FunctionNode(
            cls.__name__, edges, len(results), lambda g: cls._run_backward(ctx, g, metas, wanted), raw=False
        )
        attach_node(node, results)
        for original, result in zip(outputs, results):
            if id(original) in ctx._no_grad:
                result._node = None
        return results[0] if single else tuple(results)

    @classmethod
    def _check_dirty(cls, ctx: FunctionContext, args: Sequence[Any], outputs: Sequence[Any]) -> set[int]:
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
                f"{cls.__name__}: {what}", expected="an argument that is returned, no leaf and no view",
                got=str(meta_of(tensor)), remedy="pass a clone()",
            )  # fmt: skip
        return {id(t) for t in ctx._dirty}

    @classmethod
    def _run_forward(cls, ctx: FunctionContext, args: tuple[Any, ...]) -> Any:
        if cls.setup_context is Function.setup_context:
            return cls.forward(ctx, *args)
        output = cls.forward(*args)
        cls.setup_context(ctx, args, output)
        return output

    @classmethod
    def _run_backward(
        cls,
        ctx: FunctionContext,
        grads: Sequence[Any],
        metas: Sequence[TensorMeta | None],
        wanted: Sequence[TensorMeta | None],
    ) -> Sequence[Any]:
        """Call the user's backward on Tensors. The engine's gradients are arrays unless create_graph.

        metas: of the outputs. wanted: of the arguments that require a gradient.
        """
        tensors = [None if g is None else g if isinstance(g, Tensor) else Tensor._wrap(g) for g in grads]
        if ctx._materialize:
            tensors = [_zeros(m) if t is None and m is not None else t for t, m in zip(tensors, metas)]
        given = cls.backward(ctx, *tensors)
        results = _checked(cls.__name__, given if isinstance(given, tuple) else (given,), wanted)
        if thread_mode.enabled:
            return results
        return [r._read() if isinstance(r, Tensor) else r for r in results]


def _fresh(output: Any) -> Any:
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


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator for `Function.backward`: it runs without recording, and differentiating it is an error."""

    @functools.wraps(backward)
    def once(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            given = backward(ctx, *grads)
        edges = tuple(g._edge() if isinstance(g, Tensor) else None for g in grads)
        if not thread_mode.enabled or not any(edge is not None for edge in edges):
            return given
        single = not isinstance(given, tuple)
        results = [_fresh(g) for g in ((given,) if single else given)]
        attach_node(FunctionNode("OnceDifferentiable", edges, len(results), _refuse, raw=False), results)
        return results[0] if single else tuple(results)

    return once


def _refuse(grads: Sequence[Any]) -> Sequence[Any]:
    raise AutogradError("differentiating twice a function that was marked with @once_differentiable")


def _zeros(meta: TensorMeta) -> Tensor:
    return Tensor._wrap(prims.full(meta.shape, 0, meta.dtype))
