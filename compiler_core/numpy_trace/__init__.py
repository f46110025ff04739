"""Code written with NumPy, traced: arrays that are Tensors underneath, and a rule for each of NumPy's functions.

In: Tensors (`as_traced`). Out: TracedArrays, on which `np.f`, operators, methods and indexing work as on ndarrays, in
NumPy's dtypes, while ops are recorded (by a trace or by the tape). `array.py` says how; `dispatch.py` has the table.
"""

from compiler_core.numpy_trace import creation, elementwise, joining, linear, ordering, reductions, shaping, ufuncs
from compiler_core.numpy_trace.array import TracedArray, as_traced
from compiler_core.numpy_trace.creation import substitute
from compiler_core.numpy_trace.wrap import wrap_numpy

__all__ = [
    "TracedArray", "as_traced", "creation", "elementwise", "joining", "linear", "ordering", "reductions", "shaping",
    "substitute", "ufuncs", "wrap_numpy",
]  # fmt: skip
