"""`wrap_numpy`: a function written with NumPy as one of Tensors, differentiable.

In: a function of ndarrays. Out: one that takes and returns Tensors, in nested tuples, lists and dicts. While it is
captured, or where a gradient is asked for, the function runs on traced arrays; otherwise NumPy itself runs it.
Capture enters the code of this file, as it does the user's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from compiler_core.numpy_trace.trees import given, taken


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, which takes and returns ndarrays, as a function that takes and returns Tensors, with gradients.

    Under `compile` it becomes part of the graph. A function of NumPy that has no rule raises AutogradError if it is
    given an array that takes part in a gradient, and breaks the graph under `compile`.
    """

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        arrays, named = given(args, kwargs)
        return taken(fn(*arrays, **named), (args, kwargs))

    return wrapped
