"""Embedding and EmbeddingBag: a table of vectors looked up by integer, one by one or reduced in bags.

In: i[...] of row numbers. Out: f[..., embedding_dim]. Rows are drawn from N(0, 1), the padding row is zero.
sparse: the gradient of the table is a sparse tensor (`optim.SparseAdam`, `SGD` and `Adagrad` take it).
"""

from __future__ import annotations

from typing import Self

from compiler_core.dtype import DType
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.creation import DeviceLike
from compiler_core.tensor.tensor import Tensor
from distcompile import empty
from distcompile.errors import ArgumentError, AssertedArgumentError
from distcompile.nn import functional as F
from distcompile.nn import init
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter


class _Table(Module):
    """weight f[num_embeddings, embedding_dim] and what is drawn into it."""

    def _take(
        self, weight: Tensor | None, shape: tuple[int, int], device: DeviceLike, dtype: DType | None, freeze: bool
    ) -> None:
        """Hold this weight, or one that is drawn. freeze: it does not train."""
        if weight is not None and tuple(weight.shape) != shape:
            raise ArgumentError("Shape of weight does not match num_embeddings and embedding_dim",
                                expected=str(shape), got=str(tuple(weight.shape)))  # fmt: skip
        table = empty(*shape, device=device, dtype=dtype) if weight is None else weight
        self.weight = Parameter(table, requires_grad=not freeze)
        if weight is None:
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}{_options(self)}"


class Embedding(_Table):
    """A table of vectors: y[...] = weight[x[...]], with weight f[num_embeddings, embedding_dim] drawn from N(0, 1).

    Args:
        num_embeddings, embedding_dim: rows and columns of the table
        padding_idx: a row that starts at zero and gets no gradient; negative counts from the end
        max_norm: rows that are looked up and whose norm is larger are scaled down to it first, in the table itself
        norm_type: which norm that is, the p of the p-norm
        scale_grad_by_freq: divide the gradient of a row by how often it was looked up in the batch
        sparse: the gradient is a sparse tensor, which SGD, Adagrad and SparseAdam take

    Shape: i[...] -> f[..., embedding_dim].

    Raises IndexError_ if a row is not there, and AssertedArgumentError if padding_idx is not.

    Example:
        >>> table = nn.Embedding(10, 3, padding_idx=0)
        >>> table(torch.tensor([[1, 2, 4, 0]])).shape
        (1, 4, 3)
        >>> table.weight[0].detach()
        tensor([0., 0., 0.])
    """

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
        device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = _row(padding_idx, num_embeddings)
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self._take(_weight, (num_embeddings, embedding_dim), device, dtype, _freeze)

    def forward(self, input: Tensor) -> Tensor:
        options = (self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse)
        return F.embedding(input, self.weight, *options)

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
        """An Embedding on an existing table f[num_embeddings, embedding_dim]; freeze: it does not train.

        Example:
            >>> nn.Embedding.from_pretrained(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))(torch.tensor([1]))
            tensor([[3., 4.]])
        """
        rows, columns = _sizes(embeddings)
        options = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        return cls(rows, columns, *options, _weight=embeddings, _freeze=freeze)


class EmbeddingBag(_Table):
    """Sums, means or maxima of rows of a table: `Embedding` and a reduction of each bag, without the rows between.

    Args:
        num_embeddings, embedding_dim, max_norm, norm_type, scale_grad_by_freq, sparse: as in `Embedding`
        mode: "sum", "mean" or "max"
        include_last_offset: the last of `offsets` is the end of the last bag, not the start of another
        padding_idx: a row that no bag counts, and that gets no gradient

    `forward(input, offsets=None, per_sample_weights=None)`: input i[B, n] is B bags of n rows. Input i[n] is cut into
    bags that start at `offsets` i[B]. per_sample_weights: factors of the rows, in the input's shape, for "sum" only.

    Shape: i[B, n], or i[n] and i[B] -> f[B, embedding_dim].

    Example:
        >>> bag = nn.EmbeddingBag.from_pretrained(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), mode="sum")
        >>> bag(torch.tensor([0, 1, 2]), torch.tensor([0, 2]))
        tensor([[4., 6.],
                [5., 6.]])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.mode = num_embeddings, embedding_dim, mode
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self.include_last_offset = include_last_offset
        self.padding_idx = _row(padding_idx, num_embeddings)
        self._take(_weight, (num_embeddings, embedding_dim), device, dtype, False)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Self:
        """An EmbeddingBag on an existing table f[num_embeddings, embedding_dim]; freeze: it does not train."""
        rows, columns = _sizes(embeddings)
        options = (max_norm, norm_type, scale_grad_by_freq, mode, sparse)
        bag = cls(rows, columns, *options, embeddings, include_last_offset, padding_idx)
        bag.weight._require(not freeze)
        return bag


def _options(layer: _Table) -> str:
    """The printed form of the options that are not the defaults, as torch prints them."""
    shown: dict[str, tuple[object, object]] = {
        "padding_idx": (layer.padding_idx, None),
        "max_norm": (layer.max_norm, None),
        "norm_type": (layer.norm_type, 2),
        "scale_grad_by_freq": (layer.scale_grad_by_freq, False),
    }
    if isinstance(layer, EmbeddingBag):
        shown["mode"] = (layer.mode, None)
        shown["padding_idx"] = shown.pop("padding_idx")
    else:
        shown["sparse"] = (layer.sparse, False)
    return "".join(f", {name}={value!r}" for name, (value, usual) in shown.items() if value != usual)


def _sizes(table: Tensor) -> tuple[int, int]:
    if table.dim() != 2:
        raise ArgumentError("Embeddings parameter is expected to be 2-dimensional", got=f"{table.dim()}-d")
    rows, columns = table.shape
    return rows, columns


def _row(padding_idx: int | None, rows: int) -> int | None:
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise AssertedArgumentError(
            "Padding_idx must be within num_embeddings", expected=f"-{rows}..{rows - 1}", got=str(padding_idx)
        )
    return padding_idx % rows
