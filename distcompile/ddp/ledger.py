"""The ledger: a gradient is reduced exactly once in a synchronised backward, or a named error says which was not.

In: what the reducers do, parameter by parameter. Out: nothing, or LedgerError / UnusedParameterError.
States of a gradient: "none", "local" (accumulated on this rank, not reduced), "reduced". Invariants:
no gradient is reduced twice in one backward; none is left out of a synchronised one; and the optimizer does not step on
local ones (a parameter that changed while its gradient was local is reported at the next forward).
Why: a reducer that silently stops reducing trains N models instead of one, and nothing else tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.errors import LedgerError, UnusedParameterError

State: TypeAlias = Literal["none", "local", "reduced"]


@dataclass(slots=True)
class _Entry:
    state: State = "none"
    version: int = 0  # of the parameter's value, when its gradient became local


class Ledger:
    """The books of one DDP instance. parameters: name -> tensor, those that require gradients."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self.parameters = dict(parameters)
        self.entries = {name: _Entry() for name in parameters}
        self.reduced_now: set[str] = set()  # in the backward that runs
        self.reductions = 0  # synchronised backwards so far

    def begin(self) -> None:
        """A synchronised backward begins."""
        self.reduced_now.clear()

    def mark_local(self, name: str) -> None:
        """A gradient was accumulated on this rank only."""
        entry = self.entries[name]
        if entry.state != "local":
            self.entries[name] = _Entry("local", self.parameters[name]._version)

    def mark_reduced(self, names: Iterable[str]) -> None:
        """These gradients were reduced. Raises LedgerError for one that already was in this backward."""
        for name in names:
            if name in self.reduced_now:
                raise LedgerError(
                    f"the gradient of {name!r} was reduced twice in one backward",
                    expected="every parameter reduced once",
                    remedy="do not run part of the model's forward outside of DistributedDataParallel.forward()",
                )
            self.reduced_now.add(name)
            self.entries[name].state = "reduced"

    def end(self, expected: Iterable[str]) -> None:
        """The synchronised backward ended; `expected` had to be reduced. Raises UnusedParameterError for others."""
        missing = [name for name in expected if name not in self.reduced_now]
        if missing:
            raise unused_error(missing)
        self.reductions += 1

    def check_strangers(self, others: Mapping[str, Tensor]) -> None:
        """Raise LedgerError if one of the module's other parameters requires a gradient: nobody would reduce it."""
        strangers = [name for name, parameter in others.items() if parameter.requires_grad]
        if strangers:
            raise LedgerError(
                f"parameters that would be trained but not reduced: {shorten(strangers)}",
                got="replaced, added, or unfrozen after DistributedDataParallel was made",
                remedy="change the module first, then wrap it in DistributedDataParallel",
            )

    def check_optimizer(self) -> None:
        """Before a forward: raise LedgerError if the optimizer stepped on gradients that were never reduced."""
        stepped = []
        for name, entry in self.entries.items():
            if entry.state != "local":
                continue
            parameter = self.parameters[name]
            if parameter._version != entry.version:
                stepped.append(name)
            if parameter.grad is None:
                entry.state = "none"
        if stepped:
            raise LedgerError(
                f"parameters changed while their gradients were not reduced: {shorten(stepped)}",
                expected="the backward before optimizer.step() outside of no_sync()",
                got="the last backward ran under no_sync(), so each rank stepped by its own gradients",
                remedy="leave no_sync() for the last micro-batch before optimizer.step()",
            )


def unused_error(names: list[str]) -> UnusedParameterError:
    """The error for parameters that got no gradient."""
    return UnusedParameterError(
        f"no gradient reached {shorten(names)} in a backward that was to reduce it",
        expected="every parameter of the module takes part in the loss on every rank",
        remedy="find_unused_parameters=True, or requires_grad_(False), before wrapping, on those that take no part",
    )


def shorten(names: list[str], most: int = 8) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more
