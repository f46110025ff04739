"""Attention in C++: how generated code calls `attention` and `attention_backward`.

In: the operands' layouts and the attributes of a call (ops/attention/op.py). Out: `FORWARD`, `BACKWARD`: the lines of
the call, the C++ that they need, the scratch memory. Nothing of the size queries x keys is stored: blocks of scores go
through a softmax that is corrected as later blocks come (the forward), or are computed again (the backward), and blocks
that a causal mask hides are not visited. An operand may have any strides. The forward gives threads blocks of queries,
the backward heads of keys, so that sums are always taken in one order whatever the number of threads.
Sources: Dao 2023, "FlashAttention-2" (arXiv:2307.08691), section 3.1, algorithms 1 and 2; the softmax in one pass is
that of Milakov and Gimelshein 2018 (arXiv:1805.02867), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from compiler_core.dtype import DType, bool_
from compiler_core.ops.attention.cpp import TEXT
from compiler_core.ops.attention.sizes import DTYPES, AttentionSizes
from compiler_core.ops.routine import Attrs, CArray, CCall, Native, Strided, no_symbols

_LINE = 64  # bytes: the widest vector, and the unit of alignment
_QUERIES, _KEYS, _ROWS = 256, 128, 8  # DC_QUERIES, DC_KEYS, and the largest dc_rows_at_once
_MAX_PLACES = 16  # threads that can work on one call: each has scratch memory, which it touches only if it comes


def _sizes_of(operands: Sequence[Strided], attrs: Attrs, first: int) -> AttentionSizes:
    return AttentionSizes.of([layout.meta for layout in operands[first:]], attrs["causal"])


# ---- scratch memory


def _forward_places(operands: Sequence[Strided], attrs: Attrs) -> int:
    sizes = _sizes_of(operands, attrs, 0)
    return min(sizes.batch * sizes.heads * -(-sizes.queries // _QUERIES), _MAX_PLACES)


def _backward_places(operands: Sequence[Strided], attrs: Attrs) -> int:
    sizes = _sizes_of(operands, attrs, 3)
    return min(sizes.batch * sizes.key_heads, _MAX_PLACES)


def _share(numbers: Sequence[int], itemsize: int) -> int:
    """Bytes of one thread for arrays of so many elements."""
    return sum(-(-number * itemsize // _LINE) * _LINE for number in numbers)


def _widths(sizes: AttentionSizes, itemsize: int) -> tuple[int, int, int]:
    """Elements of a row of queries and of values, padded, and of a panel."""
    lanes = _LINE // itemsize
    return -(-sizes.width // lanes) * lanes, -(-sizes.value_width // lanes) * lanes, 2 * lanes


def _forward_share(operands: Sequence[Strided], attrs: Attrs) -> int:
    sizes, itemsize = _sizes_of(operands, attrs, 0), operands[0].dtype.itemsize
    width, value_width, panel = _widths(sizes, itemsize)
    blocks = [_QUERIES * max(width, value_width), _QUERIES * width, _KEYS * width, _KEYS * value_width]
    return _share([*blocks, _QUERIES * value_width, 3 * _KEYS * panel, 3 * _QUERIES], itemsize)


def _backward_share(operands: Sequence[Strided], attrs: Attrs) -> int:
    sizes, itemsize = _sizes_of(operands, attrs, 3), operands[0].dtype.itemsize
    width, value_width, panel = _widths(sizes, itemsize)
    both, keys = width + value_width, -(-sizes.keys // _ROWS) * _ROWS
    blocks = [keys * both, 2 * _QUERIES * both, _KEYS * both, _QUERIES * width, 2 * _KEYS * _QUERIES]
    return _share([*blocks, 2 * _KEYS * panel, 2 * _QUERIES], itemsize)


def _forward_scratch(operands: tuple[Strided, ...], attrs: Attrs) -> int:
    return _forward_places(operands, attrs) * _forward_share(operands, attrs)


def _backward_scratch(operands: tuple[Strided, ...], attrs: Attrs) -> int:
    return _backward_places(operands, attrs) * _backward_share(operands, attrs)


# ---- calls


def _operand(address: str, ctype: str, strides: Sequence[int]) -> str:
    return f"dc_operand<{ctype}>{{{', '.join([address, *map(str, strides)])}}}"


def _ctype(array: CArray) -> str:
    return "uint8_t" if array.layout.dtype is bool_ else array.layout.dtype.ctype


def _of(array: CArray) -> str:
    """An operand (batch, heads, rows, columns)."""
    return _operand(array.address, _ctype(array), array.layout.strides)


def _mask(mask: Sequence[CArray], q: CArray) -> str:
    return _of(mask[0]) if mask else _operand(q.address, _ctype(q), (0, 0, 0, 0))


def _begin(sizes: AttentionSizes, mask: Sequence[CArray], ctype: str) -> Iterator[str]:
    """Opens a block: the shapes `A` and `n`."""
    kind = 0 if not mask else 2 if mask[0].layout.dtype is bool_ else 1
    causal, of_mask = "true" if sizes.causal else "false", _ctype(mask[0]) if mask else ctype
    widths = f"{sizes.width:#x}, {sizes.value_width:#x}"
    yield "  {"
    yield f"    typedef dc_attention_of<{ctype}, {widths}, {causal}, {kind:#x}, {of_mask}> A;"
    yield f"    const dc_sizes n = {{{sizes.batch}, {sizes.heads}, {sizes.key_heads}, {sizes.queries}, {sizes.keys}}};"


def _addresses(packed: CArray, shapes: Sequence[tuple[int, ...]]) -> list[str]:
    """Where the parts of a packed result begin."""
    starts = [sum(map(math.prod, shapes[:k])) for k in range(len(shapes))]
    return [f"{packed.address} + {start}" for start in starts]


def _emit_forward(call: CCall) -> Iterator[str]:
    q, k, v, *mask = call.operands
    layouts = [array.layout for array in call.operands]
    sizes, ctype = _sizes_of(layouts, call.attrs, 0), _ctype(q)
    operands = ", ".join([*map(_of, (q, k, v)), _mask(mask, q), f"({ctype}){call.attrs['scale']!r}"])
    nan, strict = '__builtin_nan("")', call.attrs["strict"]
    results = ", ".join(_addresses(call.result, sizes.result))
    share, places = _forward_share(layouts, call.attrs), _forward_places(layouts, call.attrs)
    yield from _begin(sizes, mask, ctype)
    yield f"    dc_attention<A>(n, {operands},"
    yield f"      ({ctype}){nan if strict else 0}, {results}, {call.scratch}, {share}, {places});"
    yield "  }"


def _emit_backward(call: CCall) -> Iterator[str]:
    g, g_lse, packed, q, k, v, *mask = call.operands
    layouts = [array.layout for array in call.operands]
    sizes, ctype, (step,) = _sizes_of(layouts, call.attrs, 3), _ctype(q), packed.layout.strides
    batch, row, head, column = g.layout.strides
    of_out = [n * step for n in (sizes.queries * sizes.heads * sizes.value_width, sizes.value_width,
                                 sizes.heads * sizes.value_width, 1)]  # fmt: skip
    of_lse = [n * step for n in (sizes.heads * sizes.queries, sizes.queries, 1, 0)]
    of_g_lse = (*g_lse.layout.strides, 0)
    start = math.prod(sizes.result[0]) * step
    grads = [_operand(g.address, ctype, (batch, head, row, column)), _operand(g_lse.address, ctype, of_g_lse)]
    kept = [_operand(packed.address, ctype, of_out), _operand(f"{packed.address} + {start}", ctype, of_lse)]
    operands = ", ".join([*map(_of, (q, k, v)), _mask(mask, q), f"({ctype}){call.attrs['scale']!r}"])
    results = ", ".join(_addresses(call.result, sizes.gradients))
    share, places = _backward_share(layouts, call.attrs), _backward_places(layouts, call.attrs)
    yield from _begin(sizes, mask, ctype)
    yield f"    dc_attention_backward<A>(n, {', '.join([*grads, *kept])},"
    yield f"      {operands},"
    yield f"      {results}, {call.scratch}, {share}, {places});"
    yield "  }"


_HELPERS, _LIBM = ("exp", "turn"), ("exp", "log", "logf")


def _takes(dtype: DType, attrs: Attrs) -> bool:
    return dtype in DTYPES and not attrs.get("dropout")


FORWARD = Native(
    no_symbols, _emit_forward, TEXT, needs=_HELPERS, libm=_LIBM,
    scratch=_forward_scratch, places=_forward_places, takes=_takes,
)  # fmt: skip
BACKWARD = Native(
    no_symbols, _emit_backward, TEXT, needs=_HELPERS, libm=_LIBM,
    scratch=_backward_scratch, places=_backward_places, takes=_takes,
)  # fmt: skip
