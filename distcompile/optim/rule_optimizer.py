"""Optimizers that are an update rule per parameter (SGD, Adam, AdamW), run in one native call or op by op.

In: gradients in `.grad`. Out: new values in the parameters' and the state's cells, whose versions rise.

A compiled update writes over values that nobody else can see (`tensor/ownership.py`), else into fresh arrays.
A step gathers one `Update` per parameter that has a gradient, runs them all (compiled: `fused.py`, one native call;
eager: the same rule on arrays), then puts the results into the cells. Nothing is written before everything is computed.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from compiler_core.dtype import DType
from compiler_core.errors import BackendError, GraphBreak
from compiler_core.log import warn_once
from compiler_core.ops.registry import Array, current_trace
from compiler_core.tensor.grad_mode import no_grad
from compiler_core.tensor.ownership import destination
from compiler_core.tensor.tensor import Tensor
from distcompile.optim.fused import FusedUpdates
from distcompile.optim.optimizer import Closure, Group, Optimizer, run_closure
from distcompile.optim.rule import UpdateRule, apply_rule


@dataclass(slots=True)
class Update:
    """What one parameter's update reads and where it goes. numbers: index into the step's list of scalar sets.

    counter, step: the state's "step" tensor, if it has one, and the number it takes.
    """

    parameter: Tensor
    gradient: Array
    state: list[Tensor]
    rule: UpdateRule
    numbers: int
    counter: Tensor | None
    step: int

    def arrays(self) -> list[Array]:
        return [self.parameter._read(), self.gradient, *(tensor._read() for tensor in self.state)]

    def destinations(self) -> list[Array]:
        return [destination(self.parameter._cell), *(destination(tensor._cell) for tensor in self.state)]

    def write(self, outputs: list[Array]) -> None:
        for tensor, value in zip((self.parameter, *self.state), outputs, strict=True):
            tensor._cell.write(value)
        if self.counter is not None:
            self.counter._cell.write(np.array(self.step, np.float32))


class RuleOptimizer(Optimizer):
    """Base of SGD, Adam and AdamW: subclasses say the rule of a group and the number of a step."""

    counts_steps: ClassVar[bool] = False  # whether the state has a "step" tensor, as torch's Adam

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self._fused = FusedUpdates()
        super().__init__(params, defaults)

    def rule(self, group: Group) -> UpdateRule:
        """The rule for a group's present options."""
        raise NotImplementedError(f"{type(self).__name__} has no rule")

    def step_number(self, state: dict[str, Any]) -> int:
        """The number of the step about to be made for a parameter with this state; 1 is the first."""
        return int(state["step"]._read()) + 1 if "step" in state else 1

    def step(self, closure: Closure | None = None) -> Any:
        """Update every parameter that has a gradient. closure: recomputes the loss, which is returned.

        Raises: BackendError if a group has fused=True and the update cannot be compiled; GraphBreak while tracing.
        """
        if current_trace() is not None:
            raise GraphBreak("optimizer.step() cannot be traced", remedy="compile the loss, and step outside of it")
        loss = run_closure(closure)
        with no_grad():
            for wanted in (False, True):
                scalars: list[dict[str, Array]] = []
                updates = self._gather(wanted, scalars)
                if updates:
                    self._run(updates, scalars, compiled=wanted)
        return loss

    def _gather(self, fused: bool, scalars: list[dict[str, Array]]) -> list[Update]:
        """The updates of the groups that are (or are not) to be compiled; appends their scalar sets to `scalars`."""
        updates: list[Update] = []
        places: dict[Hashable, int] = {}
        for which, group in enumerate(self.param_groups):
            if (group["fused"] is not False) is not fused:
                continue
            rule = self.rule(group)
            for parameter in group["params"]:
                if parameter._grad is None:
                    continue
                step = self.step_number(self.state[parameter])  # before its state is made
                state = self._state_of(parameter, rule)
                key = (which, step, parameter.dtype)
                if key not in places:
                    places[key] = len(scalars)
                    scalars.append(_arrays(rule.numbers(group, step), parameter.dtype.compute))
                counter = self.state[parameter].get("step")
                updates.append(Update(parameter, parameter._grad._read(), state, rule, places[key], counter, step))
        return updates

    def _state_of(self, parameter: Tensor, rule: UpdateRule) -> list[Tensor]:
        """The parameter's state tensors, made at its first step."""
        state = self.state[parameter]
        if self.counts_steps and "step" not in state:
            state["step"] = Tensor._wrap(np.zeros((), np.float32))
        for name in rule.state:
            if state.get(name) is None:
                state[name] = Tensor._wrap(np.zeros(parameter.shape, parameter.dtype.numpy))
        return [state[name] for name in rule.state]

    def _run(self, updates: list[Update], scalars: list[dict[str, Array]], *, compiled: bool) -> None:
        if compiled and self._run_compiled(updates, scalars):
            return
        results = [_run_eager(update, scalars[update.numbers]) for update in updates]
        for update, outputs in zip(updates, results, strict=True):
            update.write(outputs)

    def _run_compiled(self, updates: list[Update], scalars: list[dict[str, Array]]) -> bool:
        """Run all updates in one native call. False if that cannot be compiled and no group insists."""
        layout = [(update.rule, update.parameter, update.numbers) for update in updates]
        try:
            call = self._fused.get(layout, scalars)
        except BackendError as error:
            if any(group["fused"] for group in self.param_groups):
                raise
            reason = str(error).partition("\n")[0]
            warn_once("optim.fused", f"{type(self).__name__} runs op by op, not compiled: {reason}")
            return False
        places = [place for update in updates for place in update.destinations()]  # before anything else refers to them
        inputs = [array for update in updates for array in update.arrays()]
        outputs = call(inputs + [number for numbers in scalars for number in numbers.values()], places)
        start = 0
        for update in updates:
            end = start + 1 + len(update.state)
            update.write(outputs[start:end])
            start = end
        return True


def _arrays(numbers: dict[str, float], dtype: DType) -> dict[str, Array]:
    return {name: np.array(number, dtype.numpy) for name, number in numbers.items()}


def _run_eager(update: Update, scalars: dict[str, Array]) -> list[Array]:
    parameter, gradient, *state = update.arrays()
    return apply_rule(update.rule, parameter, gradient, dict(zip(update.rule.state, state, strict=True)), scalars)
