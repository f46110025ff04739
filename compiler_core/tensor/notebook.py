"""A Tensor in a notebook: what it is, and its numbers, as a table where it has at most two dims.

In: a Tensor. Out: HTML. Of long dims the edges are shown, as `repr` does. What has no numbers to show (meta tensors,
sparse ones, subclasses with a text of their own) is shown by its `repr`.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from compiler_core import cuda
from compiler_core.memory_format import strided
from compiler_core.ops.registry import Array
from compiler_core.showing.grid import row_html
from compiler_core.tensor.printing import OPTIONS

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

MOST = 12  # rows and columns that are shown whole


def tensor_html(tensor: Tensor) -> str:
    """The header and the numbers."""
    facts = [tensor.dtype.name, " × ".join(map(str, tensor.shape)) or "scalar", str(tensor.device)]
    facts += ["requires_grad"] if tensor.requires_grad else []
    head = f"<div><code>{escape(type(tensor).__name__)}</code> {escape(' · '.join(facts))}</div>"
    return head + (_numbers(tensor._array("printing")) if _is_plain(tensor) else f"<pre>{escape(repr(tensor))}</pre>")


def _is_plain(tensor: Tensor) -> bool:
    """Whether it has one or two dims of numbers, and no text of its own."""
    from compiler_core.tensor.tensor import Tensor

    has_own_text = type(tensor).__repr__ is not Tensor.__repr__
    return tensor.layout is strided and not tensor.is_meta and not has_own_text and tensor.ndim in (1, 2)


def _numbers(array: Array) -> str:
    host = cuda.fetch(array) if cuda.is_array(array) else array
    rows = host.reshape(1, -1) if host.ndim == 1 else host
    across, down = _places(rows.shape[1]), _places(rows.shape[0])
    lines = [["…" if -1 in (i, j) else _text(rows[i, j]) for j in across] for i in down]
    rows = (row_html(line, ["right"] * len(line)) for line in lines)
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def _places(size: int) -> list[int]:
    """Which are shown; -1: those left out."""
    edge = MOST // 2
    return list(range(size)) if size <= MOST else [*range(edge), -1, *range(size - edge, size)]


def _text(value: object) -> str:
    if isinstance(value, (np.bool_, np.integer)):
        return str(value)
    return f"{value:.{OPTIONS.precision}g}"
