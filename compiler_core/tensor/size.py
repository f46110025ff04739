"""torch.Size: a tuple of sizes whose parts, sums and multiples are Sizes too.

In: sizes. Out: what `tensor.shape` gives. It is printed as a tuple is, and under torch's name as torch prints it.
"""

from __future__ import annotations

import math
from typing import Any, SupportsIndex, overload

from compiler_core.names.spelling import is_own, spelled

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
