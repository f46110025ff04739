"""What a GradScaler does with tensors: gradients divided and looked at, the scale moved. Part of a graph, or by itself.

In: gradients, a scale f32[], a growth tracker i32[]. Out: writes to them; bool[], whether a gradient is not finite.
The numbers are torch's (`_amp_foreach_non_finite_check_and_unscale_`, `_amp_update_scale_`): the scale's inverse is
computed in float64 and rounded to float32, products with factors likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from compiler_core.dtype import float32, float64
from compiler_core.ops.composites.logic import where
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.tensor import Tensor


def unscaled(gradients: Sequence[Tensor], scale: Tensor) -> Tensor:
    """bool[]: whether a gradient holds inf or NaN, on the scale's device; all of them are divided by the scale."""
    with no_grad():
        inverse = scale.to(float64).reciprocal().to(float32)
        parts = [gradient._values() if gradient.is_sparse else gradient.detach() for gradient in gradients]
        found = [~part.isfinite().all() for part in parts]
        for part in parts:
            factor = inverse.to(part.device)
            part.copy_(part * factor if part.dtype.compute is part.dtype else part.to(part.dtype.compute) * factor)
        return any_found(found, scale)


def any_found(found: Sequence[Tensor], scale: Tensor) -> Tensor:
    """bool[]: whether one of these holds, on the scale's device."""
    return reduce(lambda one, other: one | other, [part.to(scale.device) for part in found])


def next_scale(scale: Tensor, tracker: Tensor, found: Tensor, growth: float, backoff: float, interval: int) -> None:
    """The scale shrinks where something was found, or grows after `interval` steps without; not beyond float32."""
    with no_grad():
        precise = scale.to(float64)
        grown = (precise * growth).to(float32)
        count = tracker + 1
        is_due = count == interval
        larger = where(is_due & grown.isfinite(), grown, scale)
        new = where(found, (precise * backoff).to(float32), larger)
        tracker.copy_(where(found | is_due, 0, count))
        scale.copy_(new)
