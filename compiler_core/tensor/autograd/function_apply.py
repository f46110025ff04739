"""`Function.apply`: the user's forward between two steps of ours. In a file of its own, since capture enters it.

In: a Function and its arguments. Out: the outputs, recorded. The frames of a captured call are those of this function
and of the user's forward, so what forward reads is guarded, and a graph break inside it is one between its lines.
"""

from __future__ import annotations

from typing import Any

from compiler_core.forward.level import resting
from compiler_core.tensor.autograd.function_calls import begin, finish
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.batching import level_among, put_in, taken_out


def apply(cls: Any, *args: Any) -> Any:
    """Run forward; record backward if an argument requires a gradient, and call jvp if one carries a tangent."""
    if cls.vmap is not None and (level := level_among(args)) is not None:
        results, dims = cls.vmap(*taken_out(args, level))
        return put_in(results, dims, level)
    ctx = begin(cls, args)
    with no_grad(), resting():
        if cls.setup_context is cls.__default_setup__:
            output = cls.forward(ctx, *args)
        else:
            output = cls.forward(*args)
            cls.setup_context(ctx, args, output)
    return finish(cls, ctx, args, output)
