"""Optimizers that are an update rule per parameter (SGD, Adam, RMSprop, ...), run in one native call or op by op.

In: gradients in `.grad`. Out: new values in the parameters' and the state's cells, whose versions rise.

A step gathers one `Update` per parameter that has a gradient, runs them all (compiled: `fused.py`, one native call;
eager: the same rule on arrays), then puts the results into the cells. Nothing is written before everything is computed,
unless parameters share memory (`p.data = q.data`): then they are updated one after the other, as in torch.
A gradient that is still on its way (`tensor/memory/fence.py`) does not hold the step up: its update is put off until it
is there (`deferred.py`), with the numbers of this step.
A compiled update writes over values that nobody else can see (`tensor/memory/ownership.py`), else into fresh arrays.
The step runs once per training step over every parameter: its Python is kept to a few microseconds a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import repeat
from operator import is_
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from compiler_core.breaking import between_graphs, breaks_graph
from compiler_core.capture.held_numbers import is_captured, whole_held
from compiler_core.cuda import is_array as is_cuda_array
from compiler_core.cuda import lone
from compiler_core.device import Device, device_of
from compiler_core.dtype import DType, of
from compiler_core.errors import AutogradError, BackendError, DeviceError
from compiler_core.log import warn_once
from compiler_core.ops.registry import Array
from compiler_core.overrides.state import other_layouts
from compiler_core.runtime.cuda import driver
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.memory.cell import Cell, DeviceCell
from compiler_core.tensor.memory.fence import Fence
from compiler_core.tensor.memory.ownership import destinations
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import NotSupportedError
from distcompile.optim.checks import check_usual
from distcompile.optim.optimizer import Closure, Group, Optimizer, run_closure
from distcompile.optim.update_rules.deferred import defer, deferrable, settle_fences
from distcompile.optim.update_rules.fused import FusedUpdates
from distcompile.optim.update_rules.in_graph import (
    has_sparse_gradients,
    is_behind_travels,
    is_for_graph,
    makes_state,
    step_in_graph,
)
from distcompile.optim.update_rules.rule import UpdateRule
from distcompile.optim.update_rules.update import Update, inputs_of, run_eager_update

if TYPE_CHECKING:
    from compiler_core.backend import Executable


class RuleOptimizer(Optimizer):
    """Base of SGD, Adam and their kin: subclasses say the rule of a group and the number of a step.

    torch's `foreach` and `capturable` are taken and make no difference. Parameters of several devices are updated by a
    call for each.
    """

    formula: ClassVar[type[Any]]  # the rule's class, where it has no fields but those of `Decaying`
    counts_steps: ClassVar[bool] = False  # whether the state has a "step" tensor, as torch's Adam
    scalar_state: ClassVar[tuple[str, ...]] = ()  # the f32[] tensors that the state has beside "step"
    update_sparse: Callable[..., None] | None = None  # (group, parameter, its sparse gradient), where there is one
    refusal: ClassVar[str] = ""  # of sparse gradients, in words of its own
    number_dtype: ClassVar[DType | None] = None  # of the rule's scalars; None: what the parameter is computed in

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        check_usual(defaults)
        self._fused = FusedUpdates()
        if defaults.get("differentiable"):
            raise NotSupportedError("differentiable=True is not offered", remedy="write the update as tensor ops")
        self._counts: dict[int, Array] = {}  # step -> the array that all "step" tensors then share
        super().__init__(params, defaults)

    def rule(self, group: Group) -> UpdateRule:
        """The rule for a group's present options."""
        rule: UpdateRule = self.formula.of(group)
        return rule

    def rule_of(self, rule: UpdateRule, parameter: Tensor) -> UpdateRule:
        """The rule for one of the parameters of a group with this rule."""
        return rule

    def initial(self, name: str, group: Group) -> float:
        """What a parameter's state `name` is filled with at first."""
        return 0.0

    def numbers(
        self, rule: UpdateRule, group: Group, step: int, scalars: tuple[float, ...]
    ) -> tuple[dict[str, Any], tuple[float, ...]]:
        """The rule's scalars for step `step`, and what the state's `scalar_state` becomes."""
        return rule.numbers(group, step), ()

    def is_made_ahead(self, group: Group) -> bool:
        """Whether a step may find the state that its parameters' first step makes: it starts from that in any case."""
        return True

    def step_number(self, state: dict[str, Any]) -> int:
        """The number of the step about to be made for a parameter with this state; 1 is the first."""
        return whole_held(state["step"]) + 1 if "step" in state else 1

    def step(self, closure: Closure | None = None) -> Any:
        """Update every parameter that has a gradient. closure: recomputes the loss, which is returned.

        In a graph that is captured it is a part of that (`in_graph.py`).
        Raises: BackendError if a group has fused=True and the update cannot be compiled.
        """
        loss = run_closure(closure)
        if is_captured() and is_behind_travels(self):
            self._update_between()
        elif is_captured() and is_for_graph(self):
            step_in_graph(self)
        elif is_captured() and has_sparse_gradients(self):
            self._update_rows()
        else:
            self._update()
        return loss

    def may_step_unless(self) -> bool:
        """Whether `step_unless` may be part of the graph that is captured: hooks on a step would run all the same."""
        is_own = type(self).step is RuleOptimizer.step and not (self._pre_hooks or self._post_hooks)
        return is_captured() and is_own and is_for_graph(self) and not makes_state(self)

    def step_unless(self, found: Tensor) -> None:
        """`step()` in a graph, that leaves everything as it is where `found`, bool[], holds."""
        step_in_graph(self, found)
        self.has_stepped = True

    @between_graphs("optimizer.step() does not wait for gradients that are on their way")
    def _update_between(self) -> None:
        self._update()

    @breaks_graph("optimizer.step() takes a sparse gradient, which no graph holds", "step outside of what is compiled")
    def _update_rows(self) -> None:
        self._update()

    @breaks_graph("optimizer.step() cannot be traced", "compile the loss, and step outside of it")
    def _update(self) -> None:
        """Update by itself."""
        if other_layouts:
            self._update_sparse()
        for compiled in sorted({group.get("fused") is not False for group in self.param_groups}):
            scalars: list[dict[str, Array]] = []
            updates = self._gather(compiled, scalars)
            if updates:
                self._run(updates, scalars, compiled=compiled)

    def _gather(self, compiled: bool, scalars: list[dict[str, Array]]) -> list[Update]:
        """The updates of the groups that are (or are not) to be compiled; appends their scalar sets to `scalars`."""
        updates: list[Update] = []
        for group in self.param_groups:
            if (group.get("fused") is not False) is not compiled:
                continue
            rule = of_group = self.rule(group)
            sets: dict[Hashable, tuple[int, tuple[Array, ...]]] = {}  # one set of numbers per step and dtype
            for parameter in group["params"]:
                if parameter._grad is None or type(parameter._grad) in other_layouts:
                    continue
                rule = self.rule_of(of_group, parameter)
                names = rule.state
                keeps = self.counts_steps or self.scalar_state or names  # else no entry, as in torch
                state = self.state[parameter] if keeps else {}
                step = self.step_number(state)  # before the state is made: it tells the first step
                # by identity: a Tensor that is asked whether it equals None asks who overrides
                lacks = True in map(is_, map(state.get, (*names, *self.scalar_state)), repeat(None))
                if lacks or (self.counts_steps and "step" not in state):
                    self._make_state(parameter, state, rule, group)
                cells = [parameter._cell, *[state[name]._cell for name in names]]
                kept: list[Cell] = []
                key: tuple[Any, ...] = (step, cells[0].raw.dtype)
                if self.scalar_state:
                    kept = [state[name]._cell for name in self.scalar_state]
                    key = (*key, *[float(cell.value) for cell in kept])
                if key not in sets:
                    numbers, new = self.numbers(rule, group, step, key[2:])
                    sets[key] = (len(scalars), tuple(np.array(number, np.float32) for number in new))
                    scalars.append(_arrays(numbers, self.number_dtype or of(key[1]).compute.real))
                place, values = sets[key]
                counters = list(zip(kept, values, strict=True))
                if self.counts_steps:
                    counters.append((state["step"]._cell, self._count(step)))
                slope = parameter._grad._cell
                is_there = type(slope) is DeviceCell  # which waits for nothing
                fence = None if rule.is_whole or is_there else deferrable(slope, cells)
                gradient = slope.raw if is_there or fence is not None else slope.current()
                updates.append(Update(rule, cells, gradient, place, counters, fence))
        return updates

    def _update_sparse(self) -> None:
        """Update the parameters whose gradients are sparse, after a look at all of them."""
        found = [
            (group, parameter)
            for group in self.param_groups
            for parameter in group["params"]
            if type(parameter._grad) in other_layouts
        ]
        if found and self.update_sparse is None:
            raise AutogradError(self.refusal or f"{type(self).__name__} does not support sparse gradients")
        if any(group.get("fused") for group, _ in found):
            raise AutogradError("`fused` does not support sparse gradients", remedy="fused=None")
        with no_grad():
            for group, parameter in found:
                assert self.update_sparse is not None
                self.update_sparse(group, parameter, parameter._grad)

    def _make_state(self, parameter: Tensor, state: dict[str, Any], rule: UpdateRule, group: Group) -> None:
        """Make the tensors that a parameter's first step needs."""
        if self.counts_steps and "step" not in state:
            state["step"] = Tensor._wrap(np.zeros((), np.float32))
        for name in self.scalar_state:
            if name not in state:
                state[name] = Tensor._wrap(np.array(self.initial(name, group), np.float32))
        for name in rule.state:
            if state.get(name) is None:
                shape = rule.state_shape(name, parameter.shape)
                state[name] = Tensor._wrap(_filled(parameter, shape, self.initial(name, group)))

    def _count(self, step: int) -> Array:
        if step not in self._counts:
            self._counts = {k: v for k, v in self._counts.items() if k == step - 1}
            self._counts[step] = np.array(step, np.float32)
        return self._counts[step]

    def _run(self, updates: list[Update], scalars: list[dict[str, Array]], *, compiled: bool) -> None:
        roots = {cell if type(cell := update.cells[0]) is DeviceCell else cell.root for update in updates}
        if len(roots) < len(updates):
            settle_fences([update.fence for update in updates])
            for update in updates:  # parameters that share memory: each update reads what the one before it wrote
                update.write(run_eager_update(update, scalars))
            return
        later = [update for update in updates if update.fence is not None]
        if later:
            self._defer(later, scalars, compiled=compiled)
            updates = [update for update in updates if update.fence is None]
        left = [part for part in _by_device(updates) if not (compiled and self._run_compiled(part, scalars))]
        results = [(update, run_eager_update(update, scalars)) for part in left for update in part]
        for update, outputs in results:
            update.write(outputs)
        settle_fences([update.fence for update in later if update.fence is not None and update.fence.is_brief])

    def _compile(
        self, groups: Sequence[Sequence[Update]], scalars: list[dict[str, Array]]
    ) -> Sequence[Executable] | None:
        """A native call for each group of updates. None if that cannot be compiled and no parameter group insists."""
        try:
            if is_cuda_array(groups[0][0].cells[0].raw):
                driver.function("cuLaunchKernel")  # before anything is compiled: is there one?
            return self._fused.get([[(u.rule, u.cells[0].raw, u.numbers) for u in group] for group in groups], scalars)
        except (BackendError, DeviceError) as error:
            if any(group.get("fused") for group in self.param_groups):
                raise
            reason = str(error).partition("\n")[0]
            warn_once("optim.fused", f"{type(self).__name__} runs op by op, not compiled: {reason}")
            return None

    def _defer(self, updates: Sequence[Update], scalars: list[dict[str, Array]], *, compiled: bool) -> None:
        """Put updates off until their gradients are there, those of one fence together."""
        groups: dict[Fence, list[Update]] = {}
        for update in updates:
            assert update.fence is not None
            groups.setdefault(update.fence, []).append(update)
        calls = self._compile(list(groups.values()), scalars) if compiled else None
        for k, (fence, group) in enumerate(groups.items()):
            defer(fence, group, scalars, None if calls is None else calls[k])

    def _run_compiled(self, updates: list[Update], scalars: list[dict[str, Array]]) -> bool:
        """Run all updates in one native call. False if that cannot be compiled and no group insists."""
        calls = self._compile([updates], scalars)
        if calls is None:
            return False
        (call,) = calls
        # before anything else refers to the values
        places = destinations([None if u.rule.is_whole else cell for u in updates for cell in u.cells])
        outputs = call(inputs_of(updates, scalars), places)
        start = 0
        for update in updates:
            end = start + len(update.cells)
            update.write(outputs[start:end])
            start = end
        return True


def _by_device(updates: list[Update]) -> Iterable[list[Update]]:
    """The updates of each device."""
    if {type(update.cells[0].raw) for update in updates} == {lone.array}:
        return [updates]
    parts: dict[Device, list[Update]] = {}
    for update in updates:
        parts.setdefault(device_of(update.cells[0].raw), []).append(update)
    return parts.values()


def _filled(parameter: Tensor, shape: tuple[int, ...], value: float) -> Array:
    """An array of the parameter's dtype, where it is, of one number."""
    place, dtype = parameter.device, parameter.dtype.numpy
    # not zeros() of the host: pages of it fault twice, when they are read and when they are written
    in_host = bool(value) or not place.is_gpu
    made: Array = place.put(np.full(shape, value, dtype)) if in_host else place.zeros(shape, dtype)
    return made


def _arrays(numbers: dict[str, Any], dtype: DType) -> dict[str, Array]:
    return {name: np.array(float(number), dtype.numpy) for name, number in numbers.items()}
