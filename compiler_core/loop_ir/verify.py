"""Checks that loop IR keeps its invariants (listed in `ir.py`).

Run between passes in tests and when DISTCOMPILE_VERIFY=1.

In: Kernel or Program. Out: nothing, or GraphError naming the kernel, the statement and what is wrong. Checked: every
name is declared before use and once; dtypes of loads, calls, stores and selects agree; no arithmetic on 16-bit floats;
accumulators are not read while they are filled; vector loops hold only what they may; stores inside parallel, block and
vector loops move with the axis; parts are of a parallel loop around; slots fit buffers; params share memory only
where that is safe; operands suit BLAS and lie inside their buffers; temps lie inside the arena; events stand where they
may (`placement.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from compiler_core.dtype import DType, bool_, int64
from compiler_core.errors import GraphError
from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.aliasing import safe_pairs
from compiler_core.loop_ir.checking import is_of_values
from compiler_core.loop_ir.placement import check_events
from compiler_core.loop_ir.print import print_expr, print_step, print_stmt
from compiler_core.records import dataclass
from compiler_core.symbolic.index import Axis, Data, Div, Index, Mod


@dataclass
class Names:
    """What is in scope:

    arrays and scalars with their dtypes, axes, accumulators with the loop depth they were declared at.
    """

    arrays: dict[str, DType] = field(default_factory=dict)
    writable: set[str] = field(default_factory=set)
    scalars: dict[str, DType] = field(default_factory=dict)
    axes: dict[Axis, ir.LoopKind] = field(default_factory=dict)
    accumulators: dict[str, ir.ReduceKind] = field(default_factory=dict)
    locals_at: dict[str, int] = field(default_factory=dict)  # how many axes were open where the local was declared
    filling: set[str] = field(default_factory=set)
    made_at: dict[str, int] = field(default_factory=dict)  # how many axes were open where the Let stands
    parts: dict[Axis, Axis] = field(default_factory=dict)  # an axis -> the parallel one that shares it out
    may_read: bool = False  # whether an index may hold Data: in definitions

    def inner(self) -> Names:
        return Names(
            dict(self.arrays), set(self.writable), dict(self.scalars), dict(self.axes),
            dict(self.accumulators), dict(self.locals_at), set(self.filling), dict(self.made_at), dict(self.parts),
        )  # fmt: skip


def verify_kernel(kernel: ir.Kernel) -> None:
    """Raise GraphError if `kernel` breaks an invariant."""
    names = Names({p.name: p.dtype for p in kernel.params}, {p.name for p in kernel.params if p.access != "in"})
    if len(names.arrays) != len(kernel.params):
        raise GraphError(f"kernel {kernel.name}: two params of one name")
    _check_body(kernel.body, names, f"kernel {kernel.name}")


def _fail(where: str, stmt: ir.Stmt | x.Expr, why: str) -> GraphError:
    is_expr = isinstance(
        stmt, x.Const | x.Var | x.Load | x.IndexValue | x.IndexCompare | x.ScalarCall | x.Cast | x.Where
    )
    text = print_expr(stmt) if is_expr else print_stmt(stmt)  # type: ignore[arg-type]
    return GraphError(f"{where}: {why}", got=text)


def _check_body(body: Sequence[ir.Stmt], names: Names, where: str) -> None:
    for stmt in body:
        _check_stmt(stmt, names, where)


def _check_stmt(stmt: ir.Stmt, names: Names, where: str) -> None:
    vector = "vector" in names.axes.values()
    if vector and isinstance(stmt, ir.Loop | ir.Local | ir.Accumulator):
        raise _fail(where, stmt, "not allowed in a vector loop")
    match stmt:
        case ir.Loop():
            _check_loop(stmt, names, where)
        case ir.Local(name, dtype, _):
            _check_fresh(name, names, stmt, where)
            names.arrays[name] = dtype
            names.writable.add(name)
            names.locals_at[name] = len(names.axes)
        case ir.Let(name, value):
            check_expr(value, names, where)
            _check_fresh(name, names, stmt, where)
            names.scalars[name] = value.dtype
            names.made_at[name] = len(names.axes)
        case ir.Store():
            _check_store(stmt, names, where)
        case ir.Accumulator(name, dtype, kind):
            _check_fresh(name, names, stmt, where)
            names.scalars[name] = int64 if ir.REDUCING[kind].is_place else dtype
            names.accumulators[name] = kind
        case ir.Accumulate(_, value, _):
            check_expr(value, names, where)
            _check_accumulate(stmt, names, where)
        case ir.Check(condition, _):
            check_expr(condition, names, where)
            if condition.dtype is not bool_:
                raise _fail(where, stmt, "a condition is not bool")


def _check_loop(loop: ir.Loop, names: Names, where: str) -> None:
    axis, kind, part_of = loop.axis, loop.kind, loop.part_of
    _check_fresh(axis.name, names, loop, where)
    for end in loop.span or ():
        check_index(end, names, loop, where)
    if loop.span and kind not in ("serial", "block"):
        raise _fail(where, loop, "from and to are for serial and block loops")
    if part_of and names.axes.get(part_of) != "parallel":
        raise _fail(where, loop, f"{part_of.name} is not a parallel loop around it")
    if kind == "block" and "block" in names.axes.values():
        raise _fail(where, loop, "a block loop in a block loop")
    scope = names.inner()
    scope.axes[axis] = kind
    scope.parts |= {axis: part_of} if part_of else {}
    if kind == "vector" and "block" not in names.axes.values():
        for stmt in loop.body:
            if isinstance(stmt, ir.Check) and not is_of_values(stmt, loop.body):
                raise _fail(where, stmt, "not allowed in a vector loop: places depend on it")
    own = {s.name for s in ir.walk(loop.body) if isinstance(s, ir.Accumulator)}
    scope.filling |= {s.name for s in ir.walk(loop.body) if isinstance(s, ir.Accumulate)} - own
    _check_body(loop.body, scope, where)


def _check_fresh(name: str, names: Names, stmt: ir.Stmt, where: str) -> None:
    if name in names.arrays or name in names.scalars or any(axis.name == name for axis in names.axes):
        raise _fail(where, stmt, f"{name} is declared twice")


def _check_store(stmt: ir.Store, names: Names, where: str) -> None:
    check_expr(stmt.value, names, where)
    check_index(stmt.index, names, stmt, where)
    if stmt.buffer not in names.writable:
        raise _fail(where, stmt, f"{stmt.buffer} is not a writable array in scope")
    if names.arrays[stmt.buffer] is not stmt.value.dtype:
        raise _fail(where, stmt, f"a {stmt.value.dtype.short} value stored to {names.arrays[stmt.buffer].short}")
    opened = names.locals_at.get(stmt.buffer, 0)
    moving = stmt.index.variables
    moving |= {names.parts[one] for one in moving if isinstance(one, Axis) and one in names.parts}
    for depth, (axis, kind) in enumerate(names.axes.items()):
        combines = kind == "block" and stmt.mode != "set" and stmt.buffer in names.locals_at
        made_inside = kind != "vector" and any(names.made_at.get(one.name, 0) > depth for one in moving)
        if kind != "serial" and depth >= opened and axis not in moving and not combines and not made_inside:
            raise _fail(where, stmt, f"iterations of the {kind} loop {axis.name} store to one address")


def _check_accumulate(stmt: ir.Accumulate, names: Names, where: str) -> None:
    kind = names.accumulators.get(stmt.name)
    if kind is None:
        raise _fail(where, stmt, f"{stmt.name} is not an accumulator")
    if (stmt.at is not None) != ir.REDUCING[kind].is_place:
        raise _fail(where, stmt, f"a place is for argmax and argmin, {stmt.name} is {kind}")
    if stmt.at is not None:
        check_index(stmt.at, names, stmt, where)
        if ir.REDUCING[kind].last_nan and "vector" in names.axes.values():
            raise _fail(where, stmt, "argmax_nan does not vectorise")
    elif names.scalars[stmt.name] is not stmt.value.dtype:
        raise _fail(where, stmt, f"{stmt.name} is {names.scalars[stmt.name].short}")


def check_index(index: Index, names: Names, stmt: ir.Stmt | x.Expr, where: str) -> None:
    """Raise GraphError if a variable of `index` is not in scope."""
    for atom in index.terms:
        if isinstance(atom, Div | Mod):
            check_index(atom.arg, names, stmt, where)
        elif isinstance(atom, Data):
            if not names.may_read:
                raise _fail(where, stmt, f"{index} reads what has no name")
            check_expr(atom.value, names, where)
        elif atom not in names.axes and (isinstance(atom, Axis) or not _is_integer(names, atom.name)):
            raise _fail(where, stmt, f"{atom.name} in an index is neither an axis nor an integer in scope")


def _is_integer(names: Names, name: str) -> bool:
    return name in names.scalars and names.scalars[name].kind in "iu"


def check_expr(expr: x.Expr, names: Names, where: str) -> None:
    """Raise GraphError if a name in `expr` is not in scope, or dtypes do not agree."""
    for child in x.children(expr):
        check_expr(child, names, where)
    match expr:
        case x.Var(name, dtype):
            if names.scalars.get(name) is not dtype or name in names.filling:
                raise _fail(where, expr, f"{name} is not a {dtype.short} that can be read here")
        case x.Load(buffer, index, dtype):
            if names.arrays.get(buffer) is not dtype:
                raise _fail(where, expr, f"{buffer} is not a {dtype.short} array in scope")
            check_index(index, names, expr, where)
        case x.IndexValue(index, _):
            check_index(index, names, expr, where)
        case x.IndexCompare(_, left, right, _):
            check_index(left, names, expr, where)
            check_index(right, names, expr, where)
        case x.ScalarCall():
            _check_call(expr, where)
        case x.Where(cond, then, other):
            if cond.dtype is not bool_ or then.dtype is not other.dtype:
                raise _fail(where, expr, "where takes a bool and two values of one dtype")


def _check_call(expr: x.ScalarCall, where: str) -> None:
    rule = x.SCALARS.get(expr.scalar)
    if rule is None or len(expr.args) != rule.arity:
        raise _fail(where, expr, f"no scalar function {expr.scalar} of {len(expr.args)} arguments")
    dtypes = {arg.dtype for arg in expr.args}
    argument = expr.args[0].dtype
    if len(dtypes) != 1 or rule.result_dtype(argument) is not expr.dtype:
        raise _fail(where, expr, "argument dtypes differ, or the result's is not theirs")
    if argument.compute is not argument:
        raise _fail(where, expr, f"arithmetic on {argument.short}; cast to f32 first")


# ---- programs


def verify_program(program: ir.Program) -> None:
    """Raise GraphError if `program`, or a kernel in it, breaks an invariant."""
    for kernel in program.kernels:
        verify_kernel(kernel)
    buffers = {buffer.name: buffer for buffer in program.buffers}
    if len(buffers) != len(program.buffers):
        raise GraphError(f"program {program.name}: two buffers of one name")
    for name in (*program.inputs, *program.outputs):
        if name not in buffers:
            raise GraphError(f"program {program.name}: {name} is an input or output but no buffer")
    if len({*program.inputs, *program.outputs}) != len(program.inputs) + len(program.outputs):
        raise GraphError(f"program {program.name}: an output aliases another, or an input")
    stack_nbytes = program.stack_nbytes
    for buffer in program.buffers:
        for kind, room, nbytes in (("temp", "arena", program.arena_nbytes), ("lent", "stack", stack_nbytes)):
            if buffer.kind == kind and (buffer.offset % 64 or buffer.offset + buffer.nbytes > nbytes):
                raise GraphError(f"program {program.name}: {buffer.name} lies outside the {room} or unaligned")
    for step in program.steps:
        _check_step(step, buffers, program.name)
    check_events(program)


def _check_step(step: ir.Step, buffers: dict[str, ir.Buffer], where: str) -> None:
    if isinstance(step, ir.RoutineCall):
        _check_routine(step, buffers, where)
        return
    if not isinstance(step, ir.KernelCall):
        return
    if len(step.slots) != len(step.kernel.params):
        raise GraphError(
            f"program {where}: {step.kernel.name} takes {len(step.kernel.params)} slots", got=print_step(step)
        )
    for slot, param in zip(step.slots, step.kernel.params):
        buffer = buffers.get(slot.buffer)
        fits = buffer is not None and buffer.dtype is param.dtype and slot.offset + param.numel <= buffer.numel
        if not fits or (param.access != "in" and buffer is not None and buffer.kind in ("input", "constant")):
            raise GraphError(f"program {where}: {slot.buffer} does not suit {param}", got=print_step(step))
    _check_overlaps(step, buffers, where)


def _check_overlaps(step: ir.KernelCall, buffers: dict[str, ir.Buffer], where: str) -> None:
    """A written param may share memory with another one only where `aliasing.py` says so."""
    spans = []
    for slot, param in zip(step.slots, step.kernel.params):
        buffer = buffers[slot.buffer]
        room = {"temp": "arena", "stacked": "stack", "lent": "stack"}.get(buffer.kind, buffer.name)
        begin = buffer.offset + slot.offset * buffer.dtype.itemsize
        spans.append((param, room, begin, begin + param.numel * buffer.dtype.itemsize))
    safe = set(safe_pairs(step.kernel))
    for k, (a, room, begin, end) in enumerate(spans):
        for b, other_room, other_begin, other_end in spans[k + 1 :]:
            if room != other_room or end <= other_begin or other_end <= begin or a.access == b.access == "in":
                continue
            if begin != other_begin or not {(a.name, b.name), (b.name, a.name)} & safe:
                raise GraphError(f"program {where}: {a.name} and {b.name} share memory unsafely", got=print_step(step))


def _check_routine(call: ir.RoutineCall, buffers: dict[str, ir.Buffer], where: str) -> None:
    for view in (*call.operands, call.result):
        buffer, layout = buffers.get(view.slot.buffer), view.layout
        if buffer is None or buffer.dtype is not layout.dtype or view.slot.offset + layout.span > buffer.numel:
            raise GraphError(f"program {where}: {view} leaves its buffer", got=print_step(call))
        if min(layout.strides, default=0) < 0 or len(layout.strides) != len(layout.shape):
            raise GraphError(f"program {where}: {view} has no such strides", got=print_step(call))
    fits = all(call.routine.accepts(view.layout) for view in call.operands)
    if not fits or not call.routine.accepts_result(call.result.layout):
        raise GraphError(
            f"program {where}: {call.routine.name} does not accept these dtypes or strides", got=print_step(call)
        )
    if buffers[call.result.slot.buffer].kind in ("input", "constant"):
        raise GraphError(f"program {where}: {call.routine.name} writes what is not the program's", got=print_step(call))
