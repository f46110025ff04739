"""The ledger: no optimizer step on gradients that were never reduced goes unnoticed where it does harm.

In: which gradients a backward under no_sync() left on this rank. Out: nothing, or LedgerError.
A parameter that changed while its gradient was local may have been stepped by this rank alone. That is legal: local
SGD trains so, and averages the parameters itself; gradients may have been thrown away. It does harm only if ranks go on
with different parameters. So a rank says in the next synchronised backward that it may have stepped alone, and then,
and only then, ranks compare their parameters' bits.
That every gradient is reduced exactly once in a backward is held by `passes.py`, by count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from collectives import Communicator
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.errors import LedgerError, UnusedParameterError


class Ledger:
    """The local gradients of one DDP instance: name -> the parameter's stamp when its gradient became local."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator
        self.local: dict[str, int] = {}

    def mark_local(self, names: Iterable[str], parameters: Mapping[str, Tensor]) -> None:
        """Gradients were accumulated on this rank only."""
        for name in names:
            self.local.setdefault(name, parameters[name]._cell.root.stamp)

    def forget(self, parameters: Mapping[str, Tensor]) -> None:
        """Other parameters are trained from now on."""
        self.local = {name: stamp for name, stamp in self.local.items() if name in parameters}

    def may_have_stepped(self, parameters: Mapping[str, Tensor]) -> bool:
        """Whether a parameter changed while its gradient was local."""
        return any(parameters[name]._cell.root.stamp != stamp for name, stamp in self.local.items())

    def compare_parameters(self, parameters: Mapping[str, Tensor]) -> None:
        """Collective. Raise LedgerError on every rank unless all hold the same parameters, bit for bit."""
        everyones = self.communicator.all_gather_object({name: _digest(p) for name, p in parameters.items()})
        differing = [name for name in parameters if len({digests[name] for digests in everyones}) > 1]
        if differing:
            raise LedgerError(
                f"ranks hold different parameters: {shorten(differing)}",
                where=f"rank {self.communicator.rank}",
                expected="equal parameters on all ranks in a synchronised backward",
                got="parameters that changed while their gradients were not reduced: each rank stepped by its own",
                remedy="leave no_sync() for the last micro-batch before optimizer.step(); after local steps that are "
                "meant (local SGD), average the parameters over ranks before the next synchronised backward",
            )


def _digest(parameter: Tensor) -> bytes:
    return hashlib.sha256(parameter._cell.current().tobytes()).digest()  # in C order


def reduced_twice(name: str) -> LedgerError:
    """The error for a gradient that came again in one backward."""
    return LedgerError(
        f"the gradient of {name!r} was reduced twice in one backward",
        expected="every parameter reduced once",
        remedy="do not run part of the model's forward outside of DistributedDataParallel.forward()",
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
