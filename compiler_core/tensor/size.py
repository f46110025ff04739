"""torch.Size: a tuple of sizes whose parts, sums and multiples are Sizes too.

In: sizes. Out: what `tensor.shape` gives. It is printed as a tuple is, and under torch's name as torch prints it.
`told`: sizes as the program's own code sees them where it runs as it is, under a trace: numbers, guarded.
"""

from __future__ import annotations

import math
import sys
from typing import Any, SupportsIndex, TypeVar, overload

from compiler_core.location import is_asking, is_ours
from compiler_core.names.spelling import is_own, spelled
from compiler_core.symbolic.expression import Sym

T = TypeVar("T")
_tuple_item = tuple.__getitem__


class Size(tuple[int, ...]):
    """A shape, as torch.Size. Printed as a tuple is, under torch's name as torch prints it."""

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self)

    @overload
    def __getitem__(self, place: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Size: ...
    def __getitem__(self, place: Any) -> Any:
        part = _tuple_item(self, place)
        return Size(part) if type(part) is tuple else part

    def __add__(self, other: Any) -> Any:
        return Size(tuple.__add__(self, other))

    def __mul__(self, times: Any) -> Any:
        return Size(tuple.__mul__(self, times))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return tuple.__repr__(self) if is_own() else spelled(f"Size({list(self)})")


def told(sizes: T) -> T:
    """A size, or a tuple of such, for who called our caller: numbers for the program, which asks a Sym nothing."""
    if type(sizes) is int:
        return sizes
    sym = next((n for n in (sizes if isinstance(sizes, tuple) else (sizes,)) if type(n) is Sym), None)
    if sym is None or not sym.sizes.are_numbers_to_program:
        return sizes
    frame = sys._getframe(2)
    while frame.f_back is not None and is_asking(frame.f_code.co_filename):
        frame = frame.f_back
    if is_ours(frame.f_code.co_filename):
        return sizes
    return type(sizes)(map(int, sizes)) if isinstance(sizes, tuple) else int(sizes)  # type: ignore[call-overload]
