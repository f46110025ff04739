"""The sizes of one segment that are symbols: where each is read from at later calls, and what was assumed of them.

In: sources of integers, with their values in the call that is captured. Out: `Sym`s of them (`symbol`); each guard is a
condition of the check function as soon as it is made, in the user's words (`args[0].shape[0] == args[1].shape[0]`).
Invariant: every symbol has a source, so what is computed of sizes can be spelled for the check function (`source_of`).
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import ClassVar

from compiler_core.capture.guards.code import Code
from compiler_core.capture.guards.sources import Source
from compiler_core.records import dataclass
from compiler_core.symbolic.size import SizeGuard, Sizes, SizeSymbol, Sym


@dataclass(eq=False)
class SourcedSizes(Sizes):
    """sources: where the check function reads each symbol. by_source: one symbol for each source. are_on: whether
    numbers from outside that change become sizes, where a function of tensors takes them as such."""

    are_numbers_to_program: ClassVar[bool] = True
    code: Code = field(kw_only=True)
    sources: dict[SizeSymbol, Source] = field(default_factory=dict)
    by_source: dict[Source, Sym] = field(default_factory=dict)
    are_on: bool = False

    def __post_init__(self) -> None:
        self.told = self._require

    def symbol(self, source: Source, hint: int | None, *, low: int = 2, high: float = math.inf, name: str = "") -> Sym:
        """The integer at `source`, in [low, high]: which whoever asks guards. name: if it is not taken."""
        if source not in self.by_source:
            self.are_on = True
            name = "" if any(symbol.name == name for symbol in self.symbols) else name
            size = self.by_source[source] = self.new(hint, low=low, high=high, text=source.text, name=name)
            (made,) = size.symbols
            self.sources[made] = source
        return self.by_source[source]

    def _require(self, guard: SizeGuard) -> None:
        self.code.require_once(guard.show(self._local), str(guard))

    def _local(self, symbol: SizeSymbol) -> str:
        return self.code.local(self.sources[symbol])


def source_of(symbol: SizeSymbol) -> Source:
    """Where the check function reads a symbol of a segment."""
    assert isinstance(symbol.sizes, SourcedSizes)
    return symbol.sizes.sources[symbol]
