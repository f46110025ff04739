"""What ops need that run graphs, which are their attributes as texts: several results as one, texts made of others.

In: values, texts, metas. Out: vectors of one dtype that hold several values behind each other, bytes where they are of
several dtypes; graphs, run as they are or compiled for the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np

from compiler_core.aot.branch import EXECUTABLE, closed, parsed
from compiler_core.dtype import DType, uint8
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import GraphBuilder
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import Array, Attrs, Op, Value, bind, meta_of, use_trace

Run: TypeAlias = Callable[[Sequence[Array]], Sequence[Array]]


def results(
    op: Op, operands: Sequence[Value], attrs: Attrs, metas: Sequence[TensorMeta], *, has_gradients: bool
) -> list[Value]:
    """The results of these metas of an op that gives those in `places`, read as `dtype`. has_gradients: it is called
    for each dtype that has some, and for the rest; else once."""
    found: list[Value] = [None] * len(metas)
    dtypes = {meta.dtype: None for meta in metas if has_gradients and meta.dtype.is_inexact}
    for dtype in (*dtypes, uint8):
        places = tuple(k for k, meta in enumerate(metas) if (meta.dtype if meta.dtype in dtypes else uint8) is dtype)
        if places:
            vector = bind(op, *operands, **attrs, places=places, dtype=dtype)
            for k, value in zip(places, unpack(vector, [metas[k] for k in places]), strict=True):
                found[k] = value
    return found


# ---- values behind each other


def _nbytes(meta: TensorMeta) -> int:
    return meta.numel * meta.dtype.itemsize


def vector_of(metas: Sequence[TensorMeta], dtype: DType) -> TensorMeta:
    return TensorMeta((sum(map(_nbytes, metas)) // dtype.itemsize,), dtype)


def _read_as(x: Value, dtype: DType) -> Value:
    return x if meta_of(x).dtype is dtype else prims.bitcast(x, dtype)


def pack(values: Sequence[Value], dtype: DType, front: tuple[int, ...] = ()) -> Value:
    """Values behind each other, read as `dtype`; front: of a batch, its size."""
    flat = [prims.reshape(x, (*front, meta_of(x).numel // int(np.prod(front)))) for x in values]
    return prims.cat([_read_as(x, dtype) for x in flat], len(front))


def unpack(packed: Value, metas: Sequence[TensorMeta], front: tuple[int, ...] = ()) -> list[Value]:
    """The values of these metas that were packed."""
    found, start, size = [], 0, meta_of(packed).dtype.itemsize
    for meta in metas:
        stop = start + _nbytes(meta) // size
        part = prims.slice(packed, (*(0 for _ in front), start), (*front, stop), (1,) * (len(front) + 1))
        found.append(prims.reshape(_read_as(part, meta.dtype), (*front, *meta.shape)))
        start = stop
    return found


# ---- graphs made of graphs


def as_text(name: str, metas: Sequence[TensorMeta], function: Callable[..., Sequence[Value]]) -> str:
    """The graph of function(*values)."""
    builder = GraphBuilder(name)
    given = [builder.placeholder(f"x{k}", meta) for k, meta in enumerate(metas)]
    with use_trace(builder):
        return closed(builder, *function(*given))


def metas_of(text: str) -> list[TensorMeta]:
    return [node.meta for node in parsed(text).inputs]


def inexact_of(metas: Sequence[TensorMeta]) -> list[int]:
    return [k for k, meta in enumerate(metas) if meta.dtype.is_inexact]


# ---- how they are run


@lru_cache(256)
def executable(text: str) -> Run:
    return EXECUTABLE.get()(parsed(text))  # type: ignore[no-any-return]


def interpreted(text: str) -> Run:
    return partial(interpret, parsed(text))


def pack_arrays(xp: Any, values: Sequence[Array], dtype: DType) -> Array:
    return xp.concatenate([xp.ascontiguousarray(x).reshape(-1).view(dtype.numpy) for x in values])  # type: ignore[no-any-return]
