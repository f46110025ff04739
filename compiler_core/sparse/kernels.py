"""Sums and products over the elements of a pattern, on arrays.

In: i64 arrays of row and column numbers, values, dense matrices. Out: arrays. On the CPU float32 and float64 are
computed by two kernels of the eager library (eager/sparse.h); other dtypes, and CUDA devices, by the array module; of
what is on a device the host takes maxima and minima of runs, whose elements in one place CuPy's scatter took wrongly.
No array of all elements is made, nor one of every element's row unless the array module computes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler_core import dtype as dt
from compiler_core.cuda import fetch
from compiler_core.device import array_module
from compiler_core.errors import IndexError_
from compiler_core.ops.registry import Array
from compiler_core.sparse.places import is_host, rows_of

_KERNEL_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
_BLOCK = 1 << 22  # elements of what the array module makes at once


def _kernels_for(array: Array) -> Any:
    """The eager library, if it computes with arrays like this one."""
    if not is_host(array) or array.dtype not in _KERNEL_DTYPES:
        return None
    from compiler_core.eager.native import kernels  # here, as it looks for a compiler

    return kernels()


def product(rows: Array, columns: Array, weights: Array | None, dense: Array, count: int) -> Array:
    """f[count, k]: out[rows[i]] += weights[i] * dense[columns[i]]; dense f[m, k]. weights None: all 1.

    Raises IndexError_ for a row or column that is not there (indices can be written to behind the tensor's back).
    """
    xp, library = array_module(dense), _kernels_for(dense)
    wide = dt.of(dense.dtype).compute.numpy
    out: Array = xp.zeros((count, dense.shape[1]), wide)
    if library is not None:
        told = tuple(map(_laid_out, (dense, out, weights, rows, columns)))
        _check(library.named("sparse_product")(told))
        return out
    step = max(1, _BLOCK // max(1, dense.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        terms = dense[columns[part]].astype(wide, copy=False)
        if weights is not None:
            terms = terms * weights[part, None].astype(wide, copy=False)
        if out.dtype.kind == "c":  # CuPy adds no complex numbers there
            real = xp.zeros((), out.dtype).real.dtype
            xp.add.at(out.view(real), rows[part], xp.ascontiguousarray(terms).view(real))
        else:
            xp.add.at(out, rows[part], terms)
    return out.astype(dense.dtype, copy=False)


def sampled(rows: Array, columns: Array, a: Array, b: Array) -> Array:
    """f[nnz]: the product of row rows[i] of a f[n, k] and row columns[i] of b f[m, k]."""
    xp, library = array_module(a), _kernels_for(a)
    out: Array = xp.zeros(len(rows), a.dtype)
    if library is not None:
        _check(library.named("sparse_sampled")(tuple(map(_laid_out, (a, b, out, rows, columns)))))
        return out
    step, wide = max(1, _BLOCK // max(1, a.shape[1])), dt.of(a.dtype).compute.numpy
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        left, right = (x[index[part]].astype(wide, copy=False) for x, index in ((a, rows), (b, columns)))
        out[part] = (left * right).sum(1)
    return out


def summed(values: Array, kinds: Array, count: int, order: Array | None = None) -> Array:
    """f[count, ...]: the sums of values f[n, ...] of one kind. order: kinds are those of values[order].

    Truth values are joined by "or".
    """
    xp = array_module(values)
    if values.dtype == bool:
        counts = xp.zeros((count, *values.shape[1:]), xp.int64)
        xp.add.at(counts, kinds, values if order is None else values[order])
        return counts > 0  # type: ignore[no-any-return]
    places = xp.arange(len(values)) if order is None else order
    return product(kinds, places, None, rows_of(values), count).reshape(count, *values.shape[1:])


def _laid_out(array: Array | None) -> Array | None:
    """As the kernels read it."""
    return None if array is None else np.require(array, requirements=("C", "A"))


def _check(status: int) -> None:
    if status:
        raise IndexError_("the indices of a sparse tensor name elements that its size does not have")


def reduced(values: Array, begins: Array, reduce: str, xp: Any) -> Array:
    """f[count, ...]: "amax" or "amin" of runs of values f[n, ...], which begin at `begins`; none is empty."""
    ufunc = np.maximum if reduce == "amax" else np.minimum
    if xp is np:
        return ufunc.reduceat(values, begins, axis=0)
    return xp.asarray(ufunc.reduceat(fetch(values), fetch(begins), axis=0))  # type: ignore[no-any-return]
