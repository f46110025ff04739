"""What the definitions on a CUDA device share: how one is registered, which operands it takes, where its arrays are.

In: functions of kernels and arrays, as rules.py has them. Out: definitions as ops/whole.py wants them, which run
on the device of their operands, once they are proved, and turn its being full into our error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from compiler_core import cuda
from compiler_core.eager.device.kernels import DeviceKernels, dense, is_known, kernels
from compiler_core.eager.device.orders import row_major
from compiler_core.eager.device.proof import is_proved
from compiler_core.errors import DeviceError
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Made, define
from compiler_core.runtime.cuda.replay import again

Grads: TypeAlias = Sequence[Array | None]
Find: TypeAlias = Callable[[Any], DeviceKernels | None]  # dtype -> its kernels


def define_there(
    name: str,
    forward: Callable[..., Made],
    backward: Callable[..., Any],
    *,
    reads: Iterable[int] | None = None,
    reads_out: bool = False,
    find: Find = kernels,
    arrange: Callable[[Array], Array] | None = row_major,
) -> None:
    """Register a definition: as ops/whole.py has it, with the kernels of the operands' dtype as first argument.

    arrange: how a cotangent is to lie for backward; None: as it comes.
    """
    numbers = None if reads is None else frozenset(reads)
    forwards = _forward_there(name, forward, backward, find)
    backwards = _backward_there(backward, find, arrange)

    def prepare(*arrays: Any, **attrs: Any) -> Callable[..., Made] | None:
        """What is made again (runtime/cuda/replay.py), of arrays of the lone device."""
        own: Callable[..., Any] | None = getattr(forward, "prepare", None)
        if own is None or any(array is not None and type(array) is not cuda.lone.array for array in arrays):
            return None
        return own(lambda part: partial(_forward_there(name, forward, backward, find, part), **attrs), arrays)  # type: ignore[no-any-return]

    define(
        name,
        forwards,
        backwards,
        reads=numbers,
        reads_out=reads_out,
        there=True,
        prepare=prepare,
        prepare_backward=partial(_prepared_backward, backwards) if hasattr(backward, "prepare") else None,
    )


def _prepared_backward(backwards: Callable[..., Any], attrs: dict[str, Any]) -> Callable[..., Any]:
    """`backwards` of all but these attributes, of arrays of the lone device, made again."""
    known: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def prepared(needs: Sequence[bool], g: Any, out: Any, kept: Any, operands: Sequence[Any]) -> Any:
        key = (*needs, len(kept))
        found = known.get(key)
        if found is None:
            found = known[key] = again(_of_places(backwards, tuple(needs), len(kept), attrs))
        return found(g, out, *kept, *operands)

    return prepared


def _of_places(
    backwards: Callable[..., Any], needs: Sequence[bool], count: int, attrs: dict[str, Any]
) -> Callable[..., Any]:
    """`backwards` as a function of operands by position alone. count: of what was kept."""

    def computed(g: Any, out: Any, *rest: Any) -> Any:
        return backwards(needs, g, out, rest[:count], *rest[count:], **attrs)

    return computed


def _forward_there(
    name: str, forward: Callable[..., Made], backward: Callable[..., Any], find: Find, part: Any = None
) -> Callable[..., Made]:
    """`forward` on its operands' device; None where they are of several, or where its kernels fail the proof.

    part: what is computed in place of it.
    """
    compute = forward if part is None else part
    proved: dict[Any, tuple[Any, DeviceKernels]] = {}  # by dtype: CuPy's module, and its kernels

    def forwards(*arrays: Any, **attrs: Any) -> Made:
        number = _device_of(arrays)
        if number is None:
            return None
        if not cuda.is_alone() and cuda.current() != number:
            with cuda.on(number):
                return forwards(*arrays, **attrs)
        dtype, module = arrays[0].dtype, cuda.module()
        of, found = proved.get(dtype, (None, None))
        if of is not module:
            found = find(dtype) if is_known(dtype) else None
            if found is None or not is_proved(name, found, forward, backward):
                return None
            proved[dtype] = module, found
        try:
            return compute(found, *arrays, **attrs)
        except MemoryError as error:
            if isinstance(error, DeviceError):
                raise
            cuda.raise_out_of_memory(error, number)

    return forwards


def _backward_there(
    backward: Callable[..., Any], find: Find, arrange: Callable[[Array], Array] | None
) -> Callable[..., Any]:
    """`backward` on its operands' device."""

    def backwards(needs: Sequence[bool], g: Any, out: Any, kept: Any, *arrays: Any, **attrs: Any) -> Any:
        number = _number_of(arrays)
        if not cuda.is_alone() and cuda.current() != number:
            with cuda.on(number):
                return backwards(needs, g, out, kept, *arrays, **attrs)
        if type(g) is not cuda.lone.array and not cuda.is_on(g, number):  # a constant
            g = cuda.put(g, number)
        found = find(arrays[0].dtype)
        try:
            return backward(found, needs, g if arrange is None else arrange(g), out, kept, *arrays, **attrs)
        except MemoryError as error:
            if isinstance(error, DeviceError):
                raise
            cuda.raise_out_of_memory(error, number)

    return backwards


def _number_of(arrays: Sequence[Any]) -> int:
    """The device of a backward's operands, of which the tape may have let go."""
    if cuda.is_alone():
        return 0
    first = next((array for array in arrays if cuda.is_array(array)), None)
    number: int = arrays[0].place.index if first is None else first.data.device_id
    return number


def _device_of(arrays: Sequence[Any]) -> int | None:
    """The device that all are on but keys of draws; None where that is not one."""
    found: int | None = None
    for array in arrays:
        if array is None:
            continue
        if type(array) is cuda.lone.array:
            found = 0
            continue
        if not cuda.is_array(array):
            if type(array) is np.ndarray and array.dtype == np.uint64 and found is not None:
                continue
            return None
        number: int = array.data.device_id
        if found is not None and number != found:
            return None
        found = number
    return found


def alike(k: DeviceKernels, *arrays: Array | None) -> bool:
    """Whether all are of the kernels' dtype."""
    return all(a is None or a.dtype == k.dtype for a in arrays)


def dense_or_none(x: Array | None) -> Array | None:
    return None if x is None else dense(x)
