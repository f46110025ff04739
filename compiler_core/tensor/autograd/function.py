"""autograd.Function: a user's own forward with a user's own backward, as torch.autograd.Function.

In: a subclass with static `forward(ctx, *args)` (or `forward(*args)` and `setup_context`) and `backward(ctx,
*grads)`. Out: `apply(*args)`: runs forward without recording, then records one node (function_calls.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from compiler_core.tensor.autograd.backward import attach_node
from compiler_core.tensor.autograd.function_apply import apply
from compiler_core.tensor.autograd.function_calls import Application, FunctionContext, fresh, observe_functions, refuse
from compiler_core.tensor.autograd.grad_mode import no_grad, thread_mode
from compiler_core.tensor.autograd.tape import FunctionNode
from compiler_core.tensor.tensor import Tensor

__all__ = ["Application", "Function", "FunctionContext", "observe_functions", "once_differentiable"]


class Function:
    """Base class of user-defined differentiable functions.

    vmap(info, in_dims, *args) -> (outputs, out_dims): a rule of its own, static, for batches; None: forward and
    backward are mapped as other code is, whatever `generate_vmap_rule` says.
    """

    generate_vmap_rule = False
    vmap: Callable[..., Any] | None = None

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs. First argument: the context, unless `setup_context` is defined."""
        raise NotImplementedError("a Function defines forward")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """One gradient (or None) for each argument of forward."""
        raise NotImplementedError("a Function defines backward")

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """One tangent (or None) for each output, from one for each argument of forward."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Fill the context after a forward that does not take it."""
        raise NotImplementedError

    __default_setup__ = setup_context
    apply = classmethod(apply)


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
        results = [fresh(g) for g in ((given,) if single else given)]
        attach_node(FunctionNode("OnceDifferentiable", edges, len(results), refuse, raw=False), results)
        return results[0] if single else tuple(results)

    return once
