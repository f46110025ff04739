"""Gradient parity: compiled against eager and a float64 reference, local, reduced, and across ranks.

In: a module, its inputs on this rank, and a loss. Out: `ParityReport`, the same verdict on all ranks.
Method: copies of the module run the same step with the same seed: float64 eager (the reference), eager, compiled; then
DDP eager and DDP compiled. The reduced reference is the rank-order average of the local float64 references.
Every run is done twice, and the second is judged, so that reused buffers and cached code are what is tested.
Limits: the module must be copyable, and its randomness must come from the default generator.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collectives import Communicator, ThreadedWorld
from compiler_core import dtype as dtypes
from compiler_core.capture import compile
from compiler_core.ops.registry import Array
from compiler_core.tensor.random import default_generator, fork_rng, set_shard
from compiler_core.tensor.tensor import Tensor
from distcompile import distributed
from distcompile.ddp import DistributedDataParallel
from distcompile.nn.module import Module
from distcompile.parity.errors import ParityError, ParityTargetError
from distcompile.parity.report import (
    Comparison,
    Gradients,
    ParityReport,
    ParityRow,
    Tolerance,
    compare,
    merge_failures,
)

LOSS = "(loss)"
Loss = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class Case:
    """What is checked. loss(output, *inputs) -> scalar."""

    module: Module
    inputs: tuple[Any, ...]
    loss: Loss
    seed: int = 0
    repeats: int = 2


def default_loss(output: Any, *inputs: Any) -> Tensor:
    """The first scalar among the module's outputs, else the mean square of the first output."""
    outputs: Sequence[Any] = output if isinstance(output, tuple | list) else (output,)
    tensors = [item for item in outputs if isinstance(item, Tensor)]
    if not tensors:
        raise ParityTargetError("the module returned no Tensor", got=type(output).__name__, remedy="pass loss=")
    for tensor in tensors:
        if tensor.ndim == 0:
            return tensor
    loss: Tensor = (tensors[0] * tensors[0]).mean()
    return loss


def check(
    module: Module,
    *inputs: Any,
    loss: Loss | None = None,
    backend: str = "codegen",
    group: Communicator | None = None,
    seed: int = 0,
    tolerance: Tolerance | None = None,
    raise_on_failure: bool = False,
    **ddp_options: Any,
) -> ParityReport:
    """Compare gradients of `module(*inputs)`; collective over `group` (default: the process group, or one rank alone).

    module: wrapped in DistributedDataParallel or not. inputs: this rank's part of the batch. loss: (output, *inputs) ->
    scalar. ddp_options: for DistributedDataParallel. Raises ParityError on failure if `raise_on_failure`. The module
    itself is left as it is.
    """
    if isinstance(module, DistributedDataParallel):
        module = module.module
    communicator = group or (distributed.group_or_default(None) if distributed.is_initialized() else alone())
    case = Case(module, inputs, loss or default_loss, seed)
    tolerance = tolerance or Tolerance()
    with fork_rng(), set_shard(communicator.rank):
        report = _run(case, communicator, backend, tolerance, ddp_options)
    shown = merge_failures(communicator.all_gather_object(report))
    if raise_on_failure and not shown.ok:
        raise ParityError(
            shown.verdict(),
            where=f"rank {shown.rank}",
            remedy="run the same with backend='aot_eager' to find the stage",
        )
    return report if shown.ok else shown


def alone() -> Communicator:
    """A group of this process only."""
    return ThreadedWorld(1).communicator(0)


def _run(
    case: Case, communicator: Communicator, backend: str, tolerance: Tolerance, ddp_options: dict[str, Any]
) -> ParityReport:
    reference = gradients(in_float64(case), lambda module: module)
    eager = gradients(case, lambda module: module)
    compiled = gradients(case, lambda module: compile(module, backend=backend))

    def parallel(module: Module) -> Module:
        return DistributedDataParallel(module, process_group=communicator, **ddp_options)

    reduced_reference = average(reference, communicator)
    reduced_eager = gradients(case, parallel)
    reduced_compiled = gradients(case, lambda module: compile(parallel(module), backend=backend))
    rows = [_loss_row(reference, eager, compiled, tolerance)]
    for name, parameter in case.module.named_parameters():
        local = compare("local", name, reference, eager, compiled, tolerance)
        reduced = compare("reduced", name, reduced_reference, reduced_eager, reduced_compiled, tolerance)
        equal = is_equal_on_all_ranks(reduced_compiled.get(name), communicator)
        rows.append(ParityRow(name, parameter.numel(), local, reduced, equal))
    return ParityReport(backend, communicator.rank, communicator.world_size, tuple(rows))


def _loss_row(reference: Gradients, eager: Gradients, compiled: Gradients, tolerance: Tolerance) -> ParityRow:
    local = compare("loss", LOSS, reference, eager, compiled, tolerance)
    return ParityRow(LOSS, 1, local, Comparison(0.0, 0.0, ""), ranks_equal=True)


def gradients(case: Case, wrap: Callable[[Module], Any]) -> dict[str, Array | None]:
    """The gradients (and the loss) of a copy of the module, run as `wrap` says, in the last of `repeats` passes."""
    module = copy.deepcopy(case.module)
    run = wrap(module)
    value = np.zeros(())
    for _ in range(case.repeats):
        module.zero_grad()
        default_generator.manual_seed(case.seed)
        loss = case.loss(run(*case.inputs), *case.inputs)
        loss.backward()
        value = loss.detach().numpy()
    found: dict[str, Array | None] = {LOSS: value.copy()}
    for name, parameter in module.named_parameters():
        found[name] = None if parameter.grad is None else parameter.grad.detach().numpy().copy()
    return found


def in_float64(case: Case) -> Case:
    """The case with every floating parameter, buffer and input in float64."""

    def widen(value: Any) -> Any:
        is_floating = isinstance(value, Tensor) and value.dtype.is_floating_point
        return value.detach().to(dtypes.float64) if is_floating else value

    module = copy.deepcopy(case.module).to(dtypes.float64)
    return Case(module, tuple(map(widen, case.inputs)), case.loss, case.seed, case.repeats)


def average(local: Gradients, communicator: Communicator) -> dict[str, Array | None]:
    """The average over ranks of float64 gradients, in rank order."""
    everyones = communicator.all_gather_object(dict(local))
    averaged: dict[str, Array | None] = {}
    for name in local:
        arrays = [gradient for one in everyones if (gradient := one[name]) is not None]
        averaged[name] = sum(arrays[1:], arrays[0]) / communicator.world_size if arrays else None
    return averaged


def is_equal_on_all_ranks(gradient: Array | None, communicator: Communicator) -> bool:
    """Whether all ranks hold the same bits."""
    mine = b"" if gradient is None else hashlib.sha256(gradient.tobytes()).digest()
    return len(set(communicator.all_gather_object(mine))) == 1
