"""Sizes of tensors from outside that change from call to call: symbols, with guards on what is assumed of them.

In: a tensor that comes anew with every call, and which of its dims change (`dynamic_dims`). Out: a stand-in by which
the trace sees Syms for these (`tensor/memory/sized.py`); guards: the number of dims, the sizes of the others, the
range of each symbol, how the strides follow from the sizes (or that they are symbols of their own); and each
assumption about a symbol as it is made.
Static whatever is asked: parameters, buffers, subclasses, other layouts, what is on its way, and sizes 0 and 1, which
are graphs of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from compiler_core.capture.guards.arguments import require_strides
from compiler_core.capture.guards.code import Code
from compiler_core.capture.guards.sources import Argument, Source
from compiler_core.capture.lessons import Along
from compiler_core.capture.marks import Asked, dynamic_dims, marks
from compiler_core.capture.numbers.sourced_sizes import SourcedSizes
from compiler_core.dtype import of
from compiler_core.meta import Shape
from compiler_core.ops.aliasing import Strides, contiguous_strides
from compiler_core.records import dataclass
from compiler_core.symbolic.size import SizeGuard, SizeSymbol, Sym
from compiler_core.tensor.memory.cell import ViewCell
from compiler_core.tensor.memory.sized import SizedValue, can_show
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.capture.lessons import Memory
    from compiler_core.capture.trace import CaptureTrace


@dataclass(frozen=True, slots=True)
class Guarded:
    """A shape that guards are about, by themselves or by strides. code: of the check function, for it."""

    source: Source
    code: str
    shape: Shape


class OutsideSizes:
    """sizes: the symbols of one segment. asked: each that is of a tensor, with what the program says of it. values: of
    all of them in this call. guarded: by number of a guard that another shape may fail."""

    def __init__(self, memory: Memory, code: Code, trace: CaptureTrace, sizes: SourcedSizes) -> None:
        self.memory, self.code, self.guards, self.trace, self.sizes = memory, code, code.guards, trace, sizes
        self.asked: list[tuple[Sym, Asked]] = []
        self.values: dict[SizeSymbol, int] = {}
        self.guarded: dict[int, Guarded] = {}
        self._noted: dict[Source, Guarded] = {}
        self.along = memory.along  # of this very capture: another thread's may find out more meanwhile

    def take(self, source: Source, tensor: Tensor, *, is_input: bool) -> bool:
        """Make the sizes of a tensor symbols, where any change. False: it is static, and nothing was guarded.

        is_input: no parameter or buffer of a module.
        """
        cell = tensor._cell
        value: Any = cell.raw
        if not self._any_change() or not can_show(cell):
            return False
        if cell in self.trace.stand_ins:  # another handle: the guards on memory say that it is the same cell
            return type(tensor) is Tensor
        every = is_input and self.memory.all_sizes_are_symbols
        along = self.along if is_input else min(self.along, Along.OWN)
        seen = self.memory.changing(source, len(value.shape), along=along)
        dims: Mapping[int, Asked] = {}
        if type(tensor) is Tensor:
            dims = self.memory.declared.get(id(tensor)) or dynamic_dims(tensor, source.text, every=every, seen=seen)
        if not dims:
            if isinstance(cell, ViewCell):  # whose sizes and strides are not to be told by those of its base
                own = SizedValue(tuple(value.shape), cell.strides(), value.dtype, tensor.device)
                self.trace.show_as(cell, own)
            return False
        code = f"{self.code.local(source)}._cell"
        shape = self._shape(source, code, value.shape, dims)
        dtype, name = self.guards.bind(value.dtype, "dtype"), of(value.dtype).name
        self.guards.require(f"{code}.raw.dtype == {dtype}", f"{source.text}.dtype == {name}")
        strides = self._strides(code, tensor, shape, source.text)
        self.trace.show_as(cell, SizedValue(shape, strides, value.dtype, tensor.device))
        return True

    def _any_change(self) -> bool:
        """Whether any size may be a symbol."""
        memory = self.memory
        asked = memory.all_sizes_are_symbols or memory.changing_dims or memory.declared or marks.count
        return memory.makes_symbols and bool(asked)

    def note(self, source: Source, code: str, tensor: Tensor, first: int) -> None:
        """The guards from `first` on are about a tensor's shape and how it lies."""
        if type(tensor) is Tensor:
            known = self._noted[source] = Guarded(source, code, tuple(tensor._cell.raw.shape))
            self.guarded.update(dict.fromkeys(range(first, len(self.guards.texts)), known))

    def note_same(self, source: Source, other: Source) -> None:
        """The next guard is that the tensor at `other` is at `source` too. Where it is another, its sizes may be."""
        if (known := self._noted.get(other)) is not None:
            code = f"{self.guards.bind(shape_of, 'shape_of')}({self.code.local(source)})"
            self.guarded[len(self.guards.texts)] = Guarded(source, code, known.shape)

    def _shape(self, source: Source, code: str, sizes: Shape, dims: Mapping[int, Asked]) -> Shape:
        """The shape with symbols, and the guards on the rest of it."""
        text = f"{source.text}.shape"
        local = self.guards.let("shape", f"{code}.raw.shape", text=text)
        self.guards.require(f"len({local}) == {len(sizes)}", f"{source.text}.ndim == {len(sizes)}")
        shape: list[Any] = list(sizes)
        for dim, size in enumerate(sizes):
            where = f"{text}[{dim}]"
            if dim in dims:
                shape[dim] = self._symbol(f"{local}[{dim}]", size, dims[dim], where)
            else:
                self.guards.require(f"{local}[{dim}] == {size}", f"{where} == {size}")
        return tuple(shape)

    def _symbol(self, code: str, size: int, asked: Asked, text: str) -> Sym:
        same = next((made for made, other in self.asked if asked.name and other.name == asked.name), None)
        made = self._number(code, size, text, asked.low, asked.high, asked.name)
        if same is not None:
            self.sizes.add(SizeGuard("==", made, same, True, text))
        self.asked.append((made, asked))
        return made

    def _number(self, code: str, number: int, text: str, low: int = 2, high: float = math.inf, name: str = "") -> Sym:
        """A symbol for the number at `code`, in [low, high], with this name if it is free."""
        local = self.guards.let("size", code, text=text)
        within = f"{low} <= {{}}" if high == math.inf else f"{low} <= {{}} <= {high}"
        self.guards.require(within.format(local), within.format(text))
        made = self.sizes.symbol(Argument(local, text), number, low=low, high=high, name=name)
        (symbol,) = made.symbols
        self.values[symbol] = number
        return made

    def _strides(self, code: str, tensor: Tensor, shape: Shape, text: str) -> Strides:
        """The strides with symbols, and the guard that they are so: dense in some order, with gaps, or the numbers."""
        cell = tensor._cell
        steps, sizes = cell.strides(), tuple(cell.raw.shape)
        order = tuple(sorted(range(len(steps)), key=lambda dim: (-steps[dim], dim)))
        rows = tuple(range(len(sizes)))
        for found in (rows, order):
            if steps == dense(sizes, found):
                name = self.guards.bind(dense, "dense")
                told = f"{text}.stride() is that of {'rows' if found == rows else f'dims in the order {found}'}"
                same = f"{code}.strides() == {name}({code}.raw.shape, {found})"
                require_strides(self.guards, code, tensor.device, same, told, is_rows=found == rows)
                return dense(shape, found)
        if any(steps[dim] < steps[other] * sizes[other] for dim, other in pairwise(order)) or not all(steps):
            same = f"{code}.strides() == {steps}"
            require_strides(self.guards, code, tensor.device, same, f"{text}.stride() == {steps}", is_rows=False)
            return steps
        return self._with_gaps(code, tensor, shape, order, text)

    def _with_gaps(self, code: str, tensor: Tensor, shape: Shape, order: tuple[int, ...], text: str) -> Strides:
        """The strides of elements that lie in this order of dims, with gaps between them (columns that were cut off).

        A stride is a symbol of its own if a dim inside of it has a size that is one, else a number.
        """
        steps: list[Any] = list(tensor._cell.strides())
        local = self.guards.let("strides", f"{code}.strides()", text=f"{text}.stride()")
        apart = [f"{local}[{dim}] >= {local}[{other}] * {code}.raw.shape[{other}]" for dim, other in pairwise(order)]
        holds_symbol = [any(isinstance(shape[other], Sym) for other in order[k + 1 :]) for k in range(len(order))]
        changing = [dim for dim, holds in zip(order, holds_symbol) if holds and steps[dim] >= 2]
        fixed = [f"{local}[{dim}] == {step}" for dim, step in enumerate(steps) if dim not in changing]
        told = f"{text}.stride() is that of dims in the order {order}, with gaps"
        same = " and ".join([f"len({local}) == {len(steps)}", *fixed, *apart])
        require_strides(self.guards, code, tensor.device, f"({same})", told, is_rows=False)
        for dim in changing:
            steps[dim] = self._number(f"{local}[{dim}]", steps[dim], f"{text}.stride({dim})")
        return tuple(steps)

    def hand_over(self, symbols: Iterable[SizeSymbol]) -> tuple[tuple[SizeSymbol, int], ...]:
        """Each symbol, and the index of its number among what the check function hands over."""
        given = set(symbols)
        ordered = [symbol for symbol in self.sizes.symbols if symbol in given]
        return tuple((symbol, self.code.place(self.sizes.sources[symbol], self.value(symbol))) for symbol in ordered)

    def value(self, symbol: SizeSymbol) -> int:
        """What it is in this call."""
        found = self.values.get(symbol, symbol.hint)
        assert found is not None
        return found


def shape_of(thing: object) -> Shape:
    """The shape of a plain tensor; of anything else that of a scalar, in which no size changes."""
    return tuple(thing._cell.raw.shape) if type(thing) is Tensor else ()


def dense(shape: Shape, order: tuple[int, ...]) -> Strides:
    """The strides of elements that lie in this order of dims, outermost first, without gaps."""
    steps = contiguous_strides(tuple(shape[dim] for dim in order))
    return tuple(steps[order.index(dim)] for dim in range(len(order)))
