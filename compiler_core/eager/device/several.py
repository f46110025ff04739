"""What a training step computes beside its graph on a CUDA device by a kernel or two: statistics, norms, clipping.

In: CuPy's arrays. Out: new arrays, without gradients, or arrays scaled in place; None (or False) where the caller is to
compute them op by op: arrays of several devices or dtypes, kernels that do not compile, or that once gave other numbers
than NumPy (as proof.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.eager.device.batch_norm import channel_kernels, moved_by, statistics_of
from compiler_core.eager.device.define import Find
from compiler_core.eager.device.kernels import I32, I64, U32, U64, DeviceKernels, dense, is_known, kernels
from compiler_core.eager.device.proof import is_right_once
from compiler_core.ops.registry import Array
from compiler_core.runtime.cuda.replay import Known, replayed

_OTHER = "other numbers"
CHUNK, MANY = 32768, 128  # elements of a block, arrays of a launch: as kernels.cu has them
_MANY = np.dtype([("at", U64, MANY), ("sizes", I64, MANY), ("firsts", U32, MANY)])


def moved_statistics(
    x: Array, mean: Array, variance: Array, momentum: float, kept: Sequence[Array] | None = None
) -> tuple[Array, Array] | None:
    """The running mean and variance [C] of batch norm, moved towards those of x [N, C, ...] by `momentum`.

    kept: what batch norm of x kept for its backward, if it is at hand: x is not read again then.
    """

    def compute(x: Array, mean: Array, variance: Array, *kept: Array) -> Any:
        return _moved_statistics(x, mean, variance, momentum, kept)

    found = replayed(_known, (momentum or str(momentum),), (x, mean, variance, *(kept or ())), compute)
    return None if found is None else (found[0], found[1])


_known: Known = {}


def _moved_statistics(
    x: Array, mean: Array, variance: Array, momentum: float, kept: Sequence[Array] | None
) -> tuple[Array, Array] | None:
    k = _kernels((x, mean, variance), "running statistics", _other_statistics, channel_kernels)
    if k is None or not x.size or x.ndim < 2 or mean.dtype != k.wide or variance.dtype != k.wide:
        return None
    if mean.shape != x.shape[1:2] or variance.shape != mean.shape:
        return None
    with cuda.on(x.data.device_id), cuda.allocating(x.data.device_id):  # type: ignore[attr-defined]
        statistics = kept[0] if kept else statistics_of(k, x)
        if statistics is None:
            return None
        return moved_by(k, statistics, mean, variance, x.size // x.shape[1], momentum)


def kept_by(composite: str, result: Any) -> tuple[Array, ...] | None:
    """What `composite` kept for the backward of a tensor, its result; None where there is none, or others have it."""
    node = result._node
    if getattr(getattr(node, "op", None), "name", "") != composite or not hasattr(node, "kept"):
        return None
    kept = node.kept  # which hooks may have packed
    if kept and len(kept) == 1 and type(kept[0]) is cuda.lone.array:
        return kept  # type: ignore[no-any-return]
    return kept if kept and all(cuda.is_array(array) for array in kept) else None


def norm(arrays: Sequence[Array]) -> Array | None:
    """The Euclidean norm [] of all as one vector, in the dtype that theirs compute in, which is to be one."""
    used: list[DeviceKernels] = []
    known: dict[Any, DeviceKernels | None] = {}
    for array in arrays:
        if array.dtype not in known or not cuda.is_alone():
            known[array.dtype] = _kernels((array, arrays[0]), "norms", _other_norm)
        k = known[array.dtype]
        if k is None or not array.size or (used and k.wide != used[0].wide):
            return None
        used.append(k)
    if not used:
        return None
    with cuda.on(arrays[0].data.device_id), cuda.allocating(arrays[0].data.device_id):  # type: ignore[attr-defined]
        return _norm(used, arrays)


def _norm(used: Sequence[DeviceKernels], arrays: Sequence[Array]) -> Array:
    """By a launch for each dtype, and one for the sum."""
    alike: dict[DeviceKernels, list[Array]] = {}
    for k, array in zip(used, arrays):
        alike.setdefault(k, []).append(dense(array))
    launches = [(k, *launch) for k, some in alike.items() for launch in _launches(some)]
    parts = cuda.module().empty((sum(blocks for *_, blocks in launches),), used[0].wide)
    start = 0
    for k, many, count, blocks in launches:
        k.block("squares", many, parts[start : start + blocks], count, grid=(blocks,))
        start += blocks
    root: Array = cuda.module().empty((), used[0].wide)
    kernels_of_parts = used[0] if used[0].dtype == used[0].wide else kernels(used[0].wide)
    (kernels_of_parts or used[0]).block("root_of_sum", parts, root, I64(parts.size))
    return root


def scale(arrays: Sequence[Array], factor: Array) -> bool:
    """Multiply all in place by `factor`, [], of their dtype, in a launch or a few. False: nothing is done.

    arrays: row-major, of one device and dtype, which is the one that they compute in; no two share memory.
    """
    k = _kernels((factor, *arrays), "scaling", _other_product)
    if k is None or k.wide != k.dtype or any(a.dtype != k.dtype or not a.flags.c_contiguous for a in arrays):
        return False
    full = [array for array in arrays if array.size]
    if full:
        with cuda.on(factor.data.device_id), cuda.allocating(factor.data.device_id):  # type: ignore[attr-defined]
            _scale(k, full, factor)
    return True


def are_apart(arrays: Sequence[Array]) -> bool:
    """Whether no two lie in memory that they share, from the first element of each to its last."""
    spans = sorted([_span(array) for array in arrays if array.size])
    return all(end <= start for (_, end), (start, _) in pairwise(spans))


def _span(array: Array) -> tuple[int, int]:
    start: int = array.data.ptr  # type: ignore[attr-defined]
    if array.flags.c_contiguous:
        return start, start + array.nbytes
    steps = [(n - 1) * step for n, step in zip(array.shape, array.strides)]
    behind = sum(step for step in steps if step > 0) + array.itemsize
    return start + sum(step for step in steps if step < 0), start + behind


def _scale(k: DeviceKernels, arrays: Sequence[Array], factor: Array) -> None:
    for many, count, blocks in _launches(arrays):
        k.block("scale", many, factor, count, grid=(blocks,))


def _launches(arrays: Sequence[Array]) -> Iterator[tuple[Any, Any, int]]:
    """Of so many arrays as a launch takes each: (the kernels' `Many`; how many; how many blocks they have)."""
    for start in range(0, len(arrays), MANY):
        some = arrays[start : start + MANY]
        many, n, sizes = np.zeros((), _MANY), len(some), [array.size for array in some]
        ends = list(accumulate(-(-size // CHUNK) for size in sizes))
        many["at"][:n] = [array.data.ptr for array in some]  # type: ignore[attr-defined]
        many["sizes"][:n], many["firsts"][:n] = sizes, [0, *ends[:-1]]
        yield many, I32(n), ends[-1]


# ---- proofs


def _kernels(
    arrays: Sequence[Any], name: str, difference: Callable[[DeviceKernels], str], find: Find = kernels
) -> DeviceKernels | None:
    """Those of the first array's dtype, if all are on its device and `difference` finds none."""
    first = arrays[0]
    if not cuda.is_array(first) or not is_known(first.dtype):
        return None
    number: int = first.data.device_id
    is_plain = cuda.lone.array is not None and {*map(type, arrays)} == {cuda.lone.array}
    if not is_plain and not all(cuda.is_on(a, number) for a in arrays):
        return None
    with cuda.on(number):
        k = find(first.dtype)
        return k if k is not None and is_right_once(name, k, partial(difference, k)) else None


def _drawn(k: DeviceKernels, *shape: int) -> tuple[Array, Array]:
    """Numbers on the host, in f64, and as an array of the device."""
    given = np.random.default_rng(5).normal(size=shape).astype(k.dtype)
    return given.astype(np.float64), cuda.put(given, cuda.current())


def _other_statistics(k: DeviceKernels) -> str:
    pairs: list[tuple[Array, Array]] = []
    old = cuda.module().full((3,), 2.0, k.wide)
    for shape in ((4, 3, 50), (16, 3, 2200)):  # by one block a channel, and by several
        here, there = _drawn(k, *shape)
        statistics = statistics_of(k, there)
        if statistics is None:
            return _OTHER
        right = [1.5 + 0.25 * here.mean((0, 2)), 1.5 + 0.25 * here.var((0, 2), ddof=1)]
        pairs += zip(map(cuda.fetch, moved_by(k, statistics, old, old, here.size // 3, 0.25)), right)
    return "" if all(np.abs(a - b).max() < 1e-3 for a, b in pairs) else _OTHER


def _other_norm(k: DeviceKernels) -> str:
    here, there = _drawn(k, 7, 111)
    norm_there = float(cuda.fetch(_norm([k, k], [there, there])))
    return "" if abs(norm_there - math.sqrt(2 * (here**2).sum())) < 1e-2 else _OTHER


def _other_product(k: DeviceKernels) -> str:
    (here, there), (rest, more) = _drawn(k, 3, CHUNK // 2), _drawn(k, 5)
    _scale(k, [there, more], cuda.put(np.full((), 0.5, k.dtype), cuda.current()))
    right = all((cuda.fetch(a) == 0.5 * b).all() for a, b in ((there, here), (more, rest)))
    return "" if right else _OTHER
