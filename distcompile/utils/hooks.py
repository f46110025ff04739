"""torch.utils.hooks' path: what registering a hook returns, and words about hooks that cannot be saved.

In: a dict of hooks by number. Out: `RemovableHandle`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from compiler_core.tensor.autograd.handles import RemovableHandle
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import NotSupportedError

__all__ = ["BackwardHook", "RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]
F = TypeVar("F", bound=Callable[..., Any])


class BackwardHook:
    """How torch runs a module's backward hooks. Not offered: modules run their own (`nn/hooks.py`)."""

    def __init__(self, module: object, user_hooks: object, user_pre_hooks: object) -> None:
        raise NotSupportedError(
            "torch.utils.hooks.BackwardHook is not offered",
            remedy="module.register_full_backward_hook, or register_full_backward_pre_hook",
        )


def unserializable_hook(f: F) -> F:
    """Mark a hook of a tensor that is not meant to be saved with it: `warn_if_has_hooks` says nothing of it."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f


def warn_if_has_hooks(tensor: Tensor) -> None:
    """Warn of each hook on a tensor that will not be saved with it."""
    for hook in (tensor._hooks.grad if tensor._hooks is not None else {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, you can decorate the "
                "function with @torch.utils.hooks.unserializable_hook to suppress this warning",
                stacklevel=2,
            )
