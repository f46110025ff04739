"""Eager definition of a recurrent layer: all of its steps in one native call, and so its backward.

In: what the op `recurrent` takes, of f32 or all of f64, with SMALLEST hidden units or more. Out: see ops/whole.py;
the backward's products and sums over all steps at once are the BLAS's.
Method: the C++ that compiled code calls (ops/recurrent/cpp.py), whose sizes are constants: a library for each mode,
dtype and number of hidden units, made at its first call on a machine; later it comes from the artefact cache. Fewer
hidden units are not worth a library: their steps are NumPy's, as are all where there is no compiler.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from compiler_core.eager.native import SIGNATURE, EagerLibrary, kernels, loaded, text_of
from compiler_core.eager.operands import Grads, alike, define_quietly, dense
from compiler_core.ops.recurrent.cpp import TEXT
from compiler_core.ops.recurrent.layer import recurrent_layer as declared  # noqa: F401  declares the composite
from compiler_core.ops.recurrent.native import CELLS, padded, scratch_nbytes
from compiler_core.ops.recurrent.op import before_rows
from compiler_core.ops.recurrent.sizes import RecurrentSizes, Runs
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Made
from compiler_core.runtime.lasting_memory import arena_address
from compiler_core.runtime.pool import give

SMALLEST = 16

_ENTRIES = """
typedef {ctype} T;
typedef {cell} cell;
enum {{ hidden = {hidden}, wide = hidden * cell::gates, kept = {kept} }};

static int64_t sequence_of(const Array* runs, int64_t reverse, dc_sequence* to) {{
  const int64_t (*pairs)[2] = (const int64_t (*)[2])runs->data;
  int64_t steps = 0, rows = 0;
  for (int64_t k = 0; k < runs->shape[0]; ++k) steps += pairs[k][1], rows += pairs[k][0] * pairs[k][1];
  *to = dc_sequence{{pairs, runs->shape[0], steps, pairs[0][0], reverse != 0}};
  return rows;
}}

// x, w, b, the first h, the first c (or h again), the packed result; runs
EXPORT dc_layer(void* arrays, int64_t reverse, int64_t scratch) {{
  const Tuple* t = (const Tuple*)arrays;
  if (!is_dense(t)) return -1;
  dc_sequence sequence;
  const int64_t rows = sequence_of(t->items[6], reverse, &sequence);
  T* const h = at<T>(t, 5);
  T* const cells = cell::has_cells ? h + rows * hidden : (T*)0;
  T* const saved = kept ? h + (cell::has_cells ? 2 : 1) * rows * hidden : (T*)0;
  const dc_rows<T, 1> first{{at<T>(t, 3), hidden}}, last{{at<T>(t, 4), hidden}};
  dc_recurrent<cell, hidden, {forward_row}>(sequence, dc_rows<T, 1>{{at<T>(t, 0), wide}},
                                            dc_rows<T, 1>{{at<T>(t, 1), hidden}}, dc_rows<T, 1>{{at<T>(t, 2), 0}},
                                            first, last, h, cells, saved, (T*)scratch);
  return 0;
}}

// the packed cotangent, the packed result, w, the first c (GRU: h), the packed gradients; runs
EXPORT dc_layer_backward(void* arrays, int64_t reverse, int64_t scratch) {{
  const Tuple* t = (const Tuple*)arrays;
  if (!is_dense(t)) return -1;
  dc_sequence sequence;
  const int64_t rows = sequence_of(t->items[5], reverse, &sequence), second = cell::has_cells ? rows * hidden : 0;
  const int64_t third = kept ? second + rows * hidden : 0;
  const T *g = at<T>(t, 0), *out = at<T>(t, 1);
  T* const dx = at<T>(t, 4);
  T* const dq = dx + rows * wide;
  T* const dh0 = dq + ({has_new} ? rows * hidden : 0);
  T* const dc0 = dh0 + sequence.batch * hidden;
  typedef dc_rows<T, 1> Rows;
  dc_recurrent_backward<cell, hidden, {backward_row}>(
      sequence, Rows{{g, hidden}}, Rows{{g + second, hidden}}, Rows{{g + third, kept * hidden}}, Rows{{out, hidden}},
      Rows{{out + second, hidden}}, Rows{{out + third, kept * hidden}}, Rows{{at<T>(t, 2), hidden}},
      Rows{{at<T>(t, 3), hidden}}, dx, dq, dh0, dc0, (T*)scratch);
  return 0;
}}
"""


def _text(mode: str, ctype: str, itemsize: int, hidden: int) -> str:
    from compiler_core.codegen.cpp.helpers import TYPES, helper_text, libm_declarations
    from compiler_core.codegen.cpp.program import POOL

    sizes = RecurrentSizes(mode, hidden, ((1, 1),), False)
    entries = _ENTRIES.format(
        ctype=ctype,
        cell=CELLS[mode],
        hidden=hidden,
        kept=sizes.saved,
        has_new=int(mode == "gru"),
        forward_row=padded(hidden, itemsize),
        backward_row=padded(sizes.gates * hidden, itemsize),
    )
    parts = (TYPES, POOL, helper_text(["exp", "tanh"]), libm_declarations(["exp", "tanh"]), text_of("arrays.h"))
    return "".join((*parts, TEXT, entries))


class _Layer(EagerLibrary):
    """The two calls: they let other threads run. They compute on the pool's threads, as compiled code does."""

    def __init__(self, path: Any) -> None:
        super().__init__(path)
        give(self._calls)
        numbers = (*SIGNATURE, ctypes.c_int64, ctypes.c_int64)
        self.forward, self.backward = (self.forms(name, *numbers)[1] for name in ("layer", "layer_backward"))


@cache
def _layer(mode: str, dtype: np.dtype[Any], hidden: int) -> _Layer | None:
    ctype = "float" if dtype.itemsize == 4 else "double"
    purpose = f"recurrent layers ({mode}, {hidden} units)"
    return loaded(_Layer, "recurrent", lambda: _text(mode, ctype, dtype.itemsize, hidden), purpose)


@lru_cache(maxsize=1024)
def _sizes(mode: str, hidden: int, runs: Runs, reverse: bool, itemsize: int) -> tuple[RecurrentSizes, Any, int, int]:
    """Sizes, runs as the kernels read them, bytes of scratch memory forward and backward."""
    sizes = RecurrentSizes(mode, hidden, runs, reverse)
    there, back = (scratch_nbytes(sizes, itemsize, depth) for depth in (hidden, sizes.gates * hidden))
    return sizes, np.array(runs, np.int64), there, back


def _forward(x: Array, w: Array, b: Array, *first: Array, mode: str, runs: Runs, reverse: bool) -> Made:
    hidden = w.shape[1]
    if hidden < SMALLEST or not alike(x, w, b, *first) or not runs or not runs[0][0]:
        return None
    layer = _layer(mode, x.dtype, hidden)
    if layer is None:
        return None
    sizes, pairs, nbytes, _ = _sizes(mode, hidden, runs, reverse, x.itemsize)
    if x.shape != (sizes.rows, sizes.gates * hidden) or any(f.shape != (sizes.batch, hidden) for f in first):
        return None  # the op says what is wrong
    out = np.empty(sum(rows * columns for rows, columns in sizes.result), x.dtype)
    arrays = (dense(x), dense(w), dense(b), dense(first[0]), dense(first[-1]), out, pairs)
    layer.forward(arrays, reverse, arena_address(nbytes))
    return out, ()


def _backward(
    needs: Sequence[bool],
    g: Array,
    out: Array,
    kept: Any,
    x: Array,
    w: Array,
    b: Array,
    *first: Array,
    mode: str,
    runs: Runs,
    reverse: bool,
) -> Grads | None:
    hidden, layer = w.shape[1], _layer(mode, x.dtype, w.shape[1])
    if layer is None:
        return None
    sizes, pairs, _, nbytes = _sizes(mode, hidden, runs, reverse, w.itemsize)
    packed = np.empty(sum(rows * columns for rows, columns in sizes.gradients), w.dtype)
    arrays = (dense(g), dense(out), dense(w), dense(first[-1]), packed, pairs)
    layer.backward(arrays, reverse, arena_address(nbytes))
    dx, *rest = _blocks(packed, sizes.gradients)
    parts = [dx] if mode != "gru" else [dx[:, : 2 * hidden], rest.pop(0)]
    dw = db = None
    if needs[1]:
        states = before_rows(sizes, out[: sizes.rows * hidden].reshape(-1, hidden), first[0])
        dw = _joined([np.matmul(part.T, states) for part in parts])
    if needs[2]:
        db = _joined([np.add.reduce(part, 0) for part in parts])
    return dx, dw, db, *[part.copy() for part in rest]  # which would keep the memory of all


def _joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _blocks(packed: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Views of the parts of a packed array."""
    parts, start = [], 0
    for rows, columns in shapes:
        parts.append(packed[start : start + rows * columns].reshape(rows, columns))
        start += rows * columns
    return parts


def define_recurrent() -> None:
    """Define it, if there is a compiler."""
    if kernels() is not None:
        define_quietly("recurrent_layer", _forward, _backward, reads=(1, 3, 4), reads_out=True)
