"""Optimizers whose update looks at a whole parameter at once (norms, products of matrices): Adafactor, Muon.

In: gradients in `.grad`. Out: new values in the parameters' and the state's cells.
The arithmetic is that of the array module of the parameter's device, one parameter after the other, in float32 for
16-bit parameters; the state is there too, and the host waits for nothing. A gradient that is still on its way is waited
for. Subclasses define `update`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler_core.breaking import breaks_graph
from compiler_core.device import array_module, device_of
from compiler_core.dtype import of
from compiler_core.errors import AutogradError
from compiler_core.ops.registry import Array
from compiler_core.overrides.state import other_layouts
from compiler_core.tensor.tensor import Tensor
from distcompile.optim.optimizer import Closure, Group, Optimizer, run_closure


class ArrayOptimizer(Optimizer):
    """Base: `step` calls `update` for every parameter that has a gradient, and writes what it returns."""

    takes_complex = False

    def update(self, xp: Any, group: Group, p: Array, g: Array, state: dict[str, Any]) -> Array:
        """The parameter's new value; writes new state into `state` (`put`). xp: the module of p and g's arrays.

        p, g: in the dtype to compute in.
        """
        raise NotImplementedError(f"{type(self).__name__} has no update")

    @breaks_graph("optimizer.step() cannot be traced", "compile the loss, and step outside of it")
    def step(self, closure: Closure | None = None) -> Any:
        """Update every parameter that has a gradient. closure: recomputes the loss, which is returned.

        Raises: GraphBreak while tracing.
        """
        loss = run_closure(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter._grad is None:
                    continue
                if type(parameter._grad) in other_layouts:
                    raise AutogradError(f"{type(self).__name__} does not support sparse gradients")
                with parameter.device.working():
                    self._update_one(group, parameter)
        return loss

    def _update_one(self, group: Group, parameter: Tensor) -> None:
        assert parameter._grad is not None
        xp, stored = parameter.device.xp, parameter._own_array("step()")
        compute = of(stored.dtype).compute.numpy
        gradient = parameter.device.put(parameter._grad._own_array("step()")).astype(compute, copy=False)
        new = self.update(xp, group, stored.astype(compute, copy=False), gradient, self.state[parameter])
        parameter._cell.write(xp.asarray(new, stored.dtype))


def put(state: dict[str, Any], name: str, value: Array, dtype: np.dtype[Any]) -> None:
    """Write `value`, rounded to `dtype`, into the state's tensor `name`, which is made if it is not there.

    So it is if it is on another device (a state from before the parameter moved).
    """
    rounded = array_module(value).asarray(value, dtype)
    if name in state and state[name].device == device_of(rounded):
        state[name]._cell.write(rounded)
    else:
        state[name] = Tensor._wrap(rounded)


def read(state: dict[str, Any], name: str, like: Array, shape: tuple[int, ...]) -> Array:
    """The state's tensor `name` in like's dtype, on its device; zeros of `shape` if it is not there yet."""
    device = device_of(like)
    value: Array
    if name not in state:
        value = device.zeros(shape, like.dtype)
        return value
    value = device.put(state[name]._own_array("step()")).astype(like.dtype, copy=False)
    return value
