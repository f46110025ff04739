"""autocast, where it has no effect; and what code asks of it.

In: a device type, `enabled`. Out: a context manager and decorator. Raises NotSupportedError where it would have to act.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, Self, TypeVar

from compiler_core import dtype as dt
from compiler_core.log import warn_once
from distcompile.errors import ArgumentError, NotSupportedError

F = TypeVar("F", bound=Callable[..., Any])
_DTYPES = {"cpu": dt.bfloat16, "cuda": dt.float16}


class autocast(ContextDecorator):
    """The region in which torch would cast. Disabled, or for a device that is not here, it has no effect.

    Raises: NotSupportedError if enabled on the CPU; ArgumentError for a device that torch would not know either.
    """

    def __init__(
        self,
        device_type: str,
        dtype: dt.DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str) or device_type not in ("cpu", "cuda", "mps", "xpu"):
            raise ArgumentError(f"unsupported autocast device_type {device_type!r}", expected="'cpu', 'cuda', ...")
        self.device = device_type
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        if enabled and device_type == "cpu":
            raise NotSupportedError(
                "autocast is not offered on the CPU",
                got=f"dtype={self.fast_dtype}",
                remedy="convert the model: model.bfloat16(); or enabled=False",
            )
        if enabled:
            warn_once(f"autocast.{device_type}", f"autocast: {device_type} is not available. Disabling autocast.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        return None


class cuda_autocast(autocast):
    """torch.cuda.amp.autocast: `autocast("cuda", ...)`."""

    def __init__(self, enabled: bool = True, dtype: dt.DType = dt.float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast can act on this device: no."""
    return False


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether autocast acts now: never."""
    return False


def is_autocast_cpu_enabled() -> bool:
    """Whether autocast acts on the CPU now: never."""
    return False


def get_autocast_dtype(device_type: str) -> dt.DType:
    """What autocast would cast to: bfloat16 on the CPU, float16 elsewhere."""
    return _DTYPES.get(device_type, dt.float16)


def get_autocast_gpu_dtype() -> dt.DType:
    """What autocast would cast to on a GPU: float16."""
    return dt.float16


def get_autocast_cpu_dtype() -> dt.DType:
    """What autocast would cast to on the CPU: bfloat16."""
    return dt.bfloat16


def custom_fwd(fwd: F | None = None, *, device_type: str = "cuda", cast_inputs: dt.DType | None = None) -> Any:
    """`fwd` of an autograd.Function as it is: outside of autocast torch does not change it either."""
    return fwd if fwd is not None else lambda function: function


def custom_bwd(bwd: F | None = None, *, device_type: str = "cuda") -> Any:
    """`bwd` of an autograd.Function as it is."""
    return bwd if bwd is not None else lambda function: function
