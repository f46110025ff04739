"""How generated code orders by value: loops over lines, each a call of a function of sorting/cpp.py.

In: the routine calls of op.py. Out: their `Native`s. An operand may lie by any strides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from compiler_core.dtype import DType, bfloat16, float16, float32, float64
from compiler_core.ops.routine import Attrs, CArray, CCall, Native, Strided, no_symbols
from compiler_core.ops.sorting.cpp import TEXT

_INFINITY = {float16: 0x7C00, bfloat16: 0x7F80, float32: 0x7F800000, float64: 0x7FF << 52}
LINES = 16  # that are read side by side, where they cross the lines of memory
_BLOCK = 64  # dc_order_block
_SORT_ALL = 4  # of a line no longer than this many times what is wanted, all is sorted


def _key(dtype: DType) -> str:
    """The type by which numbers of `dtype` become keys."""
    unsigned = f"uint{8 * dtype.itemsize}_t"
    if dtype in _INFINITY:
        return f"dc_float_key<{unsigned}, {_INFINITY[dtype]:#x}>"
    return f"dc_integer_key<{unsigned}, {int(dtype.kind == 'i'):#x}>"


def _place_type(dtype: DType, length: int) -> str:
    """What places are held in beside keys: as wide as those, or wider."""
    return "int64_t" if dtype.itemsize == 8 or length >> 32 else "uint32_t"


def _pair_nbytes(x: Strided, length: int) -> int:
    return 16 if x.dtype.itemsize == 8 or length >> 32 else 8


def _lines(call: CCall, line: Callable[[str, str, int, int], str], beside: int | None = None) -> Iterator[str]:
    """`line(address, result's address, stride, result's stride)` for every line along attrs["dim"].

    beside: a dim along which LINES go at once.
    """
    (x,), dim = call.operands, call.attrs["dim"]
    outer = [d for d in range(len(x.layout.shape)) if d != dim]
    yield "  {"
    for d in outer:
        step = f"b{d} += {LINES}" if d == beside else f"++b{d}"
        yield f"    for (int64_t b{d} = 0; b{d} < {x.layout.shape[d]}; {step})"
    at, result = _at(x, outer), _at(call.result, outer)
    yield f"      {line(at, result, x.layout.strides[dim], call.result.layout.strides[dim])}"
    yield "  }"


def _at(array: CArray, outer: list[int]) -> str:
    return " + ".join([array.address, *(f"b{d}*{array.layout.strides[d]}" for d in outer if array.layout.strides[d])])


def _length(layout: Strided, attrs: Attrs) -> int:
    return layout.shape[attrs["dim"]]


def _emit_sort(call: CCall) -> Iterator[str]:
    length = _length(call.operands[0].layout, call.attrs)
    return _emit_sorted(call, length, call.attrs["descending"])


def _emit_sorted(call: CCall, wanted: int, descending: bool) -> Iterator[str]:
    """The first `wanted` of lines that are sorted."""
    length, types, order = _length(call.operands[0].layout, call.attrs), _types(call), str(descending).lower()

    def line(at: str, result: str, stride: int, step: int) -> str:
        return f"dc_sort_line<{types}>({at}, {length}, {stride}, {order}, {wanted}, {result}, {step}, {call.scratch});"

    return _lines(call, line)


def _types(call: CCall) -> str:
    dtype = call.operands[0].layout.dtype
    return f"{_key(dtype)}, {_place_type(dtype, _length(call.operands[0].layout, call.attrs))}"


def _emit_topk(call: CCall) -> Iterator[str]:
    layout, k, dim = call.operands[0].layout, call.attrs["k"], call.attrs["dim"]
    length, order = _length(layout, call.attrs), str(call.attrs["largest"]).lower()
    if k * _SORT_ALL >= length:
        return _emit_sorted(call, k, call.attrs["largest"])
    beside = _beside(layout, dim)
    most = 1 if beside is None else LINES
    count, apart = "1", 0
    if beside is not None:
        n, apart = layout.shape[beside], call.result.layout.strides[beside]
        count = f"({n} - b{beside} < {LINES} ? {n} - b{beside} : {LINES})"

    def line(at: str, result: str, stride: int, step: int) -> str:
        return (
            f"dc_first_places<{_types(call)}, {most:#x}>({at}, {length}, {stride}, {count}, {order}, {k}, {result}, "
            f"{step}, {apart}, {call.scratch});"
        )

    return _lines(call, line, beside)


def _beside(x: Strided, dim: int) -> int | None:
    """The dim along which lines lie side by side, if they cross the lines of memory."""
    if x.strides[dim] == 1:
        return None
    return next((d for d, step in enumerate(x.strides) if step == 1 and d != dim and x.shape[d] > 1), None)


def _emit_rank(call: CCall) -> Iterator[str]:
    dtype, length = call.operands[0].layout.dtype, _length(call.operands[0].layout, call.attrs)
    types, rank = f"{_key(dtype)}, {_place_type(dtype, length)}", call.attrs["rank"]

    def line(at: str, result: str, stride: int, step: int) -> str:
        return f"({result})[0] = dc_place_of_rank<{types}>({at}, {length}, {stride}, {rank}, {call.scratch});"

    return _lines(call, line)


def _sort_scratch(operands: tuple[Strided, ...], attrs: Attrs) -> int:
    length = _length(operands[0], attrs)
    return 2 * length * _pair_nbytes(operands[0], length)


def _topk_scratch(operands: tuple[Strided, ...], attrs: Attrs) -> int:
    length = _length(operands[0], attrs)
    room = 2 * length
    if attrs["k"] * _SORT_ALL < length:
        room = (2 * attrs["k"] + _BLOCK) * (1 if _beside(operands[0], attrs["dim"]) is None else LINES)
    return room * _pair_nbytes(operands[0], length)


SORT = Native(no_symbols, _emit_sort, TEXT, scratch=_sort_scratch)
TOPK = Native(no_symbols, _emit_topk, TEXT, scratch=_topk_scratch)
RANK = Native(no_symbols, _emit_rank, TEXT, scratch=_sort_scratch)
