"""The ledger: no training goes on with parameters that differ between ranks where something says that they may.

In: which gradients a backward under no_sync() left on this rank; how often parameters were written to. Out: nothing, or
LedgerError.
A parameter that changed while its gradient was local may have been stepped by this rank alone. That is legal: local
SGD trains so, and averages the parameters itself; gradients may have been thrown away. It does harm only if ranks go on
with different parameters. So a rank says in the next synchronised backward that it may have stepped alone, and then,
and only then, ranks compare their parameters' bits. Likewise after `load_state_dict`, and where the first parameter was
written to more often than by the steps before: each rank may have loaded another file. Then they may differ by what
processors of different kinds make of one step (ROUNDING), and no more.
Limit: a write in the place of a step, or to others than the first parameter, is seen only of `load_state_dict`.
That every gradient is reduced exactly once in a backward is held by `passes.py`, by count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from collectives import Communicator
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.errors import LedgerError, UnusedParameterError
from distcompile.nn.loads import LOADS

ROUNDING = 1e-5  # of a parameter's norm
STEPPED_ALONE = "parameters that changed while their gradients were not reduced: each rank stepped by its own"


class Ledger:
    """What one DDP instance knows of its parameters.

    local: name -> the parameter's stamp when its gradient became local. stamp, writes: of the first parameter, at the
    last synchronised forward, and the most between two. is_written: whether it, or more, was written to otherwise.
    """

    def __init__(self, communicator: Communicator, parameters: Mapping[str, Tensor]) -> None:
        self.communicator = communicator
        self.local: dict[str, int] = {}
        self.first = next(iter(parameters.values()), None)
        self.stamp = _stamp(self.first)
        self.writes, self.loads, self.is_written = 0, LOADS.count, False

    def look(self, parameters: Mapping[str, Tensor]) -> None:
        """A synchronised forward begins: see whether anything but optimizers, as ever, has written to parameters."""
        stamp = _stamp(self.first)
        if stamp - self.stamp > self.writes:
            self.is_written = True
        if LOADS.count != self.loads and LOADS.reached(set(map(id, parameters.values())), self.loads):
            self.is_written = True
        self.writes = max(self.writes, stamp - self.stamp, 1)
        self.stamp, self.loads = stamp, LOADS.count

    def mark_local(self, names: Iterable[str], parameters: Mapping[str, Tensor]) -> None:
        """Gradients were accumulated on this rank only."""
        for name in names:
            self.local.setdefault(name, parameters[name]._cell.root.stamp)

    def forget(self, parameters: Mapping[str, Tensor]) -> None:
        """Other parameters are trained from now on."""
        first = next(iter(parameters.values()), None)
        if first is not self.first:
            self.first, self.stamp = first, _stamp(first)
        self.local = {name: stamp for name, stamp in self.local.items() if name in parameters}

    def may_have_stepped(self, parameters: Mapping[str, Tensor]) -> bool:
        """Whether a parameter changed while its gradient was local."""
        return any(parameters[name]._cell.root.stamp != stamp for name, stamp in self.local.items())

    def compare_parameters(
        self, parameters: Mapping[str, Tensor], *, got: str = STEPPED_ALONE, allowed: float = 0.0
    ) -> None:
        """Collective. Raise LedgerError on every rank unless all hold the same parameters, bit for bit.

        got: why they may not. allowed: what they may differ by, of a parameter's norm.
        """
        everyones = self.communicator.all_gather_object({name: _digest(p) for name, p in parameters.items()})
        differing = [name for name in parameters if len({digests.get(name) for digests in everyones}) > 1]
        if differing and allowed:
            differing = [name for name in differing if self._distance(parameters[name]) > allowed]
        if differing:
            raise LedgerError(
                f"ranks hold different parameters: {shorten(differing)}",
                where=f"rank {self.communicator.rank}",
                expected="equal parameters on all ranks in a synchronised backward",
                got=got,
                remedy="load the same file on all ranks, or load before wrapping, which sends rank 0's; leave no_sync()"
                " for the last micro-batch before optimizer.step(); after local steps that are meant (local SGD), "
                "average the parameters over ranks before the next synchronised backward",
            )

    def _distance(self, parameter: Tensor) -> float:
        """Collective. How far any rank's is from rank 0's, as a share of that one's norm; NaN is far."""
        mine = parameter.detach().cpu().numpy().astype(np.complex128 if parameter.is_complex() else np.float64)
        first = mine.copy()
        self.communicator.broadcast(first, label="parameters that differ")
        distance = float(np.linalg.norm(mine - first) / (np.linalg.norm(first) or 1.0))
        return max(self.communicator.all_gather_object(distance if distance == distance else np.inf))


def _stamp(parameter: Tensor | None) -> int:
    """How often a parameter's memory was written to."""
    return 0 if parameter is None else parameter._cell.root.stamp


def _digest(parameter: Tensor) -> bytes:
    return hashlib.sha256(parameter._cell.current().tobytes()).digest()  # in C order


def reduced_twice(name: str) -> LedgerError:
    """The error for a gradient that came again in one backward."""
    return LedgerError(
        f"the gradient of {name!r} was reduced twice in one backward",
        expected="every parameter reduced once",
        remedy="do not run part of the model's forward outside of DistributedDataParallel.forward(); of weights that "
        "several re-entrant checkpoints use: use_reentrant=False, or static_graph=True",
    )


def unused_error(names: list[str]) -> UnusedParameterError:
    """The error for parameters that got no gradient."""
    return UnusedParameterError(
        f"no gradient reached {shorten(names)} in a backward that was to reduce it",
        expected="every parameter of the module takes part in the loss on every rank",
        remedy="find_unused_parameters=True, or requires_grad_(False) on those that take no part, on every rank",
    )


def shorten(names: list[str], most: int = 8) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more
