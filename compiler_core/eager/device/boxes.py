"""How arrays of a CUDA device lie that are not dense, as kernels are told: sizes and steps of as few dims as can be.

In: arrays of one shape and dtype, which may repeat, be turned, or have gaps. Out: `boxed`: what `Box` is in numbers.cu.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from compiler_core.eager.device.kernels import I32, I64
from compiler_core.ops.registry import Array

_MOST_DIMS, _NBYTES = 6, 16  # as numbers.cu has it; that are moved at once
_BOX = np.dtype([(name, I64, _MOST_DIMS) for name in ("sizes", "a", "b")])
Dims = tuple[int, ...]


class Boxed(NamedTuple):
    """steps: of a kernel, one after another. box, dims: its arguments. wide: 1 where a step is 16 bytes of each array,
    2 where it is of the first, and one element of the second; else 0."""

    steps: int
    box: Any
    dims: Any
    wide: int


def boxed(*arrays: Array, is_moved: bool = True) -> Boxed | None:
    """Of one array or two; None: they have too many dims. is_moved: elements may be taken 16 bytes at once."""
    strides = tuple([x.strides for x in arrays])
    aligned = tuple([is_moved and not x.data.ptr % _NBYTES for x in arrays])  # type: ignore[attr-defined]
    return _boxed(arrays[0].shape, strides, arrays[0].itemsize, aligned)


@lru_cache(maxsize=4096)
def boxed_with(shape: Dims, strides: Dims, itemsize: int, aligned: bool, cuts: Dims) -> Boxed | None:
    """Of one array that is read so many places further on along each dim, which stand where the second's steps do."""
    dims: list[list[int]] = []
    for n, step, cut in zip(shape, strides, cuts):
        if n == 1:
            continue
        if dims and not cut and not dims[-1][2] and dims[-1][1] == n * step:
            dims[-1] = [dims[-1][0] * n, step, 0]
        else:
            dims.append([n, step, cut])
    if not dims or len(dims) > _MOST_DIMS:
        return None
    is_whole = not dims[-1][2] and _wide([dim[:2] for dim in dims], itemsize, (aligned,)) == 1
    width = _NBYTES // itemsize if is_whole else 1
    box = np.zeros((), _BOX)
    for d, (n, step, cut) in enumerate(dims):
        is_last = d == len(dims) - 1
        box["sizes"][d], box["b"][d] = n // width if is_last else n, cut
        box["a"][d] = step // itemsize * (width if is_last else 1)
    return Boxed(math.prod(dim[0] for dim in dims) // width, box, I32(len(dims)), int(is_whole))


@lru_cache(maxsize=4096)
def _boxed(shape: Dims, strides: tuple[Dims, ...], itemsize: int, aligned: tuple[bool, ...]) -> Boxed | None:
    dims = _merged(shape, strides)
    if len(dims) > _MOST_DIMS:
        return None
    width, wide = _NBYTES // itemsize, _wide(dims, itemsize, aligned)
    if wide:
        size, *inner = dims[-1]
        dims[-1] = [size // width, *[step * width for step in inner]]
    box = np.zeros((), _BOX)
    for name, numbers in zip(("sizes", "a", "b"), zip(*dims)):
        box[name][: len(dims)] = numbers if name == "sizes" else [step // itemsize for step in numbers]
    return Boxed(math.prod(dim[0] for dim in dims), box, I32(len(dims)), wide)


def _merged(shape: Dims, strides: tuple[Dims, ...]) -> list[list[int]]:
    """(size, step of each array) of dims, outermost first; neighbours along which all arrays go on are one."""
    made: list[list[int]] = []
    for n, *steps in zip(shape, *strides):
        if n == 1:
            continue
        if made and made[-1][1:] == [n * step for step in steps]:
            made[-1] = [made[-1][0] * n, *steps]
        else:
            made.append([n, *steps])
    return made or [[1] * (1 + len(strides))]


def _wide(dims: list[list[int]], itemsize: int, aligned: tuple[bool, ...]) -> int:
    (size, first, *rest), outer = dims[-1], dims[:-1]

    def fits(place: int) -> bool:
        return aligned[place] and not any(dim[1 + place] % _NBYTES for dim in outer)

    if size * itemsize % _NBYTES or first != itemsize or not fits(0):
        return 0
    if not rest:
        return 1
    return 1 if rest[0] == itemsize and fits(1) else 2 if rest[0] == 0 else 0
