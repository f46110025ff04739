"""N ranks against one rank: the average of the ranks' gradients against those of the joined batch, run by one alone.

In: the float64 case of each rank, and the reduced gradients. Out: `JoinedBatch`. Inputs are joined along dimension 0 in
rank order, unless the caller says what the joined batch is: then each rank's part must be what this rank was given, and
any difference is a failure. A loss that closes over its targets is computed of each rank's rows, by that rank
(closing.py). Otherwise a difference that the model itself makes (the float64 average differs from the
float64 joined batch: BatchNorm's statistics, a loss that is a sum, parts of unequal size) is marked, not failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collectives import Communicator
from compiler_core.ops.registry import Array
from compiler_core.tensor.making.creation import leaf
from compiler_core.tensor.making.random_state import set_shard
from compiler_core.tensor.tensor import Tensor
from distcompile.parity.case import LOSS, Case, average, gradients, widened
from distcompile.parity.closing import REMEDY, CannotCutError, of_own_rows
from distcompile.parity.judge import Tolerance, error_of
from distcompile.parity.report import Gradients

EXACT = 1e-9  # two float64 gradients this close are the same but for the order of sums


@dataclass(frozen=True, slots=True)
class JoinedBatch:
    """error: of the reduced compiled gradients against the joined batch's. model_error: of the float64 average."""

    error: float
    model_error: float
    failure: str
    note: str

    @property
    def word(self) -> str:
        """The verdict in a word."""
        return "fails" if self.failure else "marked" if self.note else "holds"

    def summary(self) -> str:
        """One line."""
        if self.failure:
            return f"joined batch: {self.failure}"
        if self.note:
            return f"joined batch: not judged ({self.note})"
        return f"joined batch: one rank alone gives the same gradients (error {self.error:.1e})"


def join(inputs: Sequence[Any], communicator: Communicator) -> tuple[tuple[Any, ...] | None, str]:
    """All ranks' inputs one after the other; or None, and why they cannot be joined."""
    mine = [x._array("parity") if isinstance(x, Tensor) else x for x in inputs]
    joined: list[Any] = []
    for place, parts in enumerate(zip(*communicator.all_gather_object(mine), strict=True)):
        if not isinstance(parts[0], np.ndarray):
            if any(repr(part) != repr(parts[0]) for part in parts):
                return None, f"input {place} is no tensor, and differs between ranks"
            joined.append(inputs[place])
        elif parts[0].ndim == 0 or any(part.shape[1:] != parts[0].shape[1:] for part in parts):
            return None, f"input {place} has shapes {[list(part.shape) for part in parts]}"
        else:
            joined.append(leaf(np.concatenate(parts)).to(inputs[place].device))
    return tuple(joined), ""


def check_joined(
    case: Case,
    given: tuple[Any, ...] | None,
    averaged: Gradients,
    reduced: Gradients,
    communicator: Communicator,
    tolerance: Tolerance,
) -> JoinedBatch:
    """Judge `reduced`. case: this rank's, in float64. given: the joined inputs, if the caller knows them."""
    joined, why = join(case.inputs, communicator)
    if given is not None:
        wrong = _foreign_parts(given, joined)
        if wrong:
            return JoinedBatch(np.inf, np.inf, wrong, "")
        joined = tuple(map(widened, given))
    if joined is None:
        return JoinedBatch(0.0, 0.0, "", why)
    holds = communicator.all_gather_object(case.loss_holds_tensors)
    try:
        whole = _of_parts(case, joined, communicator) if any(holds) else _of_whole(replace(case, inputs=joined))
    except CannotCutError:
        return JoinedBatch(0.0, 0.0, "", f"the loss closes over tensors, and the output has no rows to cut: {REMEDY}")
    model_error = _largest(averaged, whole)
    error = _largest(reduced, whole)
    if given is None and model_error > EXACT:
        return JoinedBatch(error, model_error, "", _why_separate(averaged, whole, communicator.world_size, model_error))
    dtypes = [g.dtype for name, g in reduced.items() if g is not None and name != LOSS]
    limit = max((tolerance.limit(tolerance.ulps * 1e-7, dtype) for dtype in dtypes), default=0.0)
    failed = error > limit
    text = f"{_worst(reduced, whole)} is {error:.2e} from that of one rank on the joined batch (> {limit:.2e})"
    return JoinedBatch(error, model_error, text if failed else "", "")


def _of_whole(case: Case) -> Gradients:
    """Of one rank alone."""
    with set_shard(0):
        return gradients(case, lambda module: module)


def _of_parts(case: Case, joined: tuple[Any, ...], communicator: Communicator) -> Gradients:
    """The same where the loss holds what only its rank has: the average over the ranks' rows of one output."""
    sizes = communicator.all_gather_object(_rows(case.inputs))
    start = sum(sizes[: communicator.rank])
    rows = start, start + sizes[communicator.rank]
    loss = of_own_rows(case.loss, case.inputs, rows, sum(sizes))
    return average(_of_whole(replace(case, inputs=joined, loss=loss)), communicator)


def _rows(inputs: Sequence[Any]) -> int:
    return next((int(x.shape[0]) for x in inputs if isinstance(x, Tensor) and x.ndim), 0)


def _foreign_parts(given: Sequence[Any], joined: Sequence[Any] | None) -> str:
    """Where what the ranks were given is not what the caller calls the joined batch."""
    if joined is None:
        return "the ranks' inputs cannot be joined, but a joined batch was given"
    for place, (mine, theirs) in enumerate(zip(given, joined, strict=True)):
        if isinstance(theirs, Tensor):
            a, b = widened(mine)._array("parity"), theirs._array("parity")
            if a.shape != b.shape:
                return f"input {place} of the joined batch is {list(a.shape)}, the ranks' parts make {list(b.shape)}"
            rows = np.flatnonzero((a != b).reshape(len(a), -1).any(axis=1))
            if rows.size:
                return f"input {place}: row {rows[0]} of the joined batch is not what its rank was given"
    return ""


def _largest(some: Gradients, whole: Gradients) -> float:
    return max((_error(some, whole, name) for name in whole if name != LOSS), default=0.0)


def _worst(some: Gradients, whole: Gradients) -> str:
    return max((name for name in whole if name != LOSS), key=lambda name: _error(some, whole, name))


def _error(some: Gradients, whole: Gradients, name: str) -> float:
    mine, theirs = some.get(name), whole[name]
    if mine is None or theirs is None:
        return 0.0 if mine is theirs else float("inf")
    return error_of(mine, theirs)


def _why_separate(averaged: Gradients, whole: Gradients, world_size: int, error: float) -> str:
    scaled: dict[str, Array | None] = {n: None if g is None else g * world_size for n, g in averaged.items()}
    if _largest(scaled, whole) <= EXACT:
        return (
            "the loss is a sum over the batch, so the average over ranks is 1/world_size of the joined batch's gradient"
        )
    return f"the model is not separable over the batch: in float64 already the two are {error:.1e} apart"
