"""Embedding: a table of vectors looked up by integer.

In: i[...] of row numbers. Out: f[..., embedding_dim]. Rows are drawn from N(0, 1), the padding row is zero.
Limits: `max_norm`, `scale_grad_by_freq` and `sparse` are not offered.
"""

from __future__ import annotations

from typing import Self

from compiler_core.dtype import DType
from compiler_core.tensor.creation import empty
from compiler_core.tensor.grad_mode import no_grad
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError, NotSupportedError
from distcompile.nn import functional as F
from distcompile.nn import init
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter


class Embedding(Module):
    """Rows of weight f[num_embeddings, embedding_dim]. padding_idx: a row that stays zero and gets no gradient."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: object = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if max_norm is not None or scale_grad_by_freq or sparse:
            raise NotSupportedError("Embedding offers neither max_norm nor scale_grad_by_freq nor sparse")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = _row(padding_idx, num_embeddings)
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        if _weight is None:
            self.weight = Parameter(empty(num_embeddings, embedding_dim, dtype=dtype), requires_grad=not _freeze)
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise ArgumentError(
                    "Shape of weight does not match num_embeddings and embedding_dim",
                    expected=str((num_embeddings, embedding_dim)),
                    got=str(tuple(_weight.shape)),
                )
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = f", padding_idx={self.padding_idx}" if self.padding_idx is not None else ""
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Self:
        """An Embedding on an existing table f[num_embeddings, embedding_dim]; freeze: it does not train."""
        if embeddings.dim() != 2:
            raise ArgumentError("Embeddings parameter is expected to be 2-dimensional", got=f"{embeddings.dim()}-d")
        rows, columns = embeddings.shape
        options = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        return cls(rows, columns, *options, _weight=embeddings, _freeze=freeze)


def _row(padding_idx: int | None, rows: int) -> int | None:
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise ArgumentError(
            "Padding_idx must be within num_embeddings", expected=f"-{rows}..{rows - 1}", got=str(padding_idx)
        )
    return padding_idx % rows
