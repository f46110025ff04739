"""`x[i]` with an `i` that changes from call to call: read and written in one graph, whatever the number.

In: a tensor, an index in which some numbers are symbols. Out: what stands at that place, a view as ever, or the write.
The value is gathered by 0-d indices that are inputs of the graph; how many elements there are is guarded, and the sign
of a negative number. Everything that wants to know where the view lies (its offset, other views of that memory, a
result that is to be a view of an argument) asks its cell for `op` or `attrs`: then the number is a constant after all.
Slices: the length is guarded, where it begins may change; one in an index that has no other symbol.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core import dtype as dtypes
from compiler_core.capture.numbers.lifting import lifted
from compiler_core.capture.numbers.selections import is_selection
from compiler_core.capture.numbers.symbols import (
    SymbolInt,
    arithmetic,
    code_of,
    is_symbol,
    plain_parts,
    shown_number,
)
from compiler_core.ops import functional as F
from compiler_core.ops.registry import Attrs, Op, Value
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.memory import views
from compiler_core.tensor.memory.cell import Cell, ViewCell, read
from compiler_core.tensor.memory.journal import note_change
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.capture.numbers.numbers import Numbers


_NAMES = {"narrow": ("input", "dim", "start", "length"), "select": ("input", "dim", "index")}


class SettlingCell(ViewCell):
    """The view `of`, which makes the place where it lies a constant (`settle`) as soon as somebody asks for that."""

    __slots__ = ("_attrs", "_op", "settle")

    def __init__(self, of: ViewCell, settle: Callable[[], Any]) -> None:
        self.raw, self.seen, self.is_dense, self.is_ordered = of.raw, -1, False, of.is_ordered
        self.base, self._root, self._op, self._attrs, self.settle = of.base, of.root, of.op, of.attrs, settle
        self._counter = of.counter

    @property
    def op(self) -> Op:  # type: ignore[override]
        self.settle()
        return self._op

    @property
    def attrs(self) -> Attrs:  # type: ignore[override]
        self.settle()
        return self._attrs

    def strides(self) -> views.Strides:
        """Those of the view, which are the same at every place."""
        return views.view_strides(self._op, self._attrs, self.base.raw.shape, self.base.strides(), self.raw.shape)


class PlaceCell(SettlingCell):
    """A view of `owner`, of which `index` says in the graph where it is."""

    __slots__ = ("index", "owner")

    def __init__(self, of: ViewCell, owner: Cell, index: tuple[Any, ...], settle: Callable[[], Any]) -> None:
        super().__init__(of, settle)
        self.owner, self.index = owner, index

    def current(self) -> Value:
        stamp = self._root.stamp
        if self.seen != stamp:
            note_change(self, "raw", "seen")
            self.raw, self.seen = F.getitem(read(self.owner), self.index), stamp
        return self.raw

    def put(self, value: Value) -> None:
        note_change(self, "raw", "seen")
        self.owner.put(F.setitem(read(self.owner), self.index, value))
        self.raw, self.seen = value, self._root.stamp + 1


def read_place(numbers: Numbers, owner: Tensor, key: Any) -> Tensor | None:
    """`owner[key]`, whose numbers stay inputs; None where they cannot. To be called under the trace."""
    index = _lifted_index(numbers, owner, key)
    if index is None:
        return None
    body = numbers.trace.body
    recorded = len(body)
    view = owner[plain_parts(key)]
    if type(view._cell) is not ViewCell or view.numel() == 0:
        return None
    del body[recorded:]  # nobody will ask for the values at this very place
    _settle_later(view, owner, settle := functools.partial(numbers.specialise, key))
    nodes = tuple(part._read() if isinstance(part, Tensor) else part for part in index)
    place = view._cell = PlaceCell(view._cell, owner._cell, nodes, settle)
    place.raw, place.seen = owner[index]._read(), place.root.stamp
    return view


def asked_place(
    numbers: Numbers, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Tensor, tuple[Any, ...]] | None:
    """`narrow` and `select` by a number that changes: a tensor, and the index that means the same; None of others."""
    given = {**dict(zip(_NAMES.get(name, ()), args)), **kwargs}
    if name not in _NAMES or given.keys() != {*_NAMES[name]} or not isinstance(given["input"], Tensor):
        return None
    x, dim, start, *length = (given[key] for key in _NAMES[name])
    if not _changes(start) or type(dim) is not int or is_selection(x) or not -x.ndim <= dim < x.ndim:
        return None
    size: Any = x.shape[dim]
    if type(size) is Sym or any(type(number) is not int or number < 1 for number in length):
        return None
    if not (0 <= start <= size - length[0] if length else -size <= start < size):
        return None  # which is an error
    entry = slice(start, arithmetic(numbers, "+", lambda a, b: a + b, start, length[0])) if length else start
    return x, (*(slice(None),) * (dim % x.ndim), entry)


def _settle_later(view: Tensor, owner: Tensor, settle: Callable[[], Any]) -> None:
    """What lies between a view and its owner, a view of its own, has no value that was recorded."""
    link = view._view
    while link is not None and link.base is not owner:
        between = link.base
        assert isinstance(between._cell, ViewCell)
        view._cell.base = between._cell = SettlingCell(between._cell, settle)  # type: ignore[attr-defined]
        view, link = between, between._view


def written_place(numbers: Numbers, owner: Tensor, key: Any) -> tuple[Any, ...] | None:
    """The index by which `owner[key] = ...` is written in the graph; None where its numbers must be constants."""
    return _lifted_index(numbers, owner, key)


def _lifted_index(numbers: Numbers, owner: Tensor, key: Any) -> tuple[Any, ...] | None:
    """The index with 0-d tensors in the place of numbers that change."""
    entries = key if type(key) is tuple else (key,)
    if not any(map(_changes, entries)) or not all(map(_is_basic, entries)) or not hasattr(owner._cell.raw, "shape"):
        return None
    used = sum(entry is not None and entry is not Ellipsis for entry in entries)
    if used > owner.ndim or sum(entry is Ellipsis for entry in entries) > 1:
        return None
    slices = sum(type(entry) is slice and _changes(entry) for entry in entries)
    if slices and sum(map(_changes, entries)) > 1:
        return None
    index, dim = [], 0
    for entry in entries:
        size: Any = owner.shape[dim] if dim < owner.ndim else 0
        if _changes(entry) and type(size) is Sym:
            return None  # the number becomes a size, too
        made = _entry(numbers, entry, size, owner) if _changes(entry) else entry
        if made is None and entry is not None:
            return None
        index.append(made)
        dim += owner.ndim - used if entry is Ellipsis else entry is not None
    return tuple(index)


def _entry(numbers: Numbers, entry: Any, size: int, owner: Tensor) -> Tensor | None:
    """A number, or the places of a slice, as a tensor; None if it is not within the dim's size. owner: of the dim."""
    if type(entry) is slice:
        start = 0 if entry.start is None else entry.start
        stop = size if entry.stop is None else entry.stop
        if entry.step not in (None, 1) or not 0 <= start < stop <= size:
            return None
        low, high = _code(numbers, start), _code(numbers, stop)
        numbers.code.require_once(
            f"0 <= {low} and {high} <= {size} and {high} - {low} == {stop - start}",
            f"{shown_number(start)}:{shown_number(stop)} are {int(stop - start)} places of {size}",
        )
        if not is_symbol(start):
            return None
        first = lifted(numbers, start, dtypes.int64)
        steps = numbers.trace.constant(np.arange(int(stop - start)))
        if first is None:
            return None
        places = F.add(steps, first._read())
        numbers.trace.note_made(places, owner.device)
        return Tensor._from_cell(Cell(places))
    if not -size <= entry < size:
        return None
    sign = "0 <= {} < " + str(size) if entry >= 0 else f"-{size} <= {{}} < 0"
    numbers.code.require_once(sign.format(code_of(numbers, entry)), f"{sign.format(shown_number(entry))}")
    place = entry if entry >= 0 else arithmetic(numbers, "+", lambda a, b: a + b, entry, size)
    return lifted(numbers, place, dtypes.int64)


def _code(numbers: Numbers, bound: Any) -> str:
    return code_of(numbers, bound) if is_symbol(bound) else repr(bound)


def _changes(entry: Any) -> bool:
    """Whether an index's entry holds a number that changes."""
    if type(entry) is slice:
        return any(type(bound) is SymbolInt for bound in (entry.start, entry.stop))
    return type(entry) is SymbolInt and not entry.formula.is_time


def _is_basic(entry: Any) -> bool:
    """Whether an integer, a slice, None or Ellipsis."""
    if type(entry) is slice:
        return all(bound is None or type(bound) in (int, SymbolInt) for bound in (entry.start, entry.stop, entry.step))
    return entry is None or entry is Ellipsis or type(entry) in (int, SymbolInt)
