"""Sections of loop-IR kernels as `triton.jit` functions.

In: a `Section`, the kernel's params. Out: the text of one function, and which scratch memory its launch needs.

    loop kinds    serial, parallel inside a program: `for ... in range`; vector: a block of lanes, a power of two long,
                  masked to the extent; a vector loop over MAX_LANES runs in strips
    accumulators  scalars; a block is reduced and combined once a strip
    locals        one block of registers, if every access is at the running lane; else scratch memory of the program
    checks        the number of the failed message is stored to `status`, and what follows in the block is skipped
A buffer that a program stores and loads again gets a barrier after each vector loop that stores to it.
Limits: a section whose rows are serial (a reduction across rows in one chunk) is one program: right, but slow on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from compiler_core.codegen.index import Interval
from compiler_core.codegen.triton.expressions import ExprPrinter, Scope, TritonIndexPrinter
from compiler_core.codegen.triton.sections import GRID_LANES, MAX_LANES, Section, expressions
from compiler_core.codegen.triton.types import literal, register_type
from compiler_core.dtype import DType, bool_, float32, int8, int64
from compiler_core.loop_ir.expr import Expr, Load, walk_expr
from compiler_core.loop_ir.interpret import identity
from compiler_core.loop_ir.ir import (
    Accumulate,
    Accumulator,
    Check,
    Kernel,
    Let,
    Local,
    Loop,
    Stmt,
    Store,
    walk,
)

_ARG_KINDS = ("argmax", "argmin", "argmax_nan")
_INT32_MAX = 2**31 - 1
_EXTREME = {"max": "highest", "min": "lowest"}  # of integers, which have no NaN


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory for a Local that does not fit registers: `numel` elements a program."""

    name: str
    dtype: DType
    numel: int


@dataclass
class SectionPrinter:
    """Prints one section. number: check message -> its number, 0 and up. helpers: helper names used, added to."""

    kernel: Kernel
    section: Section
    number: Callable[[str], int]
    helpers: set[str]
    axes: dict[str, Interval] = field(default_factory=dict)
    accumulators: dict[str, Accumulator] = field(default_factory=dict)
    scratch: list[Scratch] = field(default_factory=list)

    def __post_init__(self) -> None:
        params = {p.name: p.dtype for p in self.kernel.params}
        self.locals = {s.name: s for s in walk(self.section.body) if isinstance(s, Local)}
        self.dtypes = params | {name: local.dtype for name, local in self.locals.items()}
        self.scope = Scope(registers={name for name in self.locals if self._fits_registers(name)})
        self.expr = ExprPrinter(TritonIndexPrinter(self.axes, self.helpers), self.helpers, self.dtypes, self.scope)
        self.is_wide = any(int(p.numel) > _INT32_MAX for p in self.kernel.params)
        self.loaded = {e.buffer for e in self._all_expressions() if isinstance(e, Load)}

    def text(self, name: str) -> str:
        """The function, called `name`."""
        axes = list(self._programs("    "))
        body = list(self._block(self.section.body, "    "))
        bases = [f"    {s.name} = {s.name} + program * {s.numel}" for s in self.scratch]
        names = [p.name for p in self.kernel.params] + [s.name for s in self.scratch] + ["status"] * self.has_checks
        return "\n".join(["@triton.jit", f"def {name}({', '.join(names)}):", *axes, *bases, *body, ""])

    @property
    def has_checks(self) -> bool:
        return any(isinstance(stmt, Check) for stmt in walk(self.section.body))

    def _all_expressions(self) -> Iterator[Expr]:
        for stmt in walk(self.section.body):
            for expr in expressions(stmt):
                yield from walk_expr(expr)

    def _fits_registers(self, name: str) -> bool:
        """Whether local `name` is only touched at the running lane of vector loops over all of it."""
        for loop in (s for s in walk(self.section.body) if isinstance(s, Loop) and s.kind == "vector"):
            for stmt in loop.body:
                places = [e.index for expr in expressions(stmt) for e in _loads(expr, name)]
                if isinstance(stmt, Store) and stmt.buffer == name:
                    if stmt.mode != "set":
                        return False
                    places.append(stmt.index)
                if any(str(p) != loop.axis or loop.extent != self.locals[name].numel for p in places):
                    return False
        outside = [s for s in walk(self.section.body) if not isinstance(s, Loop)]
        in_vectors = [s for v in walk(self.section.body) if isinstance(v, Loop) and v.kind == "vector" for s in v.body]
        touching = [s for s in outside if _touches(s, name)]
        return int(self.locals[name].numel) <= MAX_LANES and all(any(s is v for v in in_vectors) for s in touching)

    # -- programs of the grid

    def _programs(self, pad: str) -> Iterator[str]:
        """Axis values of this program."""
        section = self.section
        if section.programs > 1 or any(self.locals.keys() - self.scope.registers):
            yield f"{pad}program = tl.program_id(0){'.to(tl.int64)' if self.is_wide else ''}"
        inner = section.blocks
        for loop in reversed(section.parallel):
            self.axes[loop.axis] = (0, max(int(loop.extent) - 1, 0))
            rest = "program" if inner == 1 else f"(program // {inner})"
            is_outermost = loop is section.parallel[0]
            place = rest if is_outermost else f"{rest} % {int(loop.extent)}"
            yield f"{pad}{loop.axis} = {place if section.programs > 1 else 0}"
            inner *= int(loop.extent)

    # -- statements

    def _block(self, body: tuple[Stmt, ...], pad: str) -> Iterator[str]:
        if not body:
            yield f"{pad}pass"
        for stmt in body:
            match stmt:
                case Loop():
                    yield from self._loop(stmt, pad)
                case Accumulator():
                    yield from self._accumulator(stmt, pad)
                case Accumulate():
                    yield from self._accumulate(stmt, pad)
                case Check(condition, message):
                    yield f"{pad}holds = {self.expr.text(condition)}"
                    yield f"{pad}if not holds:"
                    yield f"{pad}    tl.store(status, {1 + self.number(message)})  # {message}"
                    yield f"{pad}if holds:"
                    pad += "    "
                case Local():
                    self._local(stmt)
                case Let(name, value):
                    yield f"{pad}{name} = {self.expr.text(value)}"
                    if self.expr.is_block(value):
                        self.scope.lanes.add(name)
                case Store():
                    yield from (pad + line for line in self._store(stmt))
        if isinstance(body[-1] if body else None, Check):
            yield f"{pad}pass"

    def _local(self, local: Local) -> None:
        if local.name not in self.scope.registers:
            self.scratch.append(Scratch(local.name, local.dtype, int(local.numel)))

    def _loop(self, loop: Loop, pad: str) -> Iterator[str]:
        self.axes[loop.axis] = (0, max(int(loop.extent) - 1, 0))
        if loop.kind == "vector":
            yield from self._vector_loop(loop, pad)
            return
        yield f"{pad}for {loop.axis} in range({int(loop.extent)}):"
        yield from self._block(loop.body, pad + "    ")

    def _vector_loop(self, loop: Loop, pad: str) -> Iterator[str]:
        """A block of lanes, this program's share of them, or strips."""
        axis, extent = loop.axis, int(loop.extent)
        lanes = min(_power_of_two(extent), GRID_LANES if loop is self.section.spread else MAX_LANES)
        if loop is self.section.spread and self.section.blocks > 1:
            yield f"{pad}{axis} = (program % {self.section.blocks}) * {lanes} + tl.arange(0, {lanes})"
        elif extent > lanes:
            yield f"{pad}for {axis}_start in range(0, {extent}, {lanes}):"
            pad += "    "
            yield f"{pad}{axis} = {axis}_start + tl.arange(0, {lanes})"
        else:
            yield f"{pad}{axis} = tl.arange(0, {lanes})"
        yield f"{pad}{axis}_mask = {axis} < {extent}"
        outer = set(self.scope.lanes)
        self.scope.axis = axis
        self.scope.lanes.add(axis)
        yield from self._block(loop.body, pad)
        self.scope.axis, self.scope.lanes = "", outer
        stored = {stmt.buffer for stmt in loop.body if isinstance(stmt, Store)} - self.scope.registers
        if stored & self.loaded or any(isinstance(s, Store) and s.mode != "set" for s in loop.body):
            yield f"{pad}tl.debug_barrier()"

    # -- accumulators

    def _accumulator(self, acc: Accumulator, pad: str) -> Iterator[str]:
        self.accumulators[acc.name] = acc
        start = literal(identity(acc.kind, acc.dtype).item(), acc.dtype)
        if acc.kind in _ARG_KINDS:
            yield f"{pad}{acc.name}_value = {start}"
            yield f"{pad}{acc.name} = {literal(-1, int64)}"
        else:
            yield f"{pad}{acc.name} = {start}"

    def _accumulate(self, stmt: Accumulate, pad: str) -> Iterator[str]:
        acc = self.accumulators[stmt.name]
        value = self.expr.text(stmt.value)
        if stmt.at is not None:
            place = self.expr.index.text(stmt.at)
            if self.scope.axis:
                yield from self._best_of_lanes(acc, value, place, pad)
                value, place = "lanes_best", "lanes_place"
            yield from self._offer(acc, value, place, pad)
            return
        if self.scope.axis:
            neutral = literal(identity(acc.kind, acc.dtype).item(), acc.dtype)
            value = self._reduced(acc, f"tl.where({self.scope.axis}_mask, {value}, {neutral})")
        yield f"{pad}{acc.name} = {self._combined(acc, value)}"

    def _best_of_lanes(self, acc: Accumulator, value: str, place: str, pad: str) -> Iterator[str]:
        """The best value of a block, and the first place where it stands.

        It is compared as a block of itself: Triton's interpreter takes a truth value of one number, as a block, for a
        number.
        """
        neutral, mask = literal(identity(acc.kind, acc.dtype).item(), acc.dtype), f"{self.scope.axis}_mask"
        extreme = Accumulator(acc.name, acc.dtype, "min" if acc.kind == "argmin" else "max")
        yield f"{pad}lanes = tl.where({mask}, {value}, {neutral})"
        yield f"{pad}lanes_best = {self._reduced(extreme, 'lanes')}"
        yield f"{pad}each = tl.where({mask}, lanes_best, {neutral})"
        yield f"{pad}lanes_hit = {mask} & ((lanes == each) | ((lanes != lanes) & (each != each)))"
        self.helpers.add("lowest")
        last = literal(2**63 - 1, int64)
        yield f"{pad}lanes_place = dc_lowest(tl.where(lanes_hit, {literal(0, int64)} + ({place}), {last}))"

    def _offer(self, acc: Accumulator, value: str, place: str, pad: str) -> Iterator[str]:
        """argmax, argmin: the first of equal places, and the first NaN; argmax_nan: the last NaN."""
        name, sign = acc.name, "<" if acc.kind == "argmin" else ">"
        yield f"{pad}offered = {value}"
        first = "" if acc.kind == "argmax_nan" else f" & ({name}_value == {name}_value)"
        nan = f"((offered != offered){first})"
        yield f"{pad}better = ({name} < 0) | (offered {sign} {name}_value) | {nan}"
        yield f"{pad}{name}_value = tl.where(better, offered, {name}_value)"
        yield f"{pad}{name} = tl.where(better, {literal(0, int64)} + ({place}), {name})"

    def _reduced(self, acc: Accumulator, block: str) -> str:
        """A block reduced to a scalar."""
        if acc.dtype is bool_:
            any_or_all = "highest" if acc.kind in ("sum", "max") else "lowest"
            self.helpers.add(any_or_all)
            return f"(dc_{any_or_all}(({block}).to(tl.int32)) != 0)"
        back = f".to({register_type(acc.dtype)})"
        if acc.kind == "sum":
            self.helpers.add("sum")
            return f"dc_sum({block}){back}"
        if acc.kind == "prod":
            self.helpers.add("mul")
            return f"tl.reduce({block}, 0, dc_mul){back}"
        reduce = f"reduce_{acc.kind}" if acc.dtype.is_floating_point else _EXTREME[acc.kind]
        self.helpers.add(reduce)
        return f"dc_{reduce}({block}){back}"

    def _combined(self, acc: Accumulator, value: str) -> str:
        mode = {"sum": "add", "prod": "mul"}.get(acc.kind, acc.kind)
        return self._combine_halves(mode, acc.dtype, acc.name, value)

    def _combine_halves(self, mode: str, dtype: DType, old: str, value: str) -> str:
        """16-bit floats are combined in f32."""
        if dtype.compute is dtype:
            return self._combine(mode, dtype, old, value)
        wide = (self.expr.convert(text, dtype, float32) for text in (old, value))
        return self.expr.convert(self._combine(mode, float32, *wide), float32, dtype)

    def _combine(self, mode: str, dtype: DType, old: str, value: str) -> str:
        if dtype is bool_:
            return f"({old} {'|' if mode in ('add', 'max') else '&'} {value})"
        back = f".to({register_type(dtype)})"
        if mode in ("max", "min"):
            self.helpers.add(mode)
            return f"dc_{mode}({old}, {value}){back}"
        return f"({old} {'+' if mode == 'add' else '*'} {value}){back}"

    # -- stores

    def _store(self, stmt: Store) -> Iterator[str]:
        dtype = self.dtypes[stmt.buffer]
        value = self.expr.text(stmt.value)
        if stmt.buffer in self.scope.registers:
            yield f"{stmt.buffer} = {value}"
            self.scope.lanes.add(stmt.buffer)
            return
        pointer, mask = self.expr.address(stmt.buffer, stmt.index)
        if stmt.mode != "set":
            old = self.expr.text(Load(stmt.buffer, stmt.index, dtype))
            value = self._combine_halves(stmt.mode, dtype, old, value)
        if dtype is bool_:
            value = f"({value}).to({register_type(int8)})"
        yield f"tl.store({pointer}, {value}{f', mask={mask}' if mask else ''})"


def _loads(expr: Expr, name: str) -> list[Load]:
    return [e for e in walk_expr(expr) if isinstance(e, Load) and e.buffer == name]


def _touches(stmt: Stmt, name: str) -> bool:
    stores = isinstance(stmt, Store) and stmt.buffer == name
    return stores or any(_loads(expr, name) for expr in expressions(stmt))


def _power_of_two(extent: int) -> int:
    """The least power of two that holds `extent` lanes."""
    return 1 << max(0, math.ceil(math.log2(max(1, extent))))
