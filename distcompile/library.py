"""torch.library's operators written in Python: a function under a name, with a gradient of its own.

In: functions of Tensors. Out: `CustomOp`s, callables. There is no dispatcher: an operator is its Python function, on
every device, and a call in a compiled function is captured by running it, so a fake implementation has nothing to do.
Invariant: the gradient is what `register_autograd` said, and without that a NotSupportedError in the backward; never
the gradient of what the function computes with. A call that needs a gradient breaks a compiled graph, as a Function's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import signature
from typing import Any

from compiler_core.capture import policy
from distcompile.autograd import Function
from distcompile.errors import ArgumentError, NotSupportedError

__all__ = ["CustomOp", "custom_op", "register_autograd", "register_fake"]


@dataclass(frozen=True, slots=True)
class Gradient:
    """backward(ctx, *gradients) gives one, or None, for each input; setup_context(ctx, inputs, output) fills ctx."""

    backward: Callable[..., Any]
    setup_context: Callable[..., Any] | None


_gradients: dict[str, Gradient] = {}  # by the operator's name, which may be made later


class CustomOp:
    """An operator: called as its function is. name: "namespace::name"."""

    def __init__(self, name: str, fn: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fn)
        self.name, self.function = name, fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _Apply.apply(self, *_inputs(self.function, args, kwargs))

    def register_fake(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """`fn`, which would tell a result's shape without computing it: capture asks nobody, and computes it."""
        return fn

    def register_autograd(
        self, backward: Callable[..., Any], *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Its gradient: see `Gradient`."""
        _gradients[self.name] = Gradient(backward, setup_context)


def _inputs(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of a call in order, with defaults."""
    given = signature(function).bind(*args, **kwargs)
    given.apply_defaults()
    return tuple(given.arguments.values())


policy.say(_inputs, policy.RUN)  # under capture; the rest of this file calls what the user gave, and is entered


class _Apply(Function):
    """An operator's call, on the tape."""

    @staticmethod
    def forward(ctx: Any, op: CustomOp, *inputs: Any) -> Any:
        output = op.function(*inputs)
        ctx.op, ctx.needs_input_grad = op, ctx.needs_input_grad[1:]
        gradient = _gradients.get(op.name)
        if gradient is not None and gradient.setup_context is not None:
            gradient.setup_context(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        gradient = _gradients.get(ctx.op.name)
        if gradient is None:
            raise NotSupportedError(f"{ctx.op.name} has no gradient", remedy="give it one by register_autograd")
        found = gradient.backward(ctx, *gradients)
        return None, *(found if isinstance(found, tuple | list) else (found,))


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: str | Iterable[str] | None = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """The operator "namespace::name" that runs `fn`; without it, a decorator.

    Raises: ArgumentError for a name without a namespace; NotSupportedError if it changes its arguments.
    """
    if fn is None:
        return functools.partial(custom_op, name, mutates_args=mutates_args)
    if "::" not in name:
        raise ArgumentError(f"{name!r} is no operator's name", expected="namespace::name")
    if isinstance(mutates_args, str) or list(mutates_args):
        raise NotSupportedError(f"{name} changes its arguments", remedy="let it give new tensors back")
    return CustomOp(name, fn)


def register_fake(op: str | CustomOp, func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """`func`, as `CustomOp.register_fake`, of an operator or the name of one. Without `func`, a decorator."""
    return (lambda fn: fn) if func is None else func


def register_autograd(
    op: str | CustomOp,
    backward: Callable[..., Any],
    /,
    *,
    setup_context: Callable[..., Any] | None = None,
    lib: Any = None,
) -> None:
    """The gradient of an operator, or of the one that has or will have this name: see `Gradient`."""
    _gradients[op if isinstance(op, str) else op.name] = Gradient(backward, setup_context)
