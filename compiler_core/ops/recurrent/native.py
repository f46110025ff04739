"""The recurrent layer in C++: how generated code calls `recurrent` and `recurrent_backward`.

In: the operands' layouts and the attributes of a call (ops/recurrent/op.py). Out: `FORWARD`, `BACKWARD`: the lines of
the call, the C++ that they need, the scratch memory. Method: a step is a product of few rows with a matrix that all
steps share, so that a library, which would copy the matrix anew for every step, is bound by memory. Here the matrix is
copied once, in blocks of columns of two vectors; a kernel holds up to 12 rows of a block in registers; the gates of a
block are worked on while they are in the L1 cache. All sizes are template arguments, so that addresses are constants.
The blocks of a step go to the pool's threads, which meet after every step.
Source: the blocking is that of Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compiler_core.meta import Shape
from compiler_core.ops.recurrent.cpp import TEXT
from compiler_core.ops.recurrent.sizes import RecurrentSizes
from compiler_core.ops.routine import Attrs, CArray, CCall, Native, Strided, no_symbols

CELLS = {"tanh": "dc_rnn<T, false>", "relu": "dc_rnn<T, true>", "gru": "dc_gru<T>", "lstm": "dc_lstm<T>"}
_NONE = "(T*)0"
_LANES_NBYTES = 64  # of the widest vector, and the unit of alignment


def accepts(layout: Strided) -> bool:
    """Vectors are contiguous, matrices have contiguous rows; or one element stands for all."""
    return not any(layout.strides) or layout.strides[-1] == 1


def _rows(array: CArray) -> str:
    """A dc_rows of a matrix; of a vector, the row that all rows are."""
    strides = array.layout.strides
    is_one = not any(strides)
    row = 0 if is_one or len(strides) == 1 else strides[0]
    return f"dc_rows<T, {'false' if is_one else 'true'}>{{{array.address}, {row}}}"


def _sizes_of(w: Strided, attrs: Attrs) -> RecurrentSizes:
    return RecurrentSizes(attrs["mode"], w.shape[1], attrs["runs"], attrs["reverse"])


def padded(columns: int, itemsize: int) -> int:
    """The row length of a scratch matrix: whole vectors, and rows of it do not meet in the same set of the cache."""
    lanes = _LANES_NBYTES // itemsize
    whole = -(-columns // lanes) * lanes
    return whole + (lanes if whole * itemsize % 1024 == 0 else 0)


def scratch_nbytes(sizes: RecurrentSizes, itemsize: int, depth: int) -> int:
    """Bytes: the packed matrix, states or gates of two steps, the first states (or what is carried), the steps."""
    lanes, rows = _LANES_NBYTES // itemsize, sizes.batch + 12
    packed = sizes.gates * sizes.hidden * padded(sizes.hidden, itemsize)
    steps = 2 * (sum(count for _, count in sizes.runs) + 2) * 8 // itemsize
    state = padded(sizes.batch * sizes.hidden, itemsize)
    return (packed + 2 * rows * padded(depth, itemsize) + 2 * state + steps + 4 * lanes) * itemsize


def _w_of_backward(operands: Sequence[Strided], attrs: Attrs) -> int:
    """Where the state's weight stands in the backward's operands: after the parts' cotangents and the result."""
    return 1 + len(RecurrentSizes(attrs["mode"], 1, attrs["runs"], attrs["reverse"]).result)


def _forward_scratch(operands: tuple[Strided, ...], attrs: Attrs) -> int:
    sizes = _sizes_of(operands[1], attrs)
    return scratch_nbytes(sizes, operands[1].dtype.itemsize, sizes.hidden)


def _backward_scratch(operands: tuple[Strided, ...], attrs: Attrs) -> int:
    w = operands[_w_of_backward(operands, attrs)]
    sizes = _sizes_of(w, attrs)
    return scratch_nbytes(sizes, w.dtype.itemsize, sizes.gates * sizes.hidden)


def _parts(packed: CArray, shapes: Sequence[Shape]) -> list[CArray]:
    """The parts of a packed array; where one element stands for all, it does so for each part."""
    parts, start = [], 0
    for shape in shapes:
        strides = (shape[1], 1) if any(packed.layout.strides) else (0, 0)
        address = f"{packed.address} + {start}" if any(strides) else packed.address
        parts.append(CArray(address, Strided(packed.layout.dtype, shape, strides)))
        start += shape[0] * shape[1]
    return parts


def _head(sizes: RecurrentSizes, ctype: str) -> Iterator[str]:
    runs = ", ".join(f"{{{size}, {count}}}" for size, count in sizes.runs)
    steps, reverse = sum(count for _, count in sizes.runs), "true" if sizes.reverse else "false"
    yield f"    typedef {ctype} T;"
    yield f"    const int64_t runs[][2] = {{{runs}}};"
    yield f"    const dc_sequence sequence = {{runs, {len(sizes.runs)}, {steps}, {sizes.batch}, {reverse}}};"


def _call(function: str, sizes: RecurrentSizes, depth: int, call: CCall, arguments: Sequence[str]) -> Iterator[str]:
    dtype = call.result.layout.dtype
    yield "  {"
    yield from _head(sizes, dtype.ctype)
    yield f"    typedef {CELLS[sizes.mode]} cell;"
    function += f"<cell, {sizes.hidden:#x}, {padded(depth, dtype.itemsize):#x}>"
    yield f"    {function}(sequence, {', '.join(arguments)}, (T*)({call.scratch}));"
    yield "  }"


def _emit_forward(call: CCall) -> Iterator[str]:
    x, w, b, *first = call.operands
    sizes = _sizes_of(w.layout, call.attrs)
    h, *kept = (part.address for part in _parts(call.result, sizes.result))
    cells, saved = kept[0] if sizes.has_cells else _NONE, kept[-1] if kept else _NONE
    operands = [_rows(array) for array in (x, w, b, first[0], first[-1])]
    yield from _call("dc_recurrent", sizes, sizes.hidden, call, [*operands, h, cells, saved])


def _emit_backward(call: CCall) -> Iterator[str]:
    place = _w_of_backward([array.layout for array in call.operands], call.attrs)
    grads, out, w, first = _cut(call.operands, place)
    sizes = _sizes_of(w.layout, call.attrs)
    parts = _parts(out, sizes.result)  # where a cell has no c or no gates, h stands for them, and is not read
    arrays = [_of_three(grads), _of_three(parts)]
    dx, *rest = (part.address for part in _parts(call.result, sizes.gradients))
    dq = rest.pop(0) if sizes.mode == "gru" else _NONE
    results = [dx, dq, rest[0], rest[1] if sizes.has_cells else _NONE]
    operands = [_rows(array) for array in (*arrays[0], *arrays[1], w, *(first or [parts[0]]))]
    yield from _call("dc_recurrent_backward", sizes, sizes.gates * sizes.hidden, call, [*operands, *results])


def _cut(operands: Sequence[CArray], place: int) -> tuple[Sequence[CArray], CArray, CArray, Sequence[CArray]]:
    """Cotangents, the packed result, w (which stands at `place`), the first state if there is one."""
    return operands[: place - 1], operands[place - 1], operands[place], operands[place + 1 :]


def _of_three(parts: Sequence[CArray]) -> tuple[CArray, CArray, CArray]:
    """What belongs to h, to c and to the gates."""
    return parts[0], parts[1 if len(parts) == 3 else 0], parts[-1]


_HELPERS, _LIBM = ("exp", "tanh"), ("exp", "tanh")
FORWARD = Native(no_symbols, _emit_forward, TEXT, needs=_HELPERS, libm=_LIBM, scratch=_forward_scratch)
BACKWARD = Native(no_symbols, _emit_backward, TEXT, needs=_HELPERS, libm=_LIBM, scratch=_backward_scratch)
