"""autocast, what code asks of it, and the decorators of autograd Functions that go with it.

In: a device type, a dtype, `enabled`. Out: a context manager and decorator within which products are computed in
bfloat16 or float16, and losses in float32 (`compiler_core/ops/casting.py` says how). It acts on tensors of its kind of
device; for one that is not here it warns and has no effect, as in torch. The state belongs to the thread.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from contextlib import ContextDecorator
from typing import Any, Self, TypeVar

from compiler_core import cuda
from compiler_core import dtype as dt
from compiler_core.errors import DeviceError
from compiler_core.ops.casting import acting_in, casting
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError

F = TypeVar("F", bound=Callable[..., Any])
_DEVICES = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia", "maia", "xla")
_HERE = ("cpu", "cuda")  # where it can act
_DTYPES = (dt.bfloat16, dt.float16)
_others: dict[str, dt.DType] = {}  # what autocast would cast to on devices that are not here, where it was set


class autocast(ContextDecorator):
    """The region in which functions on torch's lists compute in `dtype`, or in float32. Regions nest.

    cache_enabled: casts of parameters are kept until the outermost region ends. Raises: DeviceError (a RuntimeError)
    for a device that torch would not know either; ArgumentError (a ValueError) for one that is no string.
    """

    def __init__(
        self,
        device_type: str,
        dtype: dt.DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise ArgumentError("Expected `device_type` of type `str`", got=str(type(device_type)))
        if device_type not in _DEVICES:
            raise DeviceError(f"User specified an unsupported autocast device_type {device_type!r}")
        self.device = device_type
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self._cache_enabled = casting.keeps if cache_enabled is None else cache_enabled
        self._enabled = bool(enabled) and self._can_act()
        self._before: list[tuple[Any, ...]] = []

    def _can_act(self) -> bool:
        """Whether it can cast on this device, to this dtype; if not, a warning."""
        if not is_here(self.device):
            warnings.warn(f"{self.device.upper()} is not available. Disabling autocast.", stacklevel=4)
            return False
        if self.fast_dtype not in _DTYPES:
            name = self.device.upper()
            warnings.warn(f"In {name} autocast, but the target dtype is not supported. Disabling autocast.\n"
                          f"{name} Autocast only supports dtypes of torch.bfloat16, torch.float16 currently.",
                          stacklevel=4)  # fmt: skip
            return False
        return True

    def __enter__(self) -> Self:
        self._before.append((casting.acting, casting.lower, casting.keeps, _others.get(self.device)))
        casting.depth += 1
        casting.keeps = self._cache_enabled
        if self.device in _HERE:
            _act(self.device, self.fast_dtype if self._enabled else None)
        set_lower(self.device, self.fast_dtype)
        return self

    def __exit__(self, *exc: object) -> None:
        casting.acting, casting.lower, casting.keeps, other = self._before.pop()
        if other is None:
            _others.pop(self.device, None)
        else:
            _others[self.device] = other
        autocast_decrement_nesting()
        if not casting.depth:
            clear_autocast_cache()


def is_here(device_type: str) -> bool:
    """Whether autocast can act on this kind of device: there is one."""
    return device_type == "cpu" or (device_type == "cuda" and cuda.device_count() > 0)


def _act(device_type: str, dtype: dt.DType | None) -> None:
    """Have autocast act on this kind of device in `dtype`; None: rest."""
    kinds = dict.fromkeys(_HERE) if casting.acting is None else casting.acting._asdict()
    casting.acting = acting_in(**{**kinds, device_type: dtype})


def set_lower(device_type: str, dtype: dt.DType) -> None:
    """What autocast casts to on this kind of device, when it acts."""
    if device_type in _HERE:
        casting.lower = casting.lower._replace(**{device_type: dtype})
    else:
        _others[device_type] = dtype


class cuda_autocast(autocast):
    """torch.cuda.amp.autocast: `autocast("cuda", ...)`."""

    def __init__(self, enabled: bool = True, dtype: dt.DType = dt.float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class cpu_autocast(autocast):
    """torch.cpu.amp.autocast: `autocast("cpu", ...)`."""

    def __init__(self, enabled: bool = True, dtype: dt.DType = dt.bfloat16, cache_enabled: bool = True) -> None:
        super().__init__("cpu", dtype, enabled, cache_enabled)


def is_autocast_available(device_type: str) -> bool:
    """Whether torch has an autocast for this kind of device."""
    return device_type in _DEVICES


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast acts now in this thread, on this kind of device."""
    return casting.acting is not None and getattr(casting.acting, device_type, None) is not None


def is_autocast_cpu_enabled() -> bool:
    """Whether autocast acts on the CPU now."""
    return is_autocast_enabled("cpu")


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Let autocast act in this thread, or rest, without a region; of one argument: on GPUs."""
    if enabled is None or not isinstance(device_type, str):
        device_type, enabled = "cuda", bool(device_type)
    if is_here(device_type):
        _act(device_type, get_autocast_dtype(device_type) if enabled else None)


def get_autocast_dtype(device_type: str) -> dt.DType:
    """What autocast casts to, or would: bfloat16 on the CPU, float16 elsewhere, unless it was told another."""
    lower: dt.DType = getattr(casting.lower, device_type, None) or _others.get(device_type, dt.float16)
    return lower


def set_autocast_dtype(device_type: str, dtype: dt.DType) -> None:
    """What autocast shall cast to."""
    set_lower(device_type, dtype)
    if is_autocast_enabled(device_type):
        _act(device_type, dtype)


def get_autocast_gpu_dtype() -> dt.DType:
    """What autocast would cast to on a GPU."""
    return get_autocast_dtype("cuda")


def get_autocast_cpu_dtype() -> dt.DType:
    """What autocast casts to, or would, on the CPU."""
    return get_autocast_dtype("cpu")


def set_autocast_gpu_dtype(dtype: dt.DType) -> None:
    """What autocast shall cast to on a GPU."""
    set_autocast_dtype("cuda", dtype)


def set_autocast_cpu_dtype(dtype: dt.DType) -> None:
    """What autocast shall cast to on the CPU."""
    set_autocast_dtype("cpu", dtype)


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Let autocast act on the CPU in this thread, or rest."""
    set_autocast_enabled("cpu", enabled)


def is_autocast_cache_enabled() -> bool:
    """Whether casts of parameters are kept."""
    return casting.keeps


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Keep casts of parameters, or not."""
    casting.keeps = enabled


def clear_autocast_cache() -> None:
    """Forget the casts of parameters."""
    casting.kept.clear()


def autocast_increment_nesting() -> int:
    """One region more; the number of them."""
    casting.depth += 1
    return casting.depth


def autocast_decrement_nesting() -> int:
    """One region less; the number of them."""
    casting.depth -= 1
    return casting.depth


def custom_fwd(fwd: F | None = None, *, device_type: str = "cuda", cast_inputs: dt.DType | None = None) -> Any:
    """A decorator for the forward of an autograd.Function. cast_inputs: where autocast acts, tensors among its
    arguments are cast to this, and it rests inside."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    forward = fwd

    @functools.wraps(forward)
    def decorated(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        enabled = is_autocast_enabled(device_type)
        ctx._dtype, ctx._fwd_used_autocast = get_autocast_dtype(device_type), enabled and cast_inputs is None
        if cast_inputs is None or not enabled:
            return forward(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            return forward(ctx, *_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return decorated


def custom_bwd(bwd: F | None = None, *, device_type: str = "cuda") -> Any:
    """A decorator for the backward of an autograd.Function: autocast is as it was in the forward."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    backward = bwd

    @functools.wraps(backward)
    def decorated(ctx: Any, *grads: Any) -> Any:
        with autocast(device_type, ctx._dtype, enabled=ctx._fwd_used_autocast):
            return backward(ctx, *grads)

    return decorated


def _cast(value: Any, device_type: str, dtype: dt.DType) -> Any:
    """`value`, tensors in it on such a device, of a floating dtype other than float64, cast."""
    if isinstance(value, Tensor):
        fits = value.dtype.is_floating_point and value.dtype is not dt.float64 and value.device.type == device_type
        return value.to(dtype) if fits else value
    if isinstance(value, Mapping):
        return {key: _cast(item, device_type, dtype) for key, item in value.items()}
    kept = isinstance(value, list | tuple)
    return type(value)(_cast(item, device_type, dtype) for item in value) if kept else value
