"""Functions of torch's that few programs call, composed of others.

In: Tensors. Out: Tensors, with gradients where there are any.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any

import distcompile as dc
from compiler_core.device import Device
from compiler_core.dtype import DType
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError

_REDUCTIONS = {"sum": "sum", "mean": "sum", "max": "amax", "min": "amin", "prod": "prod"}
_NEUTRAL = {"sum": 0.0, "mean": 0.0, "max": -float("inf"), "min": float("inf"), "prod": 1.0}


def expand_copy(input: Tensor, size: Sequence[int]) -> Tensor:
    """`expand`, with memory of its own."""
    return input.expand(tuple(size)).clone()


def shape_as_tensor(input: Tensor) -> Tensor:
    """i64[ndim]: the shape."""
    return dc.tensor(list(input.shape), dtype=dc.int64)


def softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: DType) -> Tensor:
    """The gradient of softmax along `dim`, from that of its output, in the dtype that the input had."""
    product = grad_output * output
    return (product - output * product.sum(dim, keepdim=True)).to(input_dtype)


def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: float | None = None,
) -> Tensor:  # fmt: skip
    """Reduce runs of `data` along `axis`: "sum", "mean", "max", "min", "prod". lengths i64[n], or offsets i64[n + 1].

    Along its first dim. A run without elements gives `initial`, or what the reduction of nothing is. Raises
    ArgumentError (a ValueError, a RuntimeError).
    """
    if axis != 0 or indices is not None:
        raise ArgumentError("segment_reduce: runs lie along the first dim, and are told by lengths or offsets")
    if reduce not in _REDUCTIONS or (lengths is None) == (offsets is None):
        raise ArgumentError("segment_reduce: one of lengths and offsets, and a reduction", got=reduce,
                            expected=", ".join(_REDUCTIONS))  # fmt: skip
    counts = lengths if lengths is not None else offsets.diff()  # type: ignore[union-attr]
    if not unsafe and (counts.ndim != 1 or int(counts.sum()) != data.shape[0]):
        raise ArgumentError("segment_reduce: expected all rows of lengths along axis to sum to "
                            "data.size(lengths.dim()-1)")  # fmt: skip
    first = _NEUTRAL[reduce] if initial is None else initial
    start = data.new_full((counts.shape[0], *data.shape[1:]), first)
    which = dc.repeat_interleave(dc.arange(counts.shape[0], device=data.device), counts)
    which = which.view((-1, *(1,) * (data.ndim - 1))).expand_as(data)
    reduced = start.scatter_reduce(0, which, data, _REDUCTIONS[reduce], include_self=initial is not None)
    if reduce != "mean":
        return reduced
    counts = counts.view((-1, *(1,) * (data.ndim - 1)))
    return dc.where(counts > 0, reduced / counts, float("nan") if initial is None else initial)


def coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """i64[size + 1]: where each row begins, of sorted row numbers i64[n]."""
    counts = dc.bincount(input, minlength=size).cumsum(0)
    begins = dc.cat([counts.new_zeros(1), counts])
    return begins.to(dc.int32) if out_int32 else begins


def csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """i64[2, n]: row and column of each element, of where each row begins. transpose: column and row."""
    rows = dc.repeat_interleave(dc.arange(crow_indices.shape[0] - 1), crow_indices.diff()).to(col_indices.dtype)
    pair = dc.stack([col_indices, rows] if transpose else [rows, col_indices])
    return pair.to(dc.int32) if out_int32 else pair


def grouped_mm(
    mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None,
    out_dtype: DType | None = None,
) -> Tensor:  # fmt: skip
    """Products of groups. offs i32[G]: where each group ends, along the dim that is not there twice.

    a f[M, K], b f[G, K, N]: rows of a by groups -> f[M, N]. a f[G, M, K], b f[K, N]: columns of b by groups -> f[M, N].
    a f[M, K], b f[K, N]: the dim that is summed, by groups -> f[G, M, N]. Both of three dims: G products.
    Raises ArgumentError (a ValueError, a RuntimeError).
    """
    if bias is not None:
        raise ArgumentError("grouped_mm: Bias not supported yet")
    if mat_a.ndim == 3 and mat_b.ndim == 3:
        product = dc.bmm(mat_a, mat_b)
    elif offs is None:
        raise ArgumentError("grouped_mm: Have to provide offsets if there is a 2d matrix")
    else:
        product = _by_groups(mat_a, mat_b, [0, *offs.tolist()])
    return product if out_dtype is None else product.to(out_dtype)


def _by_groups(a: Tensor, b: Tensor, ends: list[int]) -> Tensor:
    spans = list(pairwise(ends))
    if a.ndim == 2 and b.ndim == 3:
        return dc.cat([a[low:high] @ b[g] for g, (low, high) in enumerate(spans)])
    if a.ndim == 3:
        return dc.cat([a[g] @ b[:, low:high] for g, (low, high) in enumerate(spans)], dim=1)
    return dc.stack([a[:, low:high] @ b[low:high] for low, high in spans])


def get_device_module(device: Device | str | None = None) -> ModuleType:
    """The module of a device's type: `cuda`, `cpu`; of the accelerator's, or `cpu`, for None."""
    from distcompile.accelerator import current_accelerator

    kind = (current_accelerator() or Device("cpu")) if device is None else Device(device)
    return getattr(dc, kind.type)


def accelerator() -> Device:
    """The accelerator's device; the CPU where there is none."""
    from distcompile.accelerator import current_accelerator

    return current_accelerator() or Device("cpu")


def default_device_type() -> str:
    """The type of the device on which tensors are made."""
    return dc.get_default_device().type


def device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a device; the current one's for a GPU without. Raises ArgumentError (a ValueError)."""
    if isinstance(device, int):
        return device
    if device is None and optional:
        return dc.cuda.current_device() if dc.cuda.is_available() else -1
    place = Device(device)
    if place.is_host:
        if allow_cpu:
            return -1
        raise ArgumentError("Expected a non cpu device", got=str(device))
    return place.index if place.index is not None else dc.cuda.current_device()


def element_size(dtype: DType) -> int:
    """Bytes of an element."""
    return dtype.itemsize
