"""autograd.Function: a user's own forward with a user's own backward, as torch.autograd.Function.

In: a subclass with static `forward(ctx, *args)` (or `forward(*args)` and `setup_context`) and `backward(ctx,
*grads)`. Out: `apply(*args)`: runs forward without recording, then records one node. backward runs on Tensors, so
that it can be differentiated again. A traced call whose gradient is needed is a graph break: the compiler cannot see
into the rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from compiler_core.errors import AutogradError, GraphBreak
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import current_trace, meta_of
from compiler_core.tensor.autograd import attach_node
from compiler_core.tensor.grad_mode import no_grad, thread_mode
from compiler_core.tensor.location import user_location
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
        results = [_fresh(o) for o in outputs]
        metas = [meta_of(r) if isinstance(r, Tensor) else None for r in results]
        edges = tuple(a._edge() if isinstance(a, Tensor) else None for a in args)
        node = FunctionNode(cls.__name__, edges, len(results), lambda g: cls._run_backward(ctx, g, metas), raw=False)
        attach_node(node, results)
        for original, result in zip(outputs, results):
            if id(original) in ctx._no_grad:
                result._node = None
        return results[0] if single else tuple(results)

    @classmethod
    def _run_forward(cls, ctx: FunctionContext, args: tuple[Any, ...]) -> Any:
        if cls.setup_context is Function.setup_context:
            return cls.forward(ctx, *args)
        output = cls.forward(*args)
        cls.setup_context(ctx, args, output)
        return output

    @classmethod
    def _run_backward(
        cls, ctx: FunctionContext, grads: Sequence[Any], metas: Sequence[TensorMeta | None]
    ) -> Sequence[Any]:
        """Call the user's backward on Tensors. The engine's gradients are arrays unless create_graph."""
        tensors = [None if g is None else g if isinstance(g, Tensor) else Tensor._wrap(g) for g in grads]
        if ctx._materialize:
            tensors = [_zeros(m) if t is None and m is not None else t for t, m in zip(tensors, metas)]
        given = cls.backward(ctx, *tensors)
        results = given if isinstance(given, tuple) else (given,)
        if thread_mode.enabled:
            return results
        return [r._read() if isinstance(r, Tensor) else r for r in results]


def _fresh(output: Any) -> Any:
    """A handle of its own for an output: forward may return an argument, or keep what it returns."""
    return Tensor._from_cell(output._cell) if isinstance(output, Tensor) else output


def _zeros(meta: TensorMeta) -> Tensor:
    return Tensor._wrap(prims.full(meta.shape, 0, meta.dtype))
