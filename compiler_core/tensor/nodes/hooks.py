"""Hooks on a tape node itself: before it computes, on its outputs' gradients, and after it, on its inputs'.

In: what `Node.register_prehook` and `register_hook` were given. Out: the gradients that go on. The table is also that
of the hooks on the gradient of the node's output (`Tensor.register_hook`), which run first, as in torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.errors import AutogradError
from compiler_core.ops.registry import Value

Hook = Callable[..., Any]


class NodeHooks(dict[int, Hook]):
    """Hooks of the output's gradient by number. before: of the node, on gradients of outputs. after: on both sides."""

    __slots__ = ("after", "before")

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[int, Hook] = {}
        self.after: dict[int, Hook] = {}

    def __bool__(self) -> bool:
        return bool(len(self) or self.before or self.after)


def run_before(hooks: dict[int, Hook], grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """The gradients of outputs with which the node computes. A hook gives others, or None: they stay."""
    for hook in list(hooks.values()):
        given = hook(_tensors(grads))
        if given is not None:
            grads = _replaced(grads, given)
    return grads


def run_after(
    hooks: dict[int, Hook], inputs: Sequence[Value | None], outputs: Sequence[Value | None]
) -> Sequence[Value | None]:
    """The gradients of inputs that go on."""
    for hook in list(hooks.values()):
        given = hook(_tensors(inputs), _tensors(outputs))
        if given is not None:
            inputs = _replaced(inputs, given)
    return inputs


def _tensors(grads: Sequence[Value | None]) -> tuple[Any, ...]:
    from compiler_core.tensor.tensor import Tensor

    return tuple(g if g is None or isinstance(g, Tensor) else Tensor._wrap(g) for g in grads)


def _replaced(before: Sequence[Value | None], given: Any) -> list[Value | None]:
    """What a hook gave, in the form of what it was given: arrays where these were arrays."""
    given = given if isinstance(given, tuple) else (given,)
    if len(given) != len(before):
        raise AutogradError(
            "hook has returned an incorrect number of values", expected=str(len(before)), got=str(len(given))
        )
    return [g if g is None or hasattr(b, "_cell") else g._read() for b, g in zip(before, given)]
