"""The sizes that all forms of attention share.

In: the metas of queries, keys, values, perhaps a mask and a key of dropout. Out: `AttentionSizes`; the shapes of packed
results; `beside`: which of the operands are a mask, and a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from compiler_core.dtype import DType, bfloat16, bool_, float16, float32, float64, uint64
from compiler_core.errors import ShapeError
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops.checks import check_dtype, check_shape
from compiler_core.records import dataclass

DTYPES: tuple[DType, ...] = (float32, float64)
NARROW: tuple[DType, ...] = (bfloat16, float16)  # attended in f32; what a program for a GPU has (graph/passes)
T = TypeVar("T", bound=Any)
MANY = 1 << 24  # scores, of all heads, from which on eager code of a CUDA device attends by compiled kernels
MAX_WIDTH = 512  # of queries and of values: blocks of more would not fit in the cache


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """width: elements of a query and of a key; value_width: of a value and of a result. causal: query i sees keys 0..i.

    heads is a multiple of key_heads: head h uses head h // (heads // key_heads) of keys and values.
    """

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    width: int
    value_width: int
    causal: bool

    @staticmethod
    def of(operands: Sequence[TensorMeta], causal: bool) -> AttentionSizes:
        """operands: q, k, v, and what may follow them; they fit (see `check`)."""
        q, k, v = (meta.shape for meta in operands[:3])
        return AttentionSizes(q[0], q[1], k[1], q[2], k[2], q[3], v[3], causal)

    @property
    def result(self) -> tuple[Shape, Shape]:
        """The shapes of what `attention` finds: what is attended, and the logarithms of the sums."""
        return (self.batch, self.queries, self.heads, self.value_width), (self.batch, self.heads, self.queries)

    def packed(self, dtype: DType) -> tuple[Shape, ...]:
        """Those of the parts of its result: a logarithm is two numbers of 16 bits, of which the sum counts."""
        out, logarithms = self.result
        return (out, logarithms, logarithms) if dtype in NARROW else (out, logarithms)

    @property
    def gradients(self) -> tuple[Shape, Shape, Shape]:
        """Those of `attention_backward`'s parts: of q, k and v, heads inside."""
        key = (self.batch, self.keys, self.key_heads)
        return (self.batch, self.queries, self.heads, self.width), (*key, self.width), (*key, self.value_width)

    def has_gradients_beside(self, dtype: DType) -> bool:
        """Whether those of q, k and v lie in one array, heads beside heads, as one product made them: then its gradient

        is that array. So on a GPU (16-bit floats), where the shapes let them.
        """
        return dtype in NARROW and self.queries == self.keys and self.width == self.value_width

    @property
    def beside(self) -> Shape:
        """That array's: heads of q, of k, of v."""
        return self.batch, self.queries, self.heads + 2 * self.key_heads, self.width

    @property
    def columns(self) -> int:
        """Numbers of a position in that array."""
        return self.beside[2] * self.width

    @property
    def scores(self) -> Shape:
        return self.batch, self.heads, self.queries, self.keys

    @property
    def flops(self) -> int:
        """Of the two products of the forward; a causal mask hides about half."""
        pairs = self.batch * self.heads * self.queries * self.keys
        return 2 * pairs * (self.width + self.value_width) // (2 if self.causal else 1)


def beside(operands: Sequence[T]) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """The mask, and the key of dropout, of q, k, v and what follows them: () for one that is not there."""
    found = [(x, len(x.shape) == 1) for x in operands[3:]]
    return tuple(x for x, is_key in found if not is_key), tuple(x for x, is_key in found if is_key)


def drawn(dropout: float, stream: int) -> dict[str, Any]:
    """The attributes of a call with dropout; those of one without it do not speak of it."""
    return {"dropout": dropout, "stream": stream} if dropout else {}


def check(op: str, operands: Sequence[TensorMeta], causal: bool, dropout: float = 0.0) -> AttentionSizes:
    """Raise ShapeError or DTypeError unless q, k, v (a mask; a key, where there is dropout) fit. Returns the sizes."""
    if dropout:
        *operands, key = operands
        check_dtype(op, key, (uint64,), "the key")
        check_shape(op, (3,), key, "the key")
    if len(operands) not in (3, 4) or any(meta.ndim != 4 for meta in operands[:3]) or not 0.0 <= dropout < 1.0:
        raise ShapeError(f"{op}: operands do not fit", expected="q, k, v (batch, heads, positions, width), and a mask",
                         got=", ".join(map(str, operands)))  # fmt: skip
    q, k, v, *mask = operands
    check_dtype(op, q, (*DTYPES, *NARROW), "q")
    for role, meta in (("k", k), ("v", v)):
        check_dtype(op, meta, (q.dtype,), role)
    sizes = AttentionSizes.of(operands, causal)
    if not all((*sizes.scores, sizes.width, sizes.value_width, sizes.key_heads)) or sizes.heads % sizes.key_heads:
        raise ShapeError(f"{op}: something is empty, or heads do not divide", got=", ".join(map(str, operands)))
    if max(sizes.width, sizes.value_width) > MAX_WIDTH:
        raise ShapeError(f"{op}: wider than {MAX_WIDTH}", got=", ".join(map(str, operands)))
    check_shape(op, (sizes.batch, sizes.key_heads, sizes.keys, sizes.width), k, "k")
    check_shape(op, (sizes.batch, sizes.key_heads, sizes.keys, sizes.value_width), v, "v")
    for meta in mask:
        check_dtype(op, meta, (bool_, q.dtype), "the mask")
        check_shape(op, sizes.scores, meta, "the mask")
    return sizes
