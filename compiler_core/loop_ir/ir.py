"""Loop IR: what is left of a graph when shapes have become loops. Immutable, printable, checkable, runnable.

    Program := program NAME ( Buffer* ) { Step* } inputs BUFFER* outputs BUFFER*
    Buffer  := NAME: dtype[numel] kind                      kind: input | output | temp @ arena offset | constant
    Step    := KernelCall(Kernel, Slot*)                             Slot := BUFFER + offset, in elements
             | routine NAME (View*) -> View, attributes     a library routine (ops/routine.py); View: a strided part
             | signal K (BUFFER*)                          tell the caller that these outputs are complete
             | wait K (BUFFER*)                            go on when the caller says that these inputs may be read
    Kernel  := kernel NAME ( Param* ) { Stmt* }             Param := NAME: dtype[numel] in | out | inout
    Stmt    := for AXIS in EXTENT kind Part { Stmt* }       kind: serial | parallel | block | vector
                                                            Part: nothing | of AXIS | from Index to Index
             | local NAME: dtype[numel]                     scratch array of the enclosing block, uninitialised
             | NAME = Expr                                  Let: immutable scalar of the enclosing block
             | BUFFER[Index] = | += | *= | max= | min= Expr Store: to an out/inout Param or a local
             | acc NAME: dtype kind                         Accumulator, starts at kind's identity
             | NAME <- Expr [at Index]                      Accumulate; `at` only for argmax and argmin
             | check Expr, "message"                        leave the program with an error when Expr is false
    Index   := see symbolic/index.py: over axes and integer Lets, which a Scalar names
    Expr    := see loop_ir/expr.py

    kernel softmax(p0: f32[4096] in, p1: f32[4096] out)
      for i0 in 32 parallel
        acc a0: f32 max
        for i1 in 128 vector
          a0 <- p0[128*i0 + i1]
        local s0: f32[128]
        acc a1: f32 sum
        for i1 in 128 vector
          t0 = exp(sub(p0[128*i0 + i1], a0))
          s0[i1] = t0
          a1 <- t0
        for i1 in 128 vector
          p1[128*i0 + i1] = div(s0[i1], a1)

In: nothing. Out: the classes. Invariants (`verify.py` checks them):
- Iterations of a `parallel` loop are independent: any order, any number of threads, the same bits. Locals, Lets and
  Accumulators declared inside it belong to the iteration.
- A `vector` loop holds only Let, Store, Accumulate (argmax_nan excepted) and Checks of values (checking.py), behind
  which the rest may run where they fail. Its iterations are independent except
  for Accumulates into scalars declared outside of it, whose order of summation is free (argmax and argmin give the
  first of equal places all the same). No two iterations store to one address.
- A `block` loop (GPU schedules only) is a vector loop over rows: a program of the grid runs several side by side. Its
  iterations are independent, except that they may Accumulate into scalars declared outside of it, and combine
  (`+=`, `max=` ...) into a local declared outside of it, in free order. Vector and serial loops stand inside it, block
  loops do not. GPU schedules may also Check in a vector loop: where it fails, nothing after it has an effect.
- `of AXIS`: a `parallel` loop around this one shares its iterations out: its iteration k of m runs those from
  k*n to (k+1)*n, n = ceil(EXTENT/m), and none of the others. `from A to B`: a serial or block loop runs the iterations
  from A up to and without B only; both lie in 0..EXTENT.
- Where a store's place is a scalar made inside a parallel or block loop, its iterations store to different places.
- An accumulator is read as `Var` after the loop that fills it, never inside. An argmax one reads as the index (i64).
- Two Params may name the same memory only if neither is written, or if one is stored once, by `=`, and each load of the
  other is at that store's index and stands before it (aliasing.py).
- A `signal` stands after every step that writes what it announces, a `wait` before every step that reads what it
  waits for; each event is signalled, or waited for, once. A caller that gives no events gets the same steps without.
- Params are 64-byte aligned up to their slot's offset.
- An axis that is mentioned is that of a loop around: axes of one name and extent are one object.
- Kernels with the same text are the same object, also across the programs of one `lower_and_schedule`.
Limits: extents are ints today; every extent and numel is typed `Size` so that symbols can enter there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from compiler_core.dtype import DType, bool_
from compiler_core.loop_ir.expr import Expr
from compiler_core.meta import Size
from compiler_core.ops.registry import Array
from compiler_core.ops.routine import Routine, Strided
from compiler_core.ops.rules import ReductionKind
from compiler_core.records import dataclass
from compiler_core.symbolic.index import Axis, Index

LoopKind = Literal["serial", "parallel", "block", "vector"]
StoreMode = Literal["set", "add", "mul", "max", "min"]
ReduceKind = Literal[ReductionKind, "expsum"]
Access = Literal["in", "out", "inout"]
# spent: an input that is written over; stacked: one of those that lie one after another in one block, at its offset
# there; lent: a temp in that block
STACKED = 512  # bytes on which stacked inputs start: as in CuPy's pool
BufferKind = Literal["input", "spent", "stacked", "output", "temp", "lent", "constant"]


@dataclass(frozen=True, slots=True)
class Reducing:
    """What a kind of reduction is. kind: what is done with the values: sum, prod, max or min.

    scalar, ufunc: two values combined, in loop IR and in NumPy; operator: in C++ and Triton, "" where a helper called
    `kind` does it; bits: of two truth values. beats: how a value that wins compares with the others. is_place: its
    place is remembered; of several NaN the last, if `last_nan`, else the first.
    """

    kind: str
    scalar: str
    ufunc: np.ufunc
    operator: str
    bits: str
    beats: str = ""
    is_place: bool = False
    last_nan: bool = False

    def symbol(self, dtype: DType) -> str:
        """The operator between two values of this dtype; "" if there is none."""
        return self.bits if dtype is bool_ else self.operator


_SUM, _PROD = Reducing("sum", "add", np.add, "+", "|"), Reducing("prod", "mul", np.multiply, "*", "&")
_MAX, _MIN = Reducing("max", "maximum", np.maximum, "", "|", ">"), Reducing("min", "minimum", np.minimum, "", "&", "<")
REDUCING: Mapping[str, Reducing] = {  # by the kind of an accumulator or a scan, or the mode of a store that combines
    "sum": _SUM, "add": _SUM, "expsum": _SUM, "linear": _SUM, "prod": _PROD, "mul": _PROD, "max": _MAX, "min": _MIN,
    "argmax": replace(_MAX, is_place=True), "argmin": replace(_MIN, is_place=True),
    "argmax_nan": replace(_MAX, is_place=True, last_nan=True),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Loop:
    """for axis in range(axis.extent): body.

    part_of: the parallel axis of which each iteration runs a part of this loop. span: begin and end.
    """

    axis: Axis
    kind: LoopKind
    body: tuple[Stmt, ...]
    part_of: Axis | None = None
    span: tuple[Index, Index] | None = None

    @property
    def extent(self) -> Size:
        return self.axis.extent

    @property
    def share(self) -> Size:
        """How many iterations run in one iteration of the loop that shares them out, at most; all if none does."""
        return self.extent if self.part_of is None else -(-self.extent // self.part_of.extent)


@dataclass(frozen=True, slots=True)
class Local:
    """A scratch array, private to the enclosing block; its elements are undefined until stored."""

    name: str
    dtype: DType
    numel: Size


@dataclass(frozen=True, slots=True)
class Let:
    """A named scalar. Its dtype is `value.dtype`."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Store:
    """buffer[index] = value, or combined with what stands there. value.dtype is the buffer's."""

    buffer: str
    index: Index
    value: Expr
    mode: StoreMode = "set"


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A scalar that a later loop reduces into. `dtype` is that of the values, also for argmax and argmin.

    max and min propagate NaN; argmax and argmin give the first of equal places, and the first NaN if there is one.
    argmax_nan gives the last NaN instead, as torch's poolings do. expsum (of floats, GPU schedules only) gives the sum
    of exp(value - greatest value), NaN if that is infinite.
    """

    name: str
    dtype: DType
    kind: ReduceKind


@dataclass(frozen=True, slots=True)
class Accumulate:
    """Reduce `value` into accumulator `name`; `at` is the place that argmax and argmin remember."""

    name: str
    value: Expr
    at: Index | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Leave the whole program with an error whose text is `message` unless `condition` holds."""

    condition: Expr
    message: str


Stmt: TypeAlias = Loop | Local | Let | Store | Accumulator | Accumulate | Check


@dataclass(frozen=True, slots=True)
class Param:
    """An array that a kernel gets from outside. "out": every element that matters is stored before it is read."""

    name: str
    dtype: DType
    numel: Size
    access: Access


@dataclass(frozen=True, slots=True)
class Kernel:
    """One fused loop nest. Names are canonical (p0.. i0.. t0.. s0.. a0..), so that equal work has equal text."""

    name: str
    params: tuple[Param, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of a program:

    one contiguous array. `offset`: bytes into the arena, for temps; into the stack, for what is stacked or lent.
    `array`: the data of a constant.
    """

    name: str
    dtype: DType
    numel: Size
    kind: BufferKind
    offset: int = 0
    array: Array | None = field(default=None, compare=False)

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Slot:
    """The part of a buffer that begins `offset` elements in."""

    buffer: str
    offset: Size = 0


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Run `kernel` on slots, one per Param.

    `note`: the graph nodes computed and the user's lines, for comments only.
    """

    kernel: Kernel
    slots: tuple[Slot, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """A strided part of a buffer: element (i, ...) lies at slot + sum(i * strides)."""

    slot: Slot
    layout: Strided


@dataclass(frozen=True, slots=True)
class RoutineCall:
    """Run `routine` on `operands`; it writes `result`. attrs: sorted by name."""

    routine: Routine
    operands: tuple[View, ...]
    result: View
    attrs: tuple[tuple[str, Any], ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Signal:
    """Event `event`: the outputs `buffers` are complete, and nothing writes them any more."""

    event: int
    buffers: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Event `event`: nothing before has read the inputs `buffers`; what follows may."""

    event: int
    buffers: tuple[str, ...]
    note: str = ""


Step: TypeAlias = KernelCall | RoutineCall | Signal | Wait


@dataclass(frozen=True, slots=True)
class Program:
    """One native entry point: `steps` in order. inputs, outputs: buffer names in call order, all different.

    Outputs never alias inputs or each other. The arena is `arena_nbytes` long; temps may share its bytes when their
    lives do not meet.
    """

    name: str
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    arena_nbytes: int = 0

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The distinct kernels, in order of first call."""
        return tuple(dict.fromkeys(s.kernel for s in self.steps if isinstance(s, KernelCall)))

    @property
    def stack_nbytes(self) -> int:
        """Of the block that stacked inputs lie in; 0 if there are none."""
        ends = [buffer.offset + buffer.nbytes for buffer in self.buffers if buffer.kind == "stacked"]
        return -(-max(ends, default=0) // STACKED) * STACKED

    def buffer(self, name: str) -> Buffer:
        return next(b for b in self.buffers if b.name == name)

    def __str__(self) -> str:
        from compiler_core.loop_ir.print import print_program

        return print_program(self)


def slots_of(step: Step) -> list[Slot]:
    """Everything a step touches."""
    if isinstance(step, KernelCall):
        return list(step.slots)
    if isinstance(step, RoutineCall):
        return [*(view.slot for view in step.operands), step.result.slot]
    return []


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """All statements, outer before inner, in order."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, Loop):
            yield from walk(stmt.body)
