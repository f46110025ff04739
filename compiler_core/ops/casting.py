"""Autocast: which functions compute in a smaller dtype, in float32, or in the widest of their operands', and the state.

In: a function over values whose operands are Tensors. Out: the same function; where autocast acts in this thread, it is
given its operands cast, and autocast rests inside it. A decorator on a function is its policy (torch's lists):
  `in_lower` products, convolutions, attention       `in_float32` losses; with a kind of device: on that kind alone
  `in_widest` what joins tensors                     `as_given` a kernel of its own in torch, though ours calls products
Functions without one take what they get; what they call is cast. Integers, float64 and complex values never are, nor
tensors of a kind of device on which autocast does not act.
Casts of leaves that require a gradient are kept until autocast ends (one cast a weight, as in torch); while tracing,
equal casts are one node anyway. Arrays and graph nodes are not cast: rules of ops and passes run as if autocast was
off.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from compiler_core.dtype import DType, bfloat16, float16, float32
from compiler_core.errors import AutocastError
from compiler_core.ops.broadcasting import cast
from compiler_core.ops.registry import Telling, Value, current_trace

F = TypeVar("F", bound=Callable[..., Any])
Cast = Callable[[Value], Value]
_SMALL = (float16, bfloat16)
_F32 = float32.numpy
# how a function's operands are cast, its attribute `__casts__`: those that are weights once in a region; or those after
# the first, where they are weights of a CUDA device, by what computes it
LEAVES, WEIGHTS = "leaves", "weights"


class Acting(NamedTuple):
    """What products are computed in, by the kind of device; None: autocast rests there. Equal ones are one object."""

    cpu: DType | None
    cuda: DType | None

    def __str__(self) -> str:
        return ", ".join(f"{dtype.name} on {kind}" for kind, dtype in self._asdict().items() if dtype is not None)


@functools.cache
def acting_in(cpu: DType | None, cuda: DType | None) -> Acting | None:
    """The one `Acting` of these; None if it rests everywhere."""
    return Acting(cpu, cuda) if cpu or cuda else None


class Lower(NamedTuple):
    """What autocast casts to, or would if it acted, by the kind of device."""

    cpu: DType = bfloat16
    cuda: DType = float16


class Casting(threading.local):
    """acting: where autocast acts; None: it rests. lower: what it casts to, or would.

    depth: how many regions the thread is in. kept: the casts of leaves: id -> (leaf, its version, cast).
    """

    acting: Acting | None = None
    lower: Lower = Lower()
    keeps: bool = True
    depth: int = 0

    def __init__(self) -> None:
        self.kept: dict[int, tuple[Value, int, Value]] = {}


casting = Casting()


@contextmanager
def acting(as_before: Acting | None) -> Iterator[None]:
    """Within the block, autocast acts so; None: it rests."""
    before, casting.acting = casting.acting, as_before
    try:
        yield
    finally:
        casting.acting = before


@contextmanager
def own_casts() -> Iterator[None]:
    """Within the block, casts that were kept before are not used, and those kept in it are not used after it."""
    before, casting.kept = casting.kept, {}
    try:
        yield
    finally:
        casting.kept = before


def in_lower(function: F) -> F:
    """A function that autocast computes in the smaller dtype."""
    return _policy(function, _to_lower)


def in_float32(function: F) -> F:
    """A function that autocast computes in float32."""
    return _policy(function, _to_float32)


def in_float32_on_cpu(function: F) -> F:
    """A function that autocast computes in float32 on the CPU; on a GPU it is not on torch's list."""
    return _policy(function, _to_float32_on_cpu)


def in_float32_on_cuda(function: F) -> F:
    """A function that autocast computes in float32 on a GPU; on the CPU it is not on torch's list."""
    return _policy(function, _to_float32_on_cuda, only="cuda")


def in_lower_on_cuda(function: F) -> F:
    """A function that autocast computes in the smaller dtype on a GPU; on the CPU it is not on torch's list."""
    return _policy(function, _to_lower_on_cuda, only="cuda")


def refused_on_cuda(remedy: str) -> Callable[[F], F]:
    """A function that autocast refuses on a GPU, as torch does: in 16 bits it is seldom right."""
    return functools.partial(_refused_on_cuda, remedy)


def _refused_on_cuda(remedy: str, function: F) -> F:
    @functools.wraps(function)
    def refused(*args: Any, **kwargs: Any) -> Any:
        if casting.acting is not None and any(_is_eligible(value) and value.is_cuda for value in args):
            raise AutocastError(f"{function.__name__} is unsafe to autocast", remedy=remedy)
        return function(*args, **kwargs)

    return refused  # type: ignore[return-value]


def as_given(function: F) -> F:
    """A function that autocast leaves alone, with all that it calls."""
    return _policy(function, None)


def in_widest(function: F) -> F:
    """A function whose operands autocast makes one dtype: float32 if any is, or the smaller one if all are."""

    @functools.wraps(function)
    def joined(*args: Any, **kwargs: Any) -> Any:
        if casting.acting is None:
            return function(*args, **kwargs)
        tensors = [value for value in _flat([*args, *kwargs.values()]) if _is_eligible(value)]
        wide = all(value.dtype in _SMALL for value in tensors)
        return _applied(function, None if wide else _to_float32, args, kwargs)

    return joined  # type: ignore[return-value]


def _policy(function: F, change: Cast | None, only: str = "") -> F:
    """only: the one kind of device on which autocast rests inside the function, too."""

    @functools.wraps(function)
    def casts(*args: Any, **kwargs: Any) -> Any:
        if casting.acting is None or (only and getattr(casting.acting, only) is None):
            return function(*args, **kwargs)
        return _applied(function, change, args, kwargs)

    casts.__casts__ = LEAVES if change in (_to_lower, _to_lower_on_cuda) else ""  # type: ignore[attr-defined]
    return casts  # type: ignore[return-value]


def _applied(function: Callable[..., Any], change: Cast | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """function(...), its tensors changed, with autocast at rest."""
    if change is not None:
        args = tuple(_each(change, arg) for arg in args)
        kwargs = {name: _each(change, arg) for name, arg in kwargs.items()}
    with acting(None):
        return function(*args, **kwargs)


def _each(change: Cast, argument: Any) -> Any:
    """An argument, or a list or tuple of them, with the tensors in it changed."""
    if type(argument) in (list, tuple):
        return type(argument)(_each(change, item) for item in argument)
    return change(argument) if _is_eligible(argument) else argument


def _flat(arguments: list[Any]) -> Iterator[Any]:
    for argument in arguments:
        if isinstance(argument, list | tuple):
            yield from _flat(list(argument))
        else:
            yield argument


def _is_eligible(value: Any) -> bool:
    dtype = value.dtype if hasattr(value, "_cell") else None
    if not (dtype is float32 or dtype in _SMALL):
        return False
    now = casting.acting
    return now is None or (now.cuda if value.is_cuda else now.cpu) is not None


def _to_float32(value: Value) -> Value:
    return cast(value, float32)


def _to_float32_on_cpu(value: Value) -> Value:
    return value if value.is_cuda else cast(value, float32)


def _to_float32_on_cuda(value: Value) -> Value:
    return cast(value, float32) if value.is_cuda else value


def _to_lower_on_cuda(value: Value) -> Value:
    return _to_lower(value) if value.is_cuda else value


def lowered(*values: Value | None) -> list[Value | None]:
    """Those of `values` that autocast casts in the smaller dtype."""
    return [_to_lower(value) if _is_eligible(value) else value for value in values]


def _lower_of(value: Value) -> DType:
    """What autocast casts `value` to."""
    kind = "cuda" if value.is_cuda else "cpu"
    dtype: DType | None = None if casting.acting is None else getattr(casting.acting, kind)
    return dtype or getattr(casting.lower, kind)


def _is_weight(value: Value) -> bool:
    """A leaf in float32 that requires a gradient: its cast is kept."""
    return value._view is None and value.dtype is float32 and value._edge() is value


def casts_alike(how: str, values: Sequence[Value], on_device: bool) -> bool | None:
    """Of a function whose `__casts__` is this: whether the values after the first are weights; None where what is cast
    depends on more than that, and on dtypes and shapes."""
    count, first = 0, values[0]
    for value in values:
        if value._requires_grad and value._node is None and value._view is None and value._cell.raw.dtype == _F32:
            count += 1  # as `_is_weight`
    if not count:
        return False
    is_layer = how == WEIGHTS and on_device and casting.keeps and count == len(values) - 1
    return True if is_layer and not (first._requires_grad and _is_weight(first)) else None


def lowers_weights(value: Value, *weights: Value | None) -> bool:
    """Whether autocast casts `value` and these weights, of a CUDA device, and what is computed may cast the weights."""
    if casting.acting is None or casting.acting.cuda is None or not casting.keeps or current_trace() is not None:
        return False
    if not (hasattr(value, "_cell") and value.is_cuda and _is_eligible(value)):
        return False
    return all(w is None or (hasattr(w, "_cell") and w.is_cuda and _is_weight(w)) for w in weights)


def kept_lower(array: Value, dtype: Any) -> Value | None:
    """The array of a weight in a smaller dtype, if this region of autocast has cast it."""
    kept = casting.kept.get(id(array))
    return None if kept is None or kept[2].dtype != dtype else kept[2]


def keep_lower(array: Value, lower: Value) -> None:
    """From now on that is the array of this weight in a smaller dtype, until the region of autocast ends."""
    if casting.depth:
        casting.kept[id(array)] = (array, 0, lower)


def _to_lower(value: Value) -> Value:
    dtype = _lower_of(value)
    if value.dtype is dtype:
        return value
    if not (_is_weight(value) and casting.keeps) or current_trace() is not None:
        return cast(value, dtype)
    if Telling.count:
        Telling.tell(False, None, (), {}, None)  # so that the call is not remembered: the next finds a cast
    kept = casting.kept.get(id(value))
    if kept is None or kept[1] != value._cell.root.stamp or kept[2].dtype is not dtype:
        kept = (value, value._cell.root.stamp, cast(value, dtype))
        if not kept[2].requires_grad:  # nothing is recorded: of no use where something is
            return kept[2]
        casting.kept[id(value)] = kept
    return kept[2]
