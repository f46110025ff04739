"""Modules whose forward is checkpointed: `checkpoint_wrapper(block)`, and `apply_activation_checkpointing(model, ...)`.

In: modules. Out: a Module around each, whose state dict has the names of the one inside.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any

from compiler_core.tensor.tensor import Tensor
from distcompile.nn.module import Module
from distcompile.utils.checkpoint import checkpoint

__all__ = ["CheckpointImpl", "CheckpointWrapper", "apply_activation_checkpointing", "checkpoint_wrapper"]

_INNER = "_checkpoint_wrapped_module"
_PREFIX = f"{_INNER}."


class CheckpointImpl(Enum):
    """How: `use_reentrant` of `utils.checkpoint`."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class CheckpointWrapper(Module):
    """Calls `mod`, checkpointed."""

    def __init__(
        self, mod: Module, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None, **checkpoint_fn_kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        setattr(self, _INNER, mod)
        self.checkpoint_impl = checkpoint_impl
        options: dict[str, Any] = (
            {"use_reentrant": checkpoint_impl is CheckpointImpl.REENTRANT} if checkpoint_fn is None else {}
        )
        self.checkpoint_fn = functools.partial(checkpoint_fn or checkpoint, **options, **checkpoint_fn_kwargs)
        self.register_state_dict_post_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        inner = getattr(self, _INNER)
        if self.checkpoint_impl is CheckpointImpl.REENTRANT and kwargs:
            names = tuple(kwargs)
            count = len(args)
            return self.checkpoint_fn(
                lambda *given: inner(*given[:count], **dict(zip(names, given[count:]))), *args, *kwargs.values()
            )
        return self.checkpoint_fn(inner, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__(_INNER), name)

    def __getitem__(self, key: int) -> Any:
        return getattr(self, _INNER)[key]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Parameters, by the names that they have inside."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_PREFIX, ""), parameter


def _without_prefix(module: Module, state_dict: dict[str, Tensor], prefix: str, local_metadata: Any) -> None:
    for name in [name for name in state_dict if name.startswith(f"{prefix}{_PREFIX}")]:
        state_dict[prefix + name[len(prefix) + len(_PREFIX) :]] = state_dict.pop(name)


def _with_prefix(module: Module, state_dict: dict[str, Tensor], prefix: str, *others: Any) -> None:
    for name in [name for name in state_dict if name.startswith(prefix) and not name.startswith(f"{prefix}{_PREFIX}")]:
        state_dict[f"{prefix}{_PREFIX}{name[len(prefix) :]}"] = state_dict.pop(name)


def checkpoint_wrapper(
    module: Module, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None, **checkpoint_fn_kwargs: Any,
) -> CheckpointWrapper:  # fmt: skip
    """`module`, checkpointed. checkpoint_fn: instead of `utils.checkpoint.checkpoint`, with these words."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(
    model: Module, checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda module: True, auto_wrap_policy: Any = None,
) -> None:  # fmt: skip
    """Wrap, in place, the modules inside `model` that `check_fn` says yes to, those inside of others too."""
    for name, child in list(model.named_children()):
        apply_activation_checkpointing(child, checkpoint_wrapper_fn, check_fn)
        if check_fn(child):
            setattr(model, name, checkpoint_wrapper_fn(child))
