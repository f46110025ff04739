"""Sections of loop-IR kernels as `triton.jit` functions.

In: a `Section`, its `Tile`, the kernel's params. Out: the text of one function, and which scratch its launch needs.

    loop kinds    serial, parallel inside a program: `for ... in range`; vector: a block of `tile.lanes` columns, masked
                  to the extent, in strips if it is longer; block: `tile.rows` rows side by side, likewise
    shapes        rows are [R, 1], columns [1, C], what depends on both [R, C]; with one row, or no columns, [C] and [R]
    accumulators  scalars of their block; fed in one go: the block is reduced; fed by a loop: lane by lane, and reduced
                  after it (reduce.py)
    locals        a block of registers, if every access is at the running lane; else scratch memory of the program
    loads         of what nobody stores: once for all of equal text, so a row in registers is read once; in a loop whose
                  turns are in flight at once they come before its stores, and before the loop where no turn matters
    checks        the number of the failed message is stored to `status`; what follows in the block has no effect there
A buffer that a program stores and loads again gets a barrier after each vector loop that stores to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace

from compiler_core.codegen.triton.coarse import coarse
from compiler_core.codegen.triton.expressions import ExprPrinter, Scope, TritonIndexPrinter
from compiler_core.codegen.triton.reduce import Reducer, combine_halves, neutral
from compiler_core.codegen.triton.sections import Section, expressions, index_names, is_scalar_of_block, stays_in_lane
from compiler_core.codegen.triton.tiles import Tile, power_of_two
from compiler_core.codegen.triton.types import register_type
from compiler_core.dtype import DType, bool_, int8
from compiler_core.loop_ir.expr import Const, Expr, Load, ScalarCall, Where, children, walk_expr
from compiler_core.loop_ir.ir import (
    REDUCING,
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
from compiler_core.records import dataclass

_ZERO = "tl.full((), 0, tl.int64)"  # in a sum that must have 64 bits
_INT32_MAX = 2**31 - 1
_LANES_KEPT = 8192  # of what all turns share, in registers; of longer rows it is loaded in every turn


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
    tile: Tile
    number: Callable[[str], int]
    helpers: set[str]
    axes: set[str] = field(default_factory=set)
    scratch: list[Scratch] = field(default_factory=list)

    def __post_init__(self) -> None:
        body = self.section.body
        params = {p.name: p.dtype for p in self.kernel.params}
        self.locals = {s.name: s for s in walk(body) if isinstance(s, Local)}
        self.dtypes = params | {name: local.dtype for name, local in self.locals.items()}
        registers = {name for name in self.locals if self._fits_registers(name)}
        if self._added_by_rows() - registers:
            self.tile = replace(self.tile, rows=1)  # rows side by side would add to one place of scratch memory
        stored = {s.buffer for s in walk(body) if isinstance(s, Store)}
        self.scope = Scope(registers={name: frozenset() for name in registers}, constant=params.keys() - stored)
        self.expr = ExprPrinter(TritonIndexPrinter(self.helpers), self.helpers, self.dtypes, self.scope)
        self.is_wide = any(int(p.numel) > _INT32_MAX for p in self.kernel.params)
        self.loaded = {e.buffer for e in self._all_expressions() if isinstance(e, Load)}
        two = self.tile.rows > 1 and bool(self.section.blocks) and bool(self.section.vectors)
        self.counts: dict[str, int] = {}  # lanes of the axes of block and vector loops
        for loop in (*self.section.blocks, *self.section.vectors):
            self.counts[loop.axis.name] = self._lanes(loop)
        rows = {loop.axis.name for loop in self.section.blocks if self.tile.rows > 1}
        self.reduce = Reducer(self.scope, self.expr, self.counts, rows, two, self.helpers)
        self.coarse = coarse(body)
        self.n_checks = 0
        self.in_block = False

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

    @property
    def programs(self) -> int:
        return self.section.programs(self.tile)

    def _all_expressions(self) -> Iterator[Expr]:
        for stmt in walk(self.section.body):
            for expr in expressions(stmt):
                yield from walk_expr(expr)

    def _fits_registers(self, name: str) -> bool:
        """Whether local `name` is only touched at the running lane, and all its lanes are there at once."""
        numel = int(self.locals[name].numel)
        if numel == 1 and is_scalar_of_block(self.section.body, name):
            return True
        for loop in self.section.vectors:
            fits = loop.axis.name == self.section.columns or (numel <= self.tile.lanes and not loop.part_of)
            if fits and stays_in_lane(self.section.body, name, loop.axis.name, numel):
                return True
        return False

    def _added_by_rows(self) -> set[str]:
        """The locals that block loops add into."""
        inside = (stmt for loop in self.section.blocks for stmt in walk(loop.body))
        return {s.buffer for s in inside if isinstance(s, Store) and s.mode != "set" and s.buffer in self.locals}

    def _lanes(self, loop: Loop) -> int:
        """How many iterations of a block or vector loop stand side by side."""
        return min(power_of_two(loop.share), self.tile.rows if loop.kind == "block" else self.tile.lanes)

    # -- programs of the grid

    def _programs(self, pad: str) -> Iterator[str]:
        """Axis values of this program."""
        section, tile = self.section, self.tile
        if self.programs > 1 or any(self.locals.keys() - self.scope.registers.keys()):
            yield f"{pad}program = tl.program_id(0){'.to(tl.int64)' if self.is_wide else ''}"
        inner = section.column_blocks(tile) * section.row_blocks(tile)
        for loop in reversed(section.parallel):
            self.axes.add(loop.axis.name)
            rest = "program" if inner == 1 else f"(program // {inner})"
            is_outermost = loop is section.parallel[0]
            place = rest if is_outermost else f"{rest} % {loop.extent}"
            yield f"{pad}{loop.axis.name} = {place if self.programs > 1 else 0}"
            inner *= loop.extent

    def _row_block(self) -> str:
        """Which block of rows this program runs."""
        columns, rows = self.section.column_blocks(self.tile), self.section.row_blocks(self.tile)
        text = "program" if columns == 1 else f"(program // {columns})"
        return f"({text} % {rows})" if self.section.parallel else text

    # -- statements

    def _block(self, body: tuple[Stmt, ...], pad: str) -> Iterator[str]:
        if not body:
            yield f"{pad}pass"
        masks = len(self.scope.masks)
        known = self.scope.loaded
        self.scope.depth += 1
        for place, stmt in enumerate(body):
            match stmt:
                case Loop():
                    yield from self._loop(stmt, pad)
                    yield from (pad + line for line in self.reduce.finish(body[place + 1 :]))
                    continue
                case Check() if self._can_leave():
                    lines = [f"holds = {self.expr.text(stmt.condition)}", *self._failed("not holds", stmt)]
                    yield from self._after_loads([*lines, "if holds:"], pad)
                    pad += "    "
                    self.scope.loaded = dict(known)
                    continue
                case Check():
                    lines = self._masking_check(stmt)
                case Accumulator():
                    lines = [self.reduce.declare(stmt, body[place + 1 :], self._is_repeated)]
                case Accumulate():
                    lines = list(self.reduce.accumulate(stmt))
                case Local():
                    lines = []
                    self._local(stmt, body[place + 1 :])
                case Let(name, value):
                    lines = [f"{name} = {self._value(stmt)}"]
                    self.scope.lanes[name] = self.expr.dims(value)
                    self.scope.lets[name] = self.expr.depends_on_place(value)
                case Store():
                    lines = self._store(stmt)
            yield from self._after_loads(lines, pad)
        if isinstance(body[-1] if body else None, Check) and self._can_leave():
            yield f"{pad}pass"
        del self.scope.masks[masks:]
        self.scope.loaded = known
        self.scope.depth -= 1

    def _after_loads(self, lines: list[str], pad: str) -> Iterator[str]:
        """The loads that `lines` name, then `lines`."""
        yield from (pad + line for line in self.scope.before)
        self.scope.before.clear()
        yield from (pad + line for line in lines)

    def _can_leave(self) -> bool:
        """Whether a failed check may skip the rest of the block: nothing stands beside it."""
        return not self.in_block and not self.scope.axes

    def _failed(self, condition: str, check: Check) -> list[str]:
        return [f"if {condition}:", f"    tl.store(status, {1 + self.number(check.message)})  # {check.message}"]

    def _masking_check(self, check: Check) -> list[str]:
        """Rows and lanes where it fails are masked from here on."""
        name = f"holds{self.n_checks}"
        self.n_checks += 1
        dims = self.expr.dims(check.condition)
        lines = [f"{name} = {self.expr.text(check.condition)}"]
        if not dims:
            lines += self._failed(f"not {name}", check)
        else:
            wide = dims.union(*(mask_dims for _, mask_dims in self.scope.masks))
            place, mask = self.expr.spread("status", wide), self.expr.mask(wide, self.scope.masks, f"(~{name})")
            lines.append(f"tl.store({place}, {1 + self.number(check.message)}, mask={mask})  # {check.message}")
        self.scope.masks.append((name, dims))
        return lines

    def _local(self, local: Local, after: tuple[Stmt, ...]) -> None:
        if local.name not in self.scope.registers:
            self.scratch.append(Scratch(local.name, local.dtype, int(local.numel)))
            return
        modes = {s.mode for s in walk(after) if isinstance(s, Store) and s.buffer == local.name and s.mode != "set"}
        if modes:
            self.reduce.declare_local(local, REDUCING[modes.pop()].kind, after)

    # -- loops

    def _is_repeated(self, loop: Loop) -> bool:
        """Whether the program runs the loop's body more than once."""
        if loop.kind not in ("vector", "block"):
            return True
        if loop is self.section.rows or loop.axis.name == self.section.columns:
            return False
        return loop.span is not None or loop.share > self.counts[loop.axis.name]

    def _loop(self, loop: Loop, pad: str) -> Iterator[str]:
        self.axes.add(loop.axis.name)
        if loop.kind in ("vector", "block"):
            yield from self._lane_loop(loop, pad)
            return
        yield f"{pad}for {loop.axis.name} in range({', '.join(self._ends(loop))}):"
        yield from [f"{pad}    {loop.axis.name} = {_ZERO} + {loop.axis.name}"] * self.is_wide
        yield from self._repeated(loop.body, pad)

    def _repeated(self, body: tuple[Stmt, ...], pad: str, ahead: Sequence[Loop] = ()) -> Iterator[str]:
        known, self.scope.loaded = self.scope.loaded, dict(self.scope.loaded)
        yield from self._fetch(ahead, pad + "    ")
        yield from self._block(body, pad + "    ")
        self.scope.loaded = known

    def _lane_loop(self, loop: Loop, pad: str) -> Iterator[str]:
        """A block of lanes: this program's share of them, all, or strips."""
        axis, lanes = loop.axis.name, self.counts[loop.axis.name]
        was_in_block, self.in_block = self.in_block, True
        lines, mask, repeated = self._header(loop, lanes)
        ahead = self._fetched_ahead(loop) if repeated else []
        yield from self._fetch(ahead if self.tile.lanes <= _LANES_KEPT else [], pad, loop.axis.name)
        yield from (pad + line for line in lines)
        outer = dict(self.scope.lanes)
        yield from self._enter(loop, mask, repeated, pad + "    " if repeated else pad)
        yield from self._repeated(loop.body, pad, ahead) if repeated else self._block(loop.body, pad)
        self.scope.axes.pop(axis, None)
        self.scope.lanes = outer
        self.in_block = was_in_block
        yield from self._barrier(loop, pad)

    def _enter(self, loop: Loop, mask: str, repeated: bool, pad: str) -> Iterator[str]:
        """What `loop`'s axis is in its body; the scope knows of it from then on."""
        axis, lanes = loop.axis.name, self.counts[loop.axis.name]
        if lanes > 1 or loop.kind == "vector":
            wide = f"{_ZERO} + " * self.is_wide
            line = f"{axis} = {wide}{self._start(loop, repeated, lanes)}{self.reduce.lane_numbers(loop, lanes)}"
            if repeated or line not in self.scope.loaded:
                yield pad + line
                yield from [f"{pad}{axis}_mask = {axis} < {mask}"] * bool(mask)
                self.scope.loaded |= {line: axis} if not repeated else {}
            self.scope.axes[axis] = f"{axis}_mask" if mask else ""
            self.scope.lanes[axis] = frozenset((axis,))
        elif not repeated:
            yield f"{pad}{axis} = {self._start(loop, repeated, lanes).removesuffix(' + ') or 0}"
        elif self.is_wide:
            yield f"{pad}{axis} = {_ZERO} + {axis}"

    # -- loads ahead of a turn's stores

    def _fetched_ahead(self, loop: Loop) -> list[Loop]:
        """The vector loops in `loop` whose loads come first in each of its turns.

        The compiler moves no load up past a store, and none out of a loop that stores: where turns are in flight at
        once (`tile.stages`), that is done here.
        """
        if not self.tile.stages or any(isinstance(stmt, Check) for stmt in walk(self.section.body)):
            return []
        inner = [stmt for stmt in loop.body if isinstance(stmt, Loop) and stmt.kind == "vector"]
        return [one for one in inner if self._header(one, self.counts[one.axis.name])[0::2] == ([], False)]

    def _fetch(self, loops: Sequence[Loop], pad: str, apart_from: str = "") -> Iterator[str]:
        """Loads of these loops that need nothing but axes; apart_from: an axis that they do not need, either."""
        for loop in loops:
            self.axes.add(loop.axis.name)
            outer = dict(self.scope.lanes)
            yield from self._enter(loop, self._header(loop, self.counts[loop.axis.name])[1], False, pad)
            for load in _plain_loads(loop.body):
                if index_names(load) <= self.axes - {apart_from} and load.buffer in self.scope.constant:
                    self.expr.text(load)
            yield from self._after_loads([], pad)
            self.scope.axes.pop(loop.axis.name, None)
            self.scope.lanes = outer

    def _header(self, loop: Loop, lanes: int) -> tuple[list[str], str, bool]:
        """Lines that begin a loop over strips, what the lanes are below (or ""), whether it is a loop."""
        axis, extent, share = loop.axis.name, loop.extent, loop.share
        if loop is self.section.rows or axis == self.section.columns:
            return [], str(extent) if extent % lanes else "", False
        variable = f"{axis}_start" if lanes > 1 or loop.kind == "vector" else axis
        if loop.span:
            first, end = self._ends(loop)
            lines = [f"{axis}_end = {end}", f"for {variable} in {self._range(f'{first}, {axis}_end, {lanes}')}:"]
            return lines, f"{axis}_end" if lanes > 1 else "", True
        if not loop.part_of:
            repeated = extent > lanes
            lines = [f"for {variable} in {self._range(f'0, {extent}, {lanes}')}:"] if repeated else []
            return lines, str(extent) if extent % lanes else "", repeated
        first = f"{loop.part_of.name} * {share}"
        exact = share * loop.part_of.extent == extent
        end = f"{first} + {share}" if exact else f"tl.minimum({first} + {share}, {extent})"
        lines = [f"{axis}_end = {end}"]
        repeated = share > lanes or (lanes == 1 and loop.kind == "block")
        if repeated:
            lines.append(f"for {variable} in {self._range(f'{first}, {axis}_end, {lanes}')}:")
        return lines, f"{axis}_end" if share % lanes or not exact else "", repeated

    def _ends(self, loop: Loop) -> list[str]:
        """Begin and end of a serial loop."""
        return [self.expr.index.text(end) for end in loop.span] if loop.span else [str(loop.extent)]

    def _range(self, bounds: str) -> str:
        return f"tl.range({bounds}, num_stages={self.tile.stages})" if self.tile.stages else f"range({bounds})"

    def _start(self, loop: Loop, repeated: bool, lanes: int) -> str:
        """The first lane, as text to which lane numbers are added."""
        axis = loop.axis.name
        if repeated:
            return f"{axis}_start + "
        if loop is self.section.rows:
            if self.section.row_blocks(self.tile) == 1:
                return ""
            return f"{self._row_block()} * {lanes} + " if lanes > 1 else f"{self._row_block()} + "
        if axis == self.section.columns:
            blocks = self.section.column_blocks(self.tile)
            return f"(program % {blocks}) * {lanes} + " if blocks > 1 else ""
        return f"{loop.part_of.name} * {loop.share} + " if loop.part_of else ""

    def _barrier(self, loop: Loop, pad: str) -> Iterator[str]:
        if loop.kind != "vector":
            return
        stored = {s.buffer for s in loop.body if isinstance(s, Store)} - self.scope.registers.keys()
        adds = any(isinstance(s, Store) and s.mode != "set" and s.buffer in stored for s in loop.body)
        if stored & self.loaded or adds:
            yield f"{pad}tl.debug_barrier()"

    def _value(self, let: Let) -> str:
        if let.name not in self.coarse:
            return self.expr.text(let.value)
        assert isinstance(let.value, ScalarCall), "a tanh or erf"
        helper = f"{let.value.scalar}_coarse"
        self.helpers.add(helper)
        return f"dc_{helper}({self.expr.text(let.value.args[0])})"

    # -- stores

    def _store(self, stmt: Store) -> list[str]:
        dtype = self.dtypes[stmt.buffer]
        if stmt.buffer in self.scope.registers:
            return self._store_register(stmt, dtype)
        value = self.expr.text(stmt.value)
        pointer, mask = self.expr.address(stmt.buffer, stmt.index)
        if stmt.mode != "set":
            old = self.expr.text(Load(stmt.buffer, stmt.index, dtype))
            value = combine_halves(self.expr, stmt.mode, dtype, old, value)
        if dtype is bool_:
            value = f"({value}).to({register_type(int8)})"
        return [f"tl.store({pointer}, {value}{f', mask={mask}' if mask else ''})"]

    def _store_register(self, stmt: Store, dtype: DType) -> list[str]:
        name = stmt.buffer
        dims = self.expr.index_dims(stmt.index)
        if stmt.mode == "set":
            self.scope.registers[name] = dims | self.expr.dims(stmt.value)
            if isinstance(stmt.value, Const):
                whole = self.reduce.local_dims(name, dims | frozenset(self.scope.axes))
                return [f"{name} = {self.reduce.filled(whole, stmt.value.value, dtype)}"]
            return [f"{name} = {self.expr.text(stmt.value)}"]
        rows = frozenset(self.scope.axes) & self.reduce.rows
        value = self.reduce.masked(self.expr.text(stmt.value), stmt.value, neutral(stmt.mode, dtype), rows)
        return [f"{name} = {combine_halves(self.expr, stmt.mode, dtype, name, value)}"]


def _plain_loads(body: Sequence[Stmt]) -> Iterator[Load]:
    """The loads of `body`, itself, that are made whatever the values are."""

    def of(expr: Expr) -> Iterator[Load]:
        if isinstance(expr, Load):
            yield expr
        elif not isinstance(expr, Where):
            for child in children(expr):
                yield from of(child)

    for stmt in body:
        if not isinstance(stmt, Loop):
            for expr in expressions(stmt):
                yield from of(expr)
