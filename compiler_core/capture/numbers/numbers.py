"""The numbers and texts of one segment that change from call to call, and what was made of them.

In: values of the program's. Out: constants (`specialise`), for whoever needs to look at a value; guards then.
"""

from __future__ import annotations

from typing import Any

from compiler_core.capture.guards.code import Code
from compiler_core.capture.guards.sources import AtEnd, Source
from compiler_core.capture.numbers.selections import Selections
from compiler_core.capture.numbers.sourced_sizes import SourcedSizes
from compiler_core.capture.numbers.symbols import Input, code_of, is_symbol, render, settled, specialised
from compiler_core.capture.trace import CaptureTrace
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.tensor import Tensor


class Numbers:
    """symbols: by where they come from. lifted: tensors made of them, by code and dtype. clocks: that are read when
    the graph has run. held: cells that the code told to hold a number. guarded: guard -> the number it is about.
    reads: tensors of which a number is known when the graph has run, and its type.
    selections: what masks select, of sizes that change. sizes: that are symbols."""

    def __init__(self, code: Code, trace: CaptureTrace) -> None:
        self.code, self.trace = code, trace
        self.symbols: dict[Source, Any] = {}
        self.lifted: dict[tuple[str, Any], Tensor] = {}
        self.clocks: list[Any] = []
        self.reads: list[tuple[Tensor, type]] = []
        self.guarded: dict[int, Source] = {}
        self.held: dict[Cell, Any] = {}
        self.selections = Selections()
        self.sizes = SourcedSizes(code=code)

    def specialise(self, value: Any) -> Any:
        """A number of the program's as a constant, guarded: for whoever needs its value."""
        return specialised(self, value)

    def named(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """`specialise`, of keyword arguments."""
        return {key: specialised(self, value) for key, value in kwargs.items()}

    @property
    def any_change(self) -> bool:
        """Whether the program may hold a number that is a symbol."""
        return bool(self.symbols or self.sizes.symbols)

    def settle(self, *values: Any, compared: bool = False) -> None:
        """Numbers of the program's that these hold, however deep, are constants from here on: C code reads them.

        compared: and only compares: sizes answer for themselves.
        """
        if self.any_change:
            for value in values:
                settled(self, value, compared=compared)

    def code_of(self, value: Any) -> str:
        """Code for a symbol in the check function."""
        return code_of(self, value)

    def expression(self, value: Any) -> str | None:
        """Code, over what the check function hands over, for a number computed from numbers from outside."""
        if not is_symbol(value):
            return None

        def leaf(part: Input) -> str:
            if isinstance(part.source, AtEnd):
                return part.source.name
            return f"outside[{self.code.place(part.source, part.value)}]"

        return render(value, leaf)
