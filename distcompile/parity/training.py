"""Many steps with the optimizer: the parameters after each step, compiled DDP against eager DDP and a float64 loop.

In: a `Case`, how many steps, how to make the optimizer. Out: `Training`: the first step and parameter that is off.
The reference shares nothing with the reducers: local float64 backward, gradients averaged in rank order over the object
channel, buffers taken from rank 0, then the optimizer. Step k runs with seed + k. The judge is the one of gradients,
with eager as the yardstick, so that the optimizer's amplification of rounding counts for both alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from collectives import Communicator
from compiler_core.backend import Backend, GraphCompiler
from compiler_core.capture import compile
from compiler_core.ops.registry import Array
from compiler_core.tensor.making.creation import leaf
from compiler_core.tensor.tensor import Tensor
from distcompile.nn.module import Module
from distcompile.optim import SGD
from distcompile.optim.optimizer import Optimizer
from distcompile.parity.case import Case, Wrap, copy_of, in_float64
from distcompile.parity.judge import Comparison, Tolerance, judge

State = dict[str, Array]
MakeOptimizer = Callable[[Iterable[Tensor]], Optimizer]


def default_optimizer(parameters: Iterable[Tensor]) -> Optimizer:
    """SGD with momentum: it keeps state, and does not turn rounding into signs as Adam does where gradients vanish."""
    return SGD(parameters, lr=1e-2, momentum=0.9)


@dataclass(frozen=True, slots=True)
class Training:
    """errors: of the compiled parameters after each step, the largest. failure: the first step and parameter off."""

    steps: int
    errors: tuple[float, ...]
    eager_errors: tuple[float, ...]
    failure: str

    def summary(self) -> str:
        """One line."""
        if self.failure:
            return f"training: {self.failure}"
        last = f"error {self.errors[-1]:.1e}, eager {self.eager_errors[-1]:.1e}" if self.errors else ""
        return f"training: parameters and buffers equal after each of {self.steps} steps ({last})"


def check_training(
    case: Case,
    parallel: Wrap,
    communicator: Communicator,
    *,
    backend: str | Backend | GraphCompiler,
    steps: int,
    make_optimizer: MakeOptimizer | None,
    tolerance: Tolerance,
    broadcast_buffers: bool,
) -> Training:
    """Train three copies side by side. parallel: wraps a module in DDP. Collective."""
    make = make_optimizer or default_optimizer
    reference = _reference(in_float64(case), communicator, make, broadcast_buffers)
    eager = _trained(case, parallel, make)
    compiled = _trained(case, lambda module: compile(parallel(module), backend=backend), make)
    errors, eager_errors, failure = [], [], ""
    for step, (ref, theirs, mine) in enumerate(zip(reference, eager, compiled)):
        judged = {name: judge(f"after step {step}", ref[name], theirs[name], mine[name], tolerance) for name in ref}
        errors.append(max(one.compiled_error for one in judged.values()))
        eager_errors.append(max(one.eager_error for one in judged.values()))
        failure = failure or _first_failure(judged)
        if step + 1 == steps:
            break
    return Training(steps, tuple(errors), tuple(eager_errors), failure)


def _first_failure(judged: dict[str, Comparison]) -> str:
    return next((f"{name} {one.failure}" for name, one in judged.items() if one.failure), "")


def _trained(case: Case, wrap: Wrap, make: MakeOptimizer) -> Iterator[State]:
    """The state after each step of a copy, trained as a user would."""
    module = copy_of(case.module)
    run: Any = wrap(module)
    optimizer = make(module.parameters())
    step = 0
    while True:
        optimizer.zero_grad()
        case.run(run, case.seed + step).backward()
        optimizer.step()
        yield state_of(module)
        step += 1


def _reference(case: Case, communicator: Communicator, make: MakeOptimizer, broadcast_buffers: bool) -> Iterator[State]:
    module = copy_of(case.module)
    optimizer = make(module.parameters())
    step = 0
    while True:
        if broadcast_buffers:
            _take_buffers(module, communicator)
        optimizer.zero_grad()
        case.run(module, case.seed + step).backward()
        _average_gradients(module, communicator)
        optimizer.step()
        yield state_of(module)
        step += 1


def _take_buffers(module: Module, communicator: Communicator) -> None:
    arrays = communicator.broadcast_object([buffer._array("parity") for buffer in module.buffers()])
    for buffer, array in zip(module.buffers(), arrays, strict=True):
        buffer._cell.write(buffer.device.put(np.array(array)))


def _average_gradients(module: Module, communicator: Communicator) -> None:
    mine = [None if p.grad is None else p.grad._array("parity") for p in module.parameters()]
    everyones = communicator.all_gather_object(mine)
    for place, parameter in enumerate(module.parameters()):
        arrays = [array for one in everyones if (array := one[place]) is not None]
        if arrays:
            total: Array = sum(arrays[1:], arrays[0])
            parameter.grad = leaf(np.asarray(total / communicator.world_size)).to(parameter.device)


def state_of(module: Module) -> State:
    """Copies of parameters and floating buffers."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: t._array("parity").copy() for name, t in tensors.items() if t.dtype.is_floating_point}
