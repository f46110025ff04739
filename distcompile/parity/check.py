"""`check`: all judges of gradient parity on one module, and what they found.

In: a module, its inputs on this rank, and a loss. Out: `ParityReport`, the same verdict on all ranks.
Method: copies of the module run the same step with the same seed: float64 eager (the reference), eager, compiled; then
DDP eager and DDP compiled. Reduced gradients are held to averages in rank order of the local ones (float64: the
reference; eager: the yardstick), so a reducer that eager and compiled DDP share is judged too. The float64 reference
is held to finite differences, which share no rule with it. Every run is done twice, and the second is judged, so that
reused buffers and cached code are what is tested.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collectives import Communicator
from compiler_core.backend import Backend, GraphCompiler, find_backend
from compiler_core.capture import compile
from compiler_core.errors import ArgumentError
from compiler_core.ops.registry import Array
from compiler_core.tensor.making.random_state import set_shard
from distcompile import distributed
from distcompile.ddp import DistributedDataParallel
from distcompile.nn.module import Module
from distcompile.parity.bisect import bisect
from distcompile.parity.case import (
    LOSS,
    Case,
    Loss,
    Wrap,
    alone,
    average,
    default_loss,
    gradients,
    in_float64,
    is_equal_on_all_ranks,
    of_rank_0,
)
from distcompile.parity.closing import closes_over_tensors
from distcompile.parity.differences import check_differences
from distcompile.parity.errors import ParityError, ParityTargetError
from distcompile.parity.joined import JoinedBatch, check_joined
from distcompile.parity.judge import Comparison, Tolerance
from distcompile.parity.report import (
    Differences,
    Finding,
    Gradients,
    ParityReport,
    ParityRow,
    compare,
    merge_failures,
)
from distcompile.parity.rules import wrong_rules
from distcompile.parity.training import MakeOptimizer, Training, check_training
from distcompile.showing.progress import Say, nothing


@dataclass(frozen=True, slots=True)
class Judges:
    """Which judges sit, beside those that always do.

    samples: elements a parameter for finite differences, beside one direction; None: no differences. steps: of training
    with `optimizer` (parameters -> Optimizer; None: SGD with momentum); 0: none. joined: whether N ranks are compared
    with one; joined_inputs: the joined batch, if it is known. bisect: look for the origin of a failure.
    limit_s: seconds for differences, and for the bisection.
    """

    samples: int | None = 2
    steps: int = 0
    optimizer: MakeOptimizer | None = None
    joined: bool = True
    joined_inputs: tuple[Any, ...] | None = None
    bisect: bool = False
    limit_s: float = 60.0

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ArgumentError("parity: steps of training are counted from 0", got=str(self.steps))


def check(
    module: Module,
    *inputs: Any,
    loss: Loss | None = None,
    backend: str | Backend | GraphCompiler = "codegen",
    group: Communicator | None = None,
    seed: int = 0,
    tolerance: Tolerance | None = None,
    raise_on_failure: bool = False,
    judges: Judges | None = None,
    say: Say = nothing,
    **ddp_options: Any,
) -> ParityReport:
    """Compare the gradients of `module(*inputs)`: compiled, eager, float64, finite differences, DDP, the joined batch.

    Collective over `group`: every rank calls it. The module itself is left as it is.

    Args:
        module: wrapped in DistributedDataParallel or not. All ranks start from rank 0's parameters.
        inputs: this rank's part of the batch.
        loss: (output, *inputs) -> scalar; it may close over tensors, as this rank's targets are, but not over the
            module. None: the first scalar among the outputs, else the mean square of the first.
        backend: what `compile` is given.
        group: None: the process group, or this process alone where there is none.
        seed: of random draws, the same in every run.
        tolerance: how far compiled gradients may be off; see `Tolerance`.
        raise_on_failure: raise ParityError, on all ranks, instead of returning a report that says so.
        judges: which judges sit; see `Judges`.
        say: is told what is being judged, and the share of the work behind it (`showing/progress.py` has a bar).
        ddp_options: for DistributedDataParallel.

    Raises: ParityError, ParityTargetError (a module or loss that cannot be judged).

    Example (`print(report)` shows the table):
        >>> from distcompile import parity
        >>> report = parity.check(nn.Linear(3, 1), torch.ones(2, 3))
        >>> report.ok, [row.parameter for row in report.rows]
        (True, ['(loss)', 'weight', 'bias'])
    """
    if isinstance(module, DistributedDataParallel):
        module = module.module
    _check_inputs(inputs)
    communicator = group or (distributed.group_or_default(None) if distributed.is_initialized() else alone())
    holds = closes_over_tensors(loss or default_loss, module)
    module = of_rank_0(module, communicator)
    case = Case(module, inputs, loss or default_loss, seed, loss_holds_tensors=holds)
    with set_shard(communicator.rank):
        run = _Check(case, communicator, backend, tolerance or Tolerance(), judges or Judges(), ddp_options, say)
        report = run.report()
    shown = merge_failures(communicator.all_gather_object(report))
    if raise_on_failure and not shown.ok:
        raise ParityError(
            shown.verdict(),
            where=f"rank {shown.rank}",
            remedy="distcompile parity TARGET --bisect, or judges=Judges(bisect=True), names the op",
        )
    return report if shown.ok else shown


def _check_inputs(inputs: tuple[Any, ...]) -> None:
    """Floating NumPy arrays are refused: the reference takes the module's inputs in float64, and is given Tensors."""
    for place, value in enumerate(inputs):
        if isinstance(value, np.ndarray) and value.dtype.kind in "fc":
            raise ParityTargetError(
                f"input {place} is a NumPy array",
                expected="Tensors",
                got=f"{value.dtype}[{', '.join(map(str, value.shape))}]",
                remedy="distcompile.from_numpy(array)",
            )


_RUNS = ("eager", "float64 reference", "compiled", "eager DDP", "compiled DDP")


def _is_joined(judges: Judges, communicator: Communicator) -> bool:
    return judges.joined and communicator.world_size > 1


class _Check:
    """One check on one rank. Everything that it runs in DDP is collective, whatever earlier judges found."""

    def __init__(
        self,
        case: Case,
        communicator: Communicator,
        backend: str | Backend | GraphCompiler,
        tolerance: Tolerance,
        judges: Judges,
        ddp_options: dict[str, Any],
        say: Say,
    ) -> None:
        self.case, self.communicator, self.backend = case, communicator, backend
        self.tolerance, self.judges, self.ddp_options = tolerance, judges, ddp_options
        self.say, self.parts_done = say, 0
        sampled = 0 if self.judges.samples is None else sum(1 for _ in case.module.parameters())
        self.parts = len(_RUNS) + sampled + _is_joined(self.judges, communicator) + bool(self.judges.steps)

    def _begin(self, what: str) -> None:
        """Say what is judged now; each part counts as one, whatever it takes."""
        self.say(f"parity: {what}", self.parts_done / self.parts)
        self.parts_done += 1

    def _run(self, what: str, case: Case, wrap: Wrap) -> dict[str, Array | None]:
        self._begin(what)
        return gradients(case, wrap)

    def _eager(self, what: str) -> dict[str, Array | None]:
        """The module's own gradients: what fails here is the target's."""
        try:
            return self._run(what, self.case, lambda module: module)
        except ParityTargetError:
            raise
        except Exception as error:
            raise ParityTargetError(
                "the module and its loss cannot be run and differentiated, uncompiled as they are",
                got=f"{type(error).__name__}: {error}".splitlines()[0],
            ) from error

    def parallel(self, module: Module) -> Module:
        """The module in DDP."""
        return DistributedDataParallel(module, process_group=self.communicator, **self.ddp_options)

    def report(self) -> ParityReport:
        """All judges."""
        case, backend = self.case, self.backend
        alone, float64, compiled_alone, eager_ddp, compiled_ddp = _RUNS
        eager = self._eager(alone)  # first: what the module refuses, it says in its own dtypes
        self.wide = in_float64(case)
        reference = self._run(float64, self.wide, lambda module: module)
        compiled = self._run(compiled_alone, case, lambda module: compile(module, backend=backend))
        averaged = average(reference, self.communicator)
        yardstick = average(eager, self.communicator)
        reduced_eager = self._run(eager_ddp, case, self.parallel)
        reduced = self._run(compiled_ddp, case, lambda module: compile(self.parallel(module), backend=backend))
        differences = self._differences(reference)
        none = Comparison(0.0, 0.0, "")
        rows = [ParityRow(LOSS, 1, compare("loss", LOSS, reference, eager, compiled, self.tolerance), none, True)]
        for name, parameter in case.module.named_parameters():
            local = compare("local", name, reference, eager, compiled, self.tolerance)
            in_ddp = compare("reduced", name, averaged, yardstick, reduced, self.tolerance)
            in_eager = compare("reduced, eager DDP", name, averaged, yardstick, reduced_eager, self.tolerance)
            failure = in_ddp.failure or in_eager.failure
            in_ddp = replace(in_ddp, eager_error=in_eager.compiled_error, failure=failure)
            equal = is_equal_on_all_ranks(reduced.get(name), self.communicator)
            rows.append(ParityRow(name, parameter.numel(), local, in_ddp, equal, differences.get(name)))
        return ParityReport(
            backend if isinstance(backend, str) else find_backend(backend).name,
            self.communicator.rank,
            self.communicator.world_size,
            tuple(rows),
            self._joined(averaged, reduced),
            self._training(),
            self._findings(rows, averaged, yardstick, reduced_eager),
        )

    def _differences(self, reference: Gradients) -> dict[str, Differences]:
        if self.judges.samples is None:
            return {}
        return check_differences(
            self.wide,
            reference,
            samples=self.judges.samples,
            limit_s=self.judges.limit_s,
            say=lambda name: self._begin(f"differences of {name}"),
        )

    def _joined(self, averaged: Gradients, reduced: Gradients) -> JoinedBatch | None:
        if not _is_joined(self.judges, self.communicator):
            return None
        self._begin("one rank on the joined batch")
        given = self.judges.joined_inputs
        return check_joined(self.wide, given, averaged, reduced, self.communicator, self.tolerance)

    def _training(self) -> Training | None:
        if not self.judges.steps:
            return None
        self._begin(f"{self.judges.steps} training steps")
        return check_training(
            self.case,
            self.parallel,
            self.communicator,
            backend=self.backend,
            steps=self.judges.steps,
            make_optimizer=self.judges.optimizer,
            tolerance=self.tolerance,
            broadcast_buffers=self._sends_buffers(),
        )

    def _sends_buffers(self) -> bool:
        told = self.ddp_options.get("forward_sync_buffers")
        return self.ddp_options.get("broadcast_buffers") is not False if told is None else bool(told)

    # -- where a failure comes from

    def _findings(
        self, rows: list[ParityRow], averaged: Gradients, yardstick: Gradients, reduced_eager: Gradients
    ) -> tuple[Finding, ...]:
        """Collective: every rank bisects in DDP if one of them has to."""
        if not self.judges.bisect:
            return ()
        local = any(row.local.failure for row in rows)
        sampled = any(row.differences is not None and row.differences.failure for row in rows)
        reduced = any(row.reduced.failure or not row.ranks_equal for row in rows)
        everyones = self.communicator.all_gather_object((local, sampled, reduced))
        found: list[Finding | None] = []
        if sampled:
            found += wrong_rules(self.wide, limit_s=self.judges.limit_s)
        if local:
            found.append(bisect(self.case, self.backend, self.tolerance, limit_s=self.judges.limit_s))
        if not any(one[0] for one in everyones) and any(one[2] for one in everyones):
            found.append(self._in_reduction(rows, averaged, yardstick, reduced_eager))
        return tuple(finding for finding in found if finding is not None)

    def _in_reduction(
        self, rows: list[ParityRow], averaged: Gradients, yardstick: Gradients, eager: Gradients
    ) -> Finding | None:
        """Local gradients are right on all ranks, reduced ones are not."""
        wrong = next((row.parameter for row in rows if row.reduced.failure or not row.ranks_equal), "")
        both = compare("reduced", wrong, averaged, yardstick, eager, self.tolerance).failure if wrong else ""
        inside = bisect(self.case, self.backend, self.tolerance, wrap=self.parallel, limit_s=self.judges.limit_s)
        if inside is not None and inside.op:
            return inside
        if not wrong:
            return None
        if both:
            return Finding("reduction", "the reduction itself", "", "", f"eager DDP is wrong too: {wrong} ({both})")
        text = f"{wrong} is right on every rank alone, and in eager DDP: look at segments, buckets and hooks"
        return Finding("reduction", "the compiled reducer", "", "", text)
