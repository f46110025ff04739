"""Kernels of the loop IR as C++ functions.

In: a `Kernel`, a numbering of check messages. Out: a function definition, and what it uses of helpers and libm.

    loop kinds   serial: for; vector: `#pragma omp simd`, with a reduction clause for every accumulator that it feeds;
                 (feeding a complex one: a plain for);
                 parallel: for; on the outermost `dc_parallel`, if the work pays
                 of a parallel loop: each iteration of that runs its share, rounded up
    transposed   a nest that reads across the lines of memory goes tile by tile (tiling.py)
    short rows   a loop over rows of a few elements goes by several rows side by side (side_by_side.py)
    held         rows that a loop adds to again and again are local arrays meanwhile (held.py)
    checks       a kernel with checks returns a status: 0, or 1 + the number of the message
Sums of f32 over more than `SUM_BLOCK` elements are taken in blocks, whose sums are then added: the rounding error of
one long running sum would grow with its length. Locals over `STACK_LIMIT` bytes live in thread-local storage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field

from compiler_core.codegen.cpp.expressions import ExprPrinter
from compiler_core.codegen.cpp.held import Held, find_held
from compiler_core.codegen.cpp.index import CppIndexPrinter
from compiler_core.codegen.cpp.many_sizes import MARK, PARALLEL_WORK
from compiler_core.codegen.cpp.scalars import Used
from compiler_core.codegen.cpp.side_by_side import LANES, LanePrinter, Place, SideBySide, find_side_by_side
from compiler_core.codegen.cpp.tiling import TILE, Tiling, find_tiling
from compiler_core.codegen.cpp.types import is_half, literal, register_type, storage_type, strip, unsigned_type
from compiler_core.dtype import DType, bool_, float32
from compiler_core.loop_ir.expr import Load
from compiler_core.loop_ir.interpret import identity
from compiler_core.loop_ir.ir import (
    REDUCING,
    Accumulate,
    Accumulator,
    Check,
    Kernel,
    Let,
    Local,
    Loop,
    Param,
    Stmt,
    Store,
    walk,
)
from compiler_core.records import dataclass
from compiler_core.symbolic.index import Axis

SUM_BLOCK = 16384  # elements
PLACE_BLOCK = 256  # elements among which argmax first finds the value, then the place
STACK_LIMIT = 32 * 1024  # bytes; a thread of macOS has a stack of 512 KiB


@dataclass
class KernelPrinter:
    """Prints one kernel. number: message -> its number, 0 and up. opened: for many sizes (many_sizes.py): functions are
    given `dc_n`, and are cut the same whatever the sizes."""

    kernel: Kernel
    number: Callable[[str], int]
    opened: bool = False
    used: Used = field(default_factory=Used)
    held_as: dict[str, str] = field(default_factory=dict)
    from_tiles: dict[Load, str] = field(default_factory=dict)
    moved: dict[Place, str] = field(default_factory=dict)  # stores that go elsewhere for now
    accumulators: dict[str, Accumulator] = field(default_factory=dict)
    in_parallel: bool = False
    name: str = ""
    parts: dict[str, str] = field(default_factory=dict)  # functions of the nests that are shared out, by their names
    flags: dict[Check, str] = field(default_factory=dict)  # of a vector loop's checks: whether one failed
    n_flags: int = 0  # a row may have several loops over one axis
    in_block: dict[str, str] = field(default_factory=dict)  # argmax -> the place within its block, in such a loop

    def __post_init__(self) -> None:
        self.may_share = all(isinstance(stmt, Loop) for stmt in self.kernel.body)
        self.has_checks = any(isinstance(stmt, Check) for stmt in walk(self.kernel.body))
        self.expr = ExprPrinter(CppIndexPrinter(self.used.helpers), self.used, self.held_as, self.from_tiles)
        self.params = {p.name: p for p in self.kernel.params}
        self.dtypes = {p.name: p.dtype for p in self.kernel.params}

    def text(self, name: str) -> str:
        """The definition of the function, called `name`, and of what it calls."""
        function = self.function(name)
        return "\n".join([*self.parts.values(), function])

    def function(self, name: str) -> str:
        """The definition of the function alone; `parts` must stand before it."""
        self.name = name
        lines = list(self._block(self.kernel.body, "  ", loop=False))
        if self.has_checks:
            lines = ["  int32_t status = 0;", *lines, "  return status;"]
        head = f"DC_APART {signature(self.kernel, name, opened=self.opened)} {{"
        return "\n".join([head, *self._mark(), *lines, "}", ""])

    def _mark(self) -> list[str]:
        return [f"  {MARK}"] if self.opened else []

    def _block(self, body: tuple[Stmt, ...], pad: str, *, loop: bool) -> Iterator[str]:
        for stmt in body:
            match stmt:
                case Loop():
                    yield from self._loop(stmt, pad)
                case Accumulator():
                    yield from self._accumulator(stmt, pad)
                case Accumulate():
                    yield from self._accumulate(stmt, pad)
                case Check(condition) if stmt in self.flags:
                    yield f"{pad}{self.flags[stmt]} |= !{self.expr.text(condition)};"
                case Check(condition, message):
                    leave = "continue;" if loop else "return status;"
                    yield f"{pad}if (!{self.expr.text(condition)}) {{"
                    yield f"{pad}  status = {1 + self.number(message)};  // {message}"
                    yield f"{pad}  {leave}"
                    yield f"{pad}}}"
                case Local(name, dtype, numel):
                    self.dtypes[name] = dtype
                    yield from self._local(name, dtype, int(numel), pad)
                case Let(name, value):
                    yield f"{pad}const {register_type(value.dtype)} {name} = {strip(self.expr.text(value))};"
                case Store():
                    yield pad + self._store(stmt)

    def _local(self, name: str, dtype: DType, numel: int, pad: str) -> Iterator[str]:
        ctype, room = storage_type(dtype), self._room(numel)
        if numel * dtype.itemsize <= STACK_LIMIT:
            yield f"{pad}alignas(64) {ctype} {name}[{room}];"
            return
        yield f"{pad}alignas(64) static thread_local {ctype} {name}_kept[{room}];"
        yield f"{pad}{ctype}* {name} = {name}_kept;"
        yield f'{pad}asm("" : "+r"({name}));  // else loops ask for its address in every turn, by a call'

    def _room(self, numel: int) -> str:
        """The extent of a local array. For many sizes a power of two in hexadecimal, which stays a constant."""
        return hex(1 << (max(numel, 1) - 1).bit_length()) if self.opened else str(max(numel, 1))

    def _loop(self, loop: Loop, pad: str) -> Iterator[str]:
        tiling = find_tiling(loop, self.params)
        if tiling is not None:
            yield from self._tiled_nest(tiling, pad)
            return
        rows = None if self.opened else find_side_by_side(loop, self.params)
        if rows is not None:
            yield from self._side_by_side(rows, pad)
            return
        fed = self._fed_by(loop) if loop.kind == "vector" else []
        long_sum = any(a.kind == "sum" and a.dtype is float32 for a in fed) and loop.extent > SUM_BLOCK
        if long_sum or any(REDUCING[a.kind].is_place for a in fed):
            yield from self._blocked_loop(loop, fed, pad)
            return
        outermost = loop.kind == "parallel" and self.may_share and not self.in_parallel
        if outermost and (self.opened or _work(loop) >= PARALLEL_WORK):
            self.in_parallel = True
            lines = self._simple_loop(loop, fed, "  ", "dc_from", "dc_to")
            yield self._shared(_work(loop), loop.extent, lines, pad)
            self.in_parallel = False
            return
        yield from self._simple_loop(loop, fed, pad)

    def _shared(self, work: int, count: int, lines: Iterable[str], pad: str) -> str:
        """The call that shares out a nest, whose `lines` run from `dc_from` to `dc_to`, and become a function.

        Not a lambda's body: GCC 12 takes conditional loads through captured pointers for scalar ones.
        """
        name = f"{self.name}_part{len(self.parts)}"
        status = ["int32_t& status"] if self.has_checks else []
        parameters = [*parameters_of(self.kernel, opened=self.opened), *status, "int64_t dc_from", "int64_t dc_to"]
        apart = "DC_APART " if self.opened else ""  # `dc_share` calls it from two places
        head = f"{apart}static void {name}({', '.join(parameters)}) {{"
        self.parts[name] = "\n".join([head, *self._mark(), *lines, "}", ""])
        table = ["dc_n"] if self.opened else []
        values = [*table, *self.params, *(["status"] if self.has_checks else []), "dc_from", "dc_to"]
        captured = "=, &status" if self.has_checks else "="
        call = f"{name}({', '.join(values)});"
        share = f"dc_share({work}, {count}" if self.opened else f"dc_parallel({count}, 1"
        return f"{pad}{share}, [{captured}](int64_t dc_from, int64_t dc_to) {{ {call} }});"

    def _tiled_nest(self, tiling: Tiling, pad: str) -> Iterator[str]:
        """The nest in tiles: what crosses the lines of memory is read along them first, into a local array."""
        work = math.prod(loop.extent for loop in (*tiling.outer, tiling.rows, tiling.columns))
        heads = [*map(_head, tiling.outer), *map(_tiles_head, (tiling.rows, tiling.columns))]
        if self.in_parallel or not self.may_share or (work < PARALLEL_WORK and not self.opened):
            yield from self._nest(heads, tiling, pad)
            return
        first = tiling.outer[0] if tiling.outer else None
        heads[0] = _head(first, "dc_from", "dc_to") if first else _tiles_head(tiling.rows, "dc_from", "dc_to")
        count = int(first.extent) if first else -(-int(tiling.rows.extent) // TILE)
        self.in_parallel = True
        yield self._shared(work, count, self._nest(heads, tiling, "  "), pad)
        self.in_parallel = False

    def _nest(self, heads: list[str], tiling: Tiling, pad: str) -> Iterator[str]:
        for depth, head in enumerate(heads):
            yield f"{pad}{'  ' * depth}for {head} {{"
        yield from self._tile(tiling, pad + "  " * len(heads))
        for depth in reversed(range(len(heads))):
            yield f"{pad}{'  ' * depth}}}"

    def _tile(self, tiling: Tiling, pad: str) -> Iterator[str]:
        row, column = tiling.rows.axis.name, tiling.columns.axis.name
        by_row, by_column = (_tile_loop(loop, opened=self.opened) for loop in (tiling.rows, tiling.columns))
        for number, load in enumerate(tiling.loads):
            place = f"tile{number}[{column} - {column}_tile][{row} - {row}_tile]"
            yield f"{pad}alignas(64) {storage_type(load.dtype)} tile{number}[{TILE}][{TILE + 1}];"
            yield f"{pad}for {by_column} {{"
            yield f"{pad}  #pragma omp simd"
            yield f"{pad}  for {by_row} {{"
            yield f"{pad}    {place} = {load.buffer}[{self.expr.index.text(load.index)}];"
            yield f"{pad}  }}"
            yield f"{pad}}}"
            self.from_tiles[load] = place
        yield f"{pad}for {by_row} {{"
        yield f"{pad}  #pragma omp simd"
        yield f"{pad}  for {by_column} {{"
        yield from self._block(tiling.columns.body, pad + "    ", loop=True)
        yield f"{pad}  }}"
        yield f"{pad}}}"
        self.from_tiles.clear()

    def _side_by_side(self, rows: SideBySide, pad: str) -> Iterator[str]:
        """The loop by tiles of rows, and the rows that are left; shared out by tiles, whole ones."""
        work = _work(rows.loop)
        if rows.loop.kind != "parallel" or not self.may_share or self.in_parallel or work < PARALLEL_WORK:
            yield from self._tiles_of_rows(rows, pad)
            return
        self.in_parallel = True
        lines = self._tiles_of_rows(rows, "  ", f"dc_from * {LANES}", f"dc_to * {LANES}")
        yield self._shared(work, -(-int(rows.loop.extent) // LANES), lines, pad)
        self.in_parallel = False

    def _tiles_of_rows(self, rows: SideBySide, pad: str, start: str = "0", stop: str = "") -> Iterator[str]:
        axis, extent = rows.loop.axis.name, int(rows.loop.extent)
        whole, some = extent // LANES * LANES, f" && {axis}_tile < {stop}" if stop else ""
        yield f"{pad}for (int64_t {axis}_tile = {start}; {axis}_tile < {whole}{some}; {axis}_tile += {LANES}) {{"
        lanes = LanePrinter(
            rows,
            lambda body, pad: self._block(body, pad, loop=True),
            _accumulator_type,
            self.number,
            self.expr,
            self.from_tiles,
            self.moved,
            self.dtypes,
        )
        yield from lanes.tile(pad + "  ")
        yield f"{pad}}}"
        if whole < extent:
            some = f" && {axis} < {stop}" if stop else ""
            yield f"{pad}for (int64_t {axis} = {whole}; {axis} < {extent}{some}; ++{axis}) {{"
            yield from self._block(rows.loop.body, pad + "  ", loop=True)
            yield f"{pad}}}"

    def _simple_loop(
        self, loop: Loop, fed: list[Accumulator], pad: str, start: str = "0", stop: str = ""
    ) -> Iterator[str]:
        axis = loop.axis.name
        checks = [stmt for stmt in loop.body if isinstance(stmt, Check)] if loop.kind == "vector" else []
        messages = dict.fromkeys(c.message for c in checks)
        flags = {text: f"{axis}_wrong{k}" for k, text in enumerate(messages, self.n_flags)}
        self.n_flags += len(flags)
        self.flags = {check: flags[check.message] for check in checks}
        yield from (f"{pad}int32_t {flag} = 0;" for flag in flags.values())
        if loop.kind == "vector" and not any(a.dtype.is_complex for a in fed):
            summed = [a for a in fed if not REDUCING[a.kind].is_place]
            clauses = "".join(f" reduction({_reduction_operator(a, self.used)}:{a.name})" for a in summed)
            clauses += "".join(f" reduction(|:{flag})" for flag in flags.values())
            yield f"{pad}#pragma omp simd{clauses}"
        if loop.part_of is not None:
            start, stop = f"{loop.part_of.name}*{loop.share}", f"{axis}_stop"
            end = f"{start} + {loop.share}"
            yield f"{pad}const int64_t {stop} = {end} < {loop.extent} ? {end} : {loop.extent};"
        held = [] if self.opened else find_held(loop, self.dtypes)
        yield from self._hold(held, axis, pad)
        yield f"{pad}for (int64_t {axis} = {start}; {axis} < {stop or loop.extent}; ++{axis}) {{"
        yield from self._block(loop.body, pad + "  ", loop=True)
        yield f"{pad}}}"
        yield from self._let_go(held, pad)
        for message, flag in reversed(flags.items()):  # the first of them is told
            yield f"{pad}if ({flag}) status = {1 + self.number(message)};  // {message}"
        self.flags = {}

    def _hold(self, held: list[Held], outer: str, pad: str) -> Iterator[str]:
        """Rows that a loop adds to as local arrays (held.py)."""
        for one in held:
            axis, (buffer, index), dtype = one.columns.axis, (one.store.buffer, one.store.index), self.dtypes
            yield f"{pad}alignas(64) {storage_type(dtype[buffer])} {buffer}_held_{outer}[{axis.extent}];"
            place = f"{buffer}_held_{outer}[{axis.name}]"
            yield from self._copied(axis, place, f"{buffer}[{self.expr.index.text(index)}]", pad)
            self.moved[buffer, index] = place

    def _let_go(self, held: list[Held], pad: str) -> Iterator[str]:
        for one in held:
            buffer, index = one.store.buffer, one.store.index
            place = self.moved.pop((buffer, index))
            yield from self._copied(one.columns.axis, f"{buffer}[{self.expr.index.text(index)}]", place, pad)

    def _copied(self, axis: Axis, target: str, source: str, pad: str) -> Iterator[str]:
        yield f"{pad}#pragma omp simd"
        yield f"{pad}for (int64_t {axis.name} = 0; {axis.name} < {axis.extent}; ++{axis.name}) {target} = {source};"

    def _blocked_loop(self, loop: Loop, fed: list[Accumulator], pad: str) -> Iterator[str]:
        """A vector loop in blocks; the accumulators inside a block hide those outside of the same name.

        A block's values for an argmax are kept: its best is found when it is complete, and then, if it wins, its place.
        """
        axis, extent = loop.axis.name, loop.extent
        places = {a.name: f"{axis} - {axis}_start" for a in fed if REDUCING[a.kind].is_place}
        summed = [a for a in fed if a.name not in places]
        block = PLACE_BLOCK if places else SUM_BLOCK
        yield f"{pad}for (int64_t {axis}_start = 0; {axis}_start < {extent}; {axis}_start += {block}) {{"
        full = f"{axis}_start + {block}"
        yield f"{pad}  const int64_t {axis}_stop = {full} < {extent} ? {full} : {extent};"
        for a in summed:
            yield f"{pad}  {_accumulator_type(a)}* const {a.name}_total = &{a.name};"
        yield f"{pad}  {{"
        for a in summed:
            yield f"{pad}    {_accumulator_type(a)} {a.name} = {_identity(a)};"
        for name in places:
            yield f"{pad}    alignas(64) {_accumulator_type(self.accumulators[name])} {name}_block[{block}];"
        self.in_block = places
        yield from self._simple_loop(loop, fed, pad + "    ", f"{axis}_start", f"{axis}_stop")
        self.in_block = {}
        for a in summed:
            yield f"{pad}    *{a.name}_total = {self._combine(a, f'*{a.name}_total', a.name)};"
        for stmt in (s for s in loop.body if isinstance(s, Accumulate) and s.name in places):
            yield from self._offer_block(stmt, axis, pad + "    ")
        yield f"{pad}  }}"
        yield f"{pad}}}"

    def _offer_block(self, stmt: Accumulate, axis: str, pad: str) -> Iterator[str]:
        """The best of a block against the best so far."""
        name, helper = stmt.name, f"offer_{REDUCING[self.accumulators[stmt.name].kind].kind}"
        self.used.helpers.add(helper)
        found = f"dc_{helper}({name}_block, {axis}_stop - {axis}_start, {name}_value, {name} < 0)"
        assert stmt.at is not None, f"{name} has no place"
        yield f"{pad}if (const int32_t found = {found}; found >= 0) {{"
        yield f"{pad}  const int64_t {axis} = {axis}_start + found;"
        yield f"{pad}  {name} = {self.expr.index.text(stmt.at)};"
        yield f"{pad}}}"

    def _fed_by(self, loop: Loop) -> list[Accumulator]:
        """The accumulators that `loop` reduces into, each once, in order."""
        names = dict.fromkeys(stmt.name for stmt in walk(loop.body) if isinstance(stmt, Accumulate))
        return [self.accumulators[name] for name in names]

    def _accumulator(self, acc: Accumulator, pad: str) -> Iterator[str]:
        self.accumulators[acc.name] = acc
        if REDUCING[acc.kind].is_place:
            yield f"{pad}{_accumulator_type(acc)} {acc.name}_value = {_identity(acc)};"
            yield f"{pad}int64_t {acc.name} = -1;"
            return
        if _accumulator_type(acc) != register_type(acc.dtype):
            self.held_as[acc.name] = _accumulator_type(acc)
        yield f"{pad}{_accumulator_type(acc)} {acc.name} = {_identity(acc)};"

    def _accumulate(self, stmt: Accumulate, pad: str) -> Iterator[str]:
        acc = self.accumulators[stmt.name]
        value = self.expr.text(stmt.value)
        if is_half(acc.dtype):
            value = self.expr.convert(value, acc.dtype, float32)
        if stmt.at is None:
            yield f"{pad}{acc.name} = {self._combine(acc, acc.name, value)};"
            return
        if acc.name in self.in_block:
            yield f"{pad}{acc.name}_block[{self.in_block[acc.name]}] = {strip(value)};"
            return
        how, value_type = REDUCING[acc.kind], _accumulator_type(acc)
        nan = "value != value" + ("" if how.last_nan else f" && {acc.name}_value == {acc.name}_value")
        yield f"{pad}{{"
        yield f"{pad}  const {value_type} value = {strip(value)};"
        yield f"{pad}  const bool nan_wins = {nan};"
        yield f"{pad}  if ({acc.name} < 0 || value {how.beats} {acc.name}_value || nan_wins) {{"
        yield f"{pad}    {acc.name}_value = value;"
        yield f"{pad}    {acc.name} = {self.expr.index.text(stmt.at)};"
        yield f"{pad}  }}"
        yield f"{pad}}}"

    def _combine(self, acc: Accumulator, left: str, right: str) -> str:
        how = REDUCING[acc.kind]
        if how.operator == "*" and acc.dtype.is_complex:
            return self._product(left, right)
        if symbol := how.symbol(acc.dtype):
            cast = "" if acc.dtype.is_inexact or acc.dtype is bool_ else f"({_accumulator_type(acc)})"
            return f"{left} {symbol} {cast}{right}"
        self.used.helpers.add(acc.kind)
        return f"dc_{acc.kind}({left}, {strip(right)})"

    def _product(self, left: str, right: str) -> str:
        self.used.helpers.add("c_mul")
        return f"dc_c_mul({left}, {strip(right)})"

    def _store(self, stmt: Store) -> str:
        dtype = self.dtypes[stmt.buffer]
        place = self.moved.get((stmt.buffer, stmt.index)) or f"{stmt.buffer}[{self.expr.index.text(stmt.index)}]"
        value = self.expr.text(stmt.value)
        if stmt.mode == "set":
            return f"{place} = {strip(value)};"
        if dtype is bool_:
            return f"{place} = ({place} != 0) {REDUCING[stmt.mode].bits} {value};"
        if is_half(dtype):
            old = self.expr.convert(place, dtype, float32)
            combined = self._combine_stored(stmt.mode, float32, old, self.expr.convert(value, dtype, float32))
            return f"{place} = {self.expr.convert(combined, float32, dtype)};"
        return f"{place} = {strip(self._combine_stored(stmt.mode, dtype, place, value))};"

    def _combine_stored(self, mode: str, dtype: DType, old: str, value: str) -> str:
        if not (operator := REDUCING[mode].operator):
            self.used.helpers.add(mode)
            return f"dc_{mode}({old}, {value})"
        if operator == "*" and dtype.is_complex:
            return self._product(old, value)
        if dtype.is_inexact:
            return f"({old} {operator} {value})"
        wide = unsigned_type(dtype)
        return f"({dtype.ctype})(({wide}){old} {operator} ({wide}){value})"


def _head(loop: Loop, start: str = "0", stop: str = "") -> str:
    """The head of a loop over all of its iterations, or over some."""
    axis = loop.axis.name
    return f"(int64_t {axis} = {start}; {axis} < {stop or loop.extent}; ++{axis})"


def _tiles_head(loop: Loop, start: str = "", stop: str = "") -> str:
    """The head of a loop over the tiles of `loop`, or over those from number `start` to `stop`."""
    tile, end = f"{loop.axis.name}_tile", str(loop.extent)
    some = f" && {tile} < {stop} * {TILE}" if stop else ""
    return f"(int64_t {tile} = {f'{start} * {TILE}' if start else 0}; {tile} < {end}{some}; {tile} += {TILE})"


def _tile_loop(loop: Loop, *, opened: bool) -> str:
    """The head of a loop within a tile; the last tile may be smaller."""
    axis, extent, stop = loop.axis.name, loop.extent, f"{loop.axis.name}_tile + {TILE}"
    if extent % TILE or opened:
        stop = f"({stop} < {extent} ? {stop} : {extent})"
    return f"(int64_t {axis} = {axis}_tile; {axis} < {stop}; ++{axis})"


def signature(kernel: Kernel, name: str, *, opened: bool = False) -> str:
    """The declaration of `kernel` as a function called `name`, without a semicolon."""
    result = "int32_t" if any(isinstance(stmt, Check) for stmt in walk(kernel.body)) else "void"
    return f"{result} {name}({', '.join(parameters_of(kernel, opened=opened))})"


def parameters_of(kernel: Kernel, *, opened: bool) -> list[str]:
    """What a kernel's function is given."""
    return [*(["const int64_t* dc_n"] if opened else []), *map(_parameter, kernel.params)]


def _parameter(param: Param) -> str:
    const = "const " if param.access == "in" else ""
    return f"{const}{storage_type(param.dtype)}* {param.name}"


def _work(loop: Loop) -> int:
    """Innermost iterations of the nest below `loop`."""
    return int(loop.share) * max([1, *(_work(stmt) for stmt in loop.body if isinstance(stmt, Loop))])


def _accumulator_type(acc: Accumulator) -> str:
    if is_half(acc.dtype):
        return "float"
    if acc.dtype is bool_:
        return "uint8_t"
    if REDUCING[acc.kind].operator and not acc.dtype.is_inexact:
        return unsigned_type(acc.dtype)
    return acc.dtype.ctype


def _identity(acc: Accumulator) -> str:
    """What the reduction of nothing gives."""
    dtype = float32 if is_half(acc.dtype) else acc.dtype
    start, is_plain = identity(acc.kind, dtype).item(), dtype is bool_ or REDUCING[acc.kind].operator
    return str(int(start)) if is_plain and not dtype.is_inexact else literal(start, dtype)


def _reduction_operator(acc: Accumulator, used: Used) -> str:
    """OpenMP's name of the reduction. max and min are our own, because OpenMP's do not propagate NaN."""
    if symbol := REDUCING[acc.kind].symbol(acc.dtype):
        return symbol
    used.helpers.add(f"reduce_{acc.kind}")
    return f"dc_{acc.kind}"
