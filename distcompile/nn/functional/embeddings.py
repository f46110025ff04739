"""Rows of a table by their numbers, alone or reduced in bags: embedding, embedding_bag; torch's signatures.

In: i[...] of row numbers, weight f[num, dim]. Out: f[..., dim], or f[bags, dim].
Nothing reads data, so all of it compiles but max_norm, which writes into the table. A bag with offsets is a sum to
which its rows alone are added; of maxima, a row of a mask over all rows that are looked up.
sparse: the table's gradient is a sparse tensor of the rows that were looked up; where it is wanted, the call breaks the
graph.
Limit: scale_grad_by_freq divides by a row's own count, as torch documents and its `embedding` does; its embedding_bag
on the CPU takes another row's count (that at an ordinal, not at a row).
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

import math

from compiler_core.dtype import int64
from compiler_core.errors import ShapeError
from compiler_core.ops import functional as C
from compiler_core.ops.casting import as_given
from compiler_core.ops.refusals import need_kind
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.creation import arange
from compiler_core.tensor.tensor import Tensor
from compiler_core.tensor.torch_names import load
from distcompile.errors import ArgumentError, NotSupportedError

_SPARSE = ("compiler_core.sparse.embeddings", "looked_up")
_SEARCH = ("compiler_core.ops.composites.statistics", "searchsorted")


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of weight f[num, dim] at i[...]: f[..., dim]. The row `padding_idx` gets no gradient.

    max_norm: rows that are looked up are first scaled, in place, to at most this norm. scale_grad_by_freq: a row's
    gradient is divided by how often it is looked up. sparse: the gradient is a sparse tensor.

    Example:
        >>> F.embedding(torch.tensor([1, 0]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[3., 4.],
                [1., 2.]])
    """
    if padding_idx is max_norm is None and not scale_grad_by_freq and not sparse:
        return C.embedding(input, weight)
    if weight.dim() != 2:
        raise ShapeError("'weight' must be 2-D", got=str(tuple(weight.shape)))
    if sparse and scale_grad_by_freq:
        raise NotSupportedError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    padding_idx = _row(padding_idx, weight.shape[0])
    if max_norm is not None:
        _renormalize(weight, input, max_norm, norm_type)
    rows = (load(_SPARSE) if sparse else C.embedding)(input, weight, padding_idx)
    return _by_frequency(rows, input, weight.shape[0]) if scale_grad_by_freq else rows


def _row(padding_idx: int | None, rows: int) -> int | None:
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise ArgumentError("Padding_idx must be within num_embeddings", expected=f"< {rows}", got=str(padding_idx))
    return padding_idx % rows


def _lookups(input: Tensor, rows: int, like: Tensor) -> Tensor:
    """f[rows]: how often each row is looked up."""
    flat = input.reshape(-1).to(int64)
    return C.index_add(like.new_zeros((rows,)), 0, flat, like.new_ones((flat.shape[0],)))


def _renormalize(weight: Tensor, input: Tensor, max_norm: float, norm_type: float) -> None:
    with no_grad():
        norms = C.norm(weight, norm_type, 1)
        is_long = (norms > max_norm) & (_lookups(input, weight.shape[0], weight) > 0)
        weight.mul_(C.where(is_long, max_norm / (norms + 1e-7), 1.0).unsqueeze(1))


def _by_frequency(rows: Tensor, input: Tensor, count: int) -> Tensor:
    """`rows`, their gradients divided by how often each is looked up."""
    lookups = C.index_select(_lookups(input, count, rows.detach()), 0, input.reshape(-1).to(int64))
    fixed = rows.detach()
    return fixed + (rows - fixed) / lookups.reshape(*input.shape, 1)


@as_given
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Rows of weight f[num, dim], reduced in bags: i[B, L], or i[n] with offsets i[B] where each bag begins: f[B, dim].

    mode: "sum", "mean" or "max"; an empty bag gives zeros. per_sample_weights: like input, with "sum" only.
    include_last_offset: offsets end with n. padding_idx: a row that counts for nothing.

    Example:
        >>> F.embedding_bag(torch.tensor([[0, 2]]), torch.tensor([[1.0], [2.0], [3.0]]), mode="sum")
        tensor([[4.]])
    """
    need_kind("embedding_bag", "f", weight)
    if sparse and mode == "max":
        raise ArgumentError("max mode does not support sparse weights", remedy="leave sparse=True out")
    _check_bags(input, weight, offsets, mode, per_sample_weights)
    rows = embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    valid = input >= 0 if padding_idx is None else input != padding_idx % weight.shape[0]
    if offsets is None:
        return _reduced(rows, valid, mode)
    return _reduced_from(rows, valid, offsets, include_last_offset, mode)


def _reduced_from(rows: Tensor, valid: Tensor, offsets: Tensor, include_last_offset: bool, mode: str) -> Tensor:
    """rows f[n, dim], where valid bool[n], reduced in bags that begin at these offsets."""
    n = rows.shape[0]
    places = arange(n, device=rows.device)
    starts = offsets[:-1] if include_last_offset else offsets
    ends = C.cat([offsets[1:], offsets.new_full((0 if include_last_offset else 1,), n)])
    if mode == "max":
        inside = (places >= starts.unsqueeze(1)) & (places < ends.unsqueeze(1)) & valid  # (B, n)
        return _reduced(rows.unsqueeze(0), inside, mode)
    count = starts.shape[0]
    if not count:
        return rows[:0]
    bag = (load(_SEARCH)(starts.to(places.dtype), places, right=True) - 1).clamp(0, count - 1)
    inside = valid & (places >= starts[bag]) & (places < ends[bag])
    zeros = rows.new_zeros((count, rows.shape[1]), dtype=rows.dtype.compute)
    total = zeros.index_add(0, bag, C.where(inside.unsqueeze(1), rows, 0.0).to(zeros.dtype))
    if mode == "mean":
        members = zeros.new_zeros(count).index_add(0, bag, inside.to(zeros.dtype))
        total = total / members.clamp(min=1).unsqueeze(1)
    return total.to(rows.dtype)


def _reduced(rows: Tensor, inside: Tensor, mode: str) -> Tensor:
    """rows f[B or 1, L, dim] reduced over L, where inside bool[B, L]."""
    mask = inside.unsqueeze(-1)
    if mode == "max":
        most = C.where(mask, rows, -math.inf).amax(1)
        return C.where(inside.any(1, keepdim=True), most, 0.0)
    total = C.where(mask, rows, 0.0).sum(1)
    return total if mode == "sum" else total / inside.sum(1, keepdim=True).clamp(min=1).to(rows.dtype)


def _check_bags(
    input: Tensor, weight: Tensor, offsets: Tensor | None, mode: str, per_sample_weights: Tensor | None
) -> None:
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError("mode has to be one of sum, mean or max", got=mode)
    if weight.dim() != 2:
        raise ArgumentError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.dim()}")
    if input.dim() not in (1, 2):
        raise ArgumentError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    if input.dim() == 2 and offsets is not None:
        raise ArgumentError("if input is 2D, then offsets has to be None: each row is a bag")
    if input.dim() == 1 and (offsets is None or offsets.dim() != 1):
        raise ArgumentError("offsets has to be a 1D Tensor", got="None" if offsets is None else f"{offsets.dim()}-d")
    if per_sample_weights is not None:
        if mode != "sum":
            raise NotSupportedError("per_sample_weights is only supported for mode='sum'", got=f"mode={mode!r}")
        if tuple(per_sample_weights.shape) != tuple(input.shape):
            raise ShapeError("per_sample_weights are shaped like the input", expected=str(tuple(input.shape)),
                             got=str(tuple(per_sample_weights.shape)))  # fmt: skip
