"""Every function over Values in one namespace: what Tensor methods, nn.functional and the user's namespace are made of.

In: the rows of FUNCTIONAL in names/torch_table.py. Out: their names, each with torch's name, arguments and defaults,
taking NumPy's names of arguments too.
Random ones take `rng=(key, stream)`, or `key` and `stream`, where torch takes a generator. None works in place.
"""

from __future__ import annotations

from importlib import import_module

from compiler_core.names.torch_table import ROWS
from compiler_core.ops.casting import in_float32_on_cuda
from compiler_core.ops.numpy_names import numpy_names
from compiler_core.ops.remembered import remembered

_ROWS = [row for row in ROWS if row.place[0] == __name__]
__all__ = sorted(name for row in _ROWS for name in row.bare)

for _row in _ROWS:
    _function = getattr(import_module(_row.module), _row.inner)
    if "float32" in _row.kinds:  # what calls it in the package computes as it is given
        _function = in_float32_on_cuda(_function)
        _function = remembered(_function) if hasattr(_function, "__remembers__") else _function
    globals().update(dict.fromkeys(_row.bare, numpy_names(_function)))
