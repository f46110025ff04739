"""A recurrent layer in one direction as a composite, which eager code computes whole.

In and out: as the op `recurrent` (op.py), which it consists of.
"""

from __future__ import annotations

from typing import Any

from compiler_core.ops import prims
from compiler_core.ops.recurrent import op  # noqa: F401  registers it
from compiler_core.ops.registry import Value
from compiler_core.ops.whole import whole


@whole
def recurrent_layer(x: Value, w: Value, b: Value, *first: Value, **layer: Any) -> Value:
    """The packed result of `recurrent`. layer: mode, runs, reverse."""
    return prims.recurrent(x, w, b, first, **layer)
