"""Names of torch._C that published code uses and that mean something here: `__torch_function__` and its switches.

In: nothing. Out: the names. Under `--as-torch` the rest of torch._C is stand-ins, or a named error.
"""

from __future__ import annotations

from typing import Any

from compiler_core.overrides.modes import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    disabled,
    pop_mode,
    push_mode,
    skip_one,
)
from compiler_core.overrides.state import thread_overrides
from compiler_core.tensor.tensor import Tensor
from distcompile.library.calls import below_autograd

__all__ = ["DisableTorchFunction", "DisableTorchFunctionSubclass"]

TensorBase = _TensorBase = Tensor
_TensorMeta = type
_disabled_torch_function_impl = disabled
_push_on_torch_function_stack, _pop_torch_function_stack = push_mode, pop_mode
_skip_one_hop_torch_function = skip_one
_AutoDispatchBelowAutograd = below_autograd


def _len_torch_function_stack() -> int:
    """How many modes are on in this thread."""
    return len(thread_overrides.now.modes)


def _get_function_stack_at(place: int) -> Any:
    """The mode at this place, counted from the outermost."""
    return thread_overrides.now.modes[place]


def _is_torch_function_enabled() -> bool:
    """Whether classes of arguments are asked in this thread."""
    return not (thread_overrides.now.off or thread_overrides.now.subclasses_off)


def _is_torch_function_all_disabled() -> bool:
    """Whether nobody is asked in this thread."""
    return thread_overrides.now.off


def _is_torch_function_mode_enabled() -> bool:
    """Whether a mode is on in this thread."""
    return bool(thread_overrides.now.modes) and not thread_overrides.now.off
