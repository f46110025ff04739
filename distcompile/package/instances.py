"""What a package says of the program for one set of sizes, wherever its code runs.

Out: `Described`: an input or output; `Instance`: both, and what the results are. Imports NumPy alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

GIVEN, HELD, KEY = range(3)  # kinds of inputs; of outputs: 0: a result, 1: the new value of an input


@dataclass(frozen=True)
class Described:
    """One input or output. kind, place: see distcompile_package.h."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    kind: int
    place: int

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


class Instance:
    """results: of each leaf of the result, the output that it is, or its value."""

    inputs: Sequence[Described]
    outputs: Sequence[Described]
    results: Sequence[Any]

    @cached_property
    def given(self) -> list[int]:
        """Which of the inputs the caller gives."""
        return [k for k, one in enumerate(self.inputs) if one.kind == GIVEN]

    @cached_property
    def sizes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of what the caller gives."""
        return tuple(self.inputs[k].shape for k in self.given)

    @cached_property
    def written(self) -> list[tuple[int, int]]:
        """(output, input) of what is written."""
        return [(k, one.place) for k, one in enumerate(self.outputs) if one.kind]

    @cached_property
    def kept(self) -> list[tuple[int, str]]:
        """(output, name) of what is written to what the program has of its own."""
        return [(k, self.inputs[place].name) for k, place in self.written if self.inputs[place].kind]
