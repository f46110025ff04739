"""Runs loop IR with NumPy: the living definition of the language, and the oracle of every code generator.

In: a Program and one array an input. Out: one array an output (`outs[i]`, where given, is written in place and
returned). Serial and parallel loops run in Python, in order; a vector loop runs once with an array of lanes. Temps
really live in one arena, which starts out as garbage, so a wrong memory plan shows as a wrong result. An output is
put where the caller wants it when its event is signalled, else at the end. Raises
IndexError_ on a failed Check and on a load or store outside its buffer. Limits: slow by design; tests use small sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np

from compiler_core.dtype import DType, bool_
from compiler_core.errors import IndexError_, LoweringError, failed_check
from compiler_core.events import Events
from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.print import print_index
from compiler_core.ops.registry import Array
from compiler_core.records import dataclass
from compiler_core.symbolic.index import Axis, Data, Index, Scalar

GARBAGE = 0xCB  # as f32 or f64 this is a large negative number: it spoils sums and maxima alike


def identity(kind: str, dtype: DType) -> Any:
    """What an accumulator of `kind` starts from."""
    how = ir.REDUCING[kind]
    if how.operator:
        return dtype.numpy.type(how.ufunc.identity)
    highest = how.kind == "min"
    if dtype is bool_:
        return np.bool_(highest)
    if dtype.is_floating_point:
        return dtype.numpy.type(np.inf if highest else -np.inf)
    info = np.iinfo(dtype.numpy)  # type: ignore[type-var]
    return dtype.numpy.type(info.max if highest else info.min)


@dataclass
class Best:
    """A running argmax or argmin."""

    value: Any
    kind: str
    at: int = -1

    def offer(self, value: Any, at: int) -> None:
        if self.at >= 0 and np.isnan(self.value) and not (ir.REDUCING[self.kind].last_nan and np.isnan(value)):
            return
        better = value < self.value if ir.REDUCING[self.kind].beats == "<" else value > self.value
        if self.at < 0 or better or np.isnan(value):
            self.value, self.at = value, at


@dataclass
class _ExpSum:
    """A running sum of exponentials: what it was fed."""

    values: list[Any] = field(default_factory=list)

    def total(self) -> Any:
        values = np.concatenate([np.ravel(value) for value in self.values])
        return np.exp(values - values.max()).sum(dtype=values.dtype)


@dataclass
class Frame:
    """One kernel's run, or one definition's. scalars: Lets and accumulators; axes: of the running loops.

    arrays: params and locals, or values.
    """

    arrays: dict[str, Array]
    scalars: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    axes: dict[Axis, Any] = field(default_factory=dict)
    lanes: int | None = None  # how many lanes the running vector loop has
    backwards: bool = False  # run parallel loops from their last iteration to their first


def interpret_program(
    program: ir.Program,
    inputs: Sequence[Array],
    outs: Sequence[Array | None] | None = None,
    events: Events | None = None,
    *,
    backwards: bool = False,
) -> list[Array]:
    """The outputs of `program` as flat arrays (or `outs`, written in place, of any shape).

    backwards: run parallel loops from their last iteration to their first, which must not change a bit.
    """
    return run_program(program, inputs, outs, partial(run_kernel, backwards=backwards), events)


def run_program(
    program: ir.Program,
    inputs: Sequence[Array],
    outs: Sequence[Array | None] | None,
    run: Callable[[ir.Kernel, Sequence[Array]], None],
    events: Events | None = None,
) -> list[Array]:
    """The steps of `program` in order, its kernels by `run`; other arguments as for `interpret_program`."""
    given = dict(zip(program.inputs, inputs, strict=True))
    arena, stack = np.full(program.arena_nbytes, GARBAGE, np.uint8), np.full(program.stack_nbytes, GARBAGE, np.uint8)
    memory: dict[str, Array] = {}
    wanted = dict(zip(program.outputs, outs or [None] * len(program.outputs), strict=True))
    for buffer in program.buffers:
        memory[buffer.name] = _buffer_memory(buffer, given, wanted, (arena, stack))
    results: dict[str, Array] = {}
    for step in program.steps:
        match step:
            case ir.KernelCall():
                run(step.kernel, [memory[s.buffer][s.offset :] for s in step.slots])
            case ir.RoutineCall():
                run_routine(step, memory)
            case ir.Signal(event, names) if events is not None:
                results |= {name: _returned(memory[name], wanted[name]) for name in names}
                events.signal(event)
            case ir.Wait(event, names) if events is not None:
                events.wait(event)
                memory |= {name: _buffer_memory(program.buffer(name), given, wanted, (arena, stack)) for name in names}
    rest = (name for name in program.outputs if name not in results)
    results |= {name: _returned(memory[name], wanted[name]) for name in rest}
    return [results[name] for name in program.outputs]


def _returned(memory: Array, out: Array | None) -> Array:
    if out is None:
        return memory
    out[...] = memory.reshape(out.shape)
    return out


def _buffer_memory(
    buffer: ir.Buffer, given: Mapping[str, Array], wanted: Mapping[str, Array | None], rooms: tuple[Array, Array]
) -> Array:
    """rooms: the arena, and the stack."""
    if buffer.kind == "input":
        return np.ascontiguousarray(given[buffer.name]).reshape(-1)
    if buffer.kind == "spent":
        return np.array(given[buffer.name]).reshape(-1)
    if buffer.kind == "constant":
        assert buffer.array is not None, f"constant {buffer.name} without data"
        return np.ascontiguousarray(buffer.array).reshape(-1)
    if buffer.kind in ("temp", "stacked", "lent"):
        room = rooms[buffer.kind != "temp"]
        found = room[buffer.offset : buffer.offset + buffer.nbytes].view(buffer.dtype.numpy)
        if buffer.kind == "stacked":
            found[...] = np.array(given[buffer.name]).reshape(-1)
        return found
    return np.full(buffer.nbytes, GARBAGE, np.uint8).view(buffer.dtype.numpy)


def run_routine(call: ir.RoutineCall, memory: Mapping[str, Array]) -> None:
    """One call, by the routine's definition. memory: of each buffer, flat."""
    operands = [_view(view, memory) for view in call.operands]
    call.routine.define(_view(call.result, memory), *operands, **dict(call.attrs))


def _view(view: ir.View, memory: Mapping[str, Array]) -> Array:
    flat, layout = memory[view.slot.buffer][view.slot.offset :], view.layout
    if layout.span > flat.size:
        raise IndexError_(f"a routine's operand in {view.slot.buffer} needs {layout.span} elements of {flat.size}")
    return np.lib.stride_tricks.as_strided(flat, layout.shape, [s * flat.itemsize for s in layout.strides])


def run_kernel(kernel: ir.Kernel, arrays: Sequence[Array], *, backwards: bool = False) -> None:
    """Run `kernel` on flat arrays, one per Param, in place."""
    frame = Frame({p.name: a[: p.numel] for p, a in zip(kernel.params, arrays, strict=True)}, backwards=backwards)
    with np.errstate(all="ignore"):
        _run_body(kernel.body, frame)


def _run_body(body: Sequence[ir.Stmt], frame: Frame) -> None:
    for stmt in body:
        _run_stmt(stmt, frame)


def _run_stmt(stmt: ir.Stmt, frame: Frame) -> None:
    match stmt:
        case ir.Loop():
            _run_loop(stmt, frame)
        case ir.Let(name, value):
            frame.scalars[name] = evaluate(value, frame, None)
        case ir.Local(name, dtype, numel):
            garbage = np.full(numel * dtype.itemsize, GARBAGE, np.uint8)
            frame.arrays[name] = garbage.view(dtype.numpy)
        case ir.Store(buffer, index, value, mode):
            _store(frame.arrays[buffer], evaluate_index(index, frame), evaluate(value, frame, None), mode, stmt)
        case ir.Accumulator(name, dtype, kind):
            start = identity(kind, dtype)
            frame.kinds[name] = kind
            start = Best(start, kind) if ir.REDUCING[kind].is_place else _ExpSum() if kind == "expsum" else start
            frame.scalars[name] = start
        case ir.Accumulate(name, value, at):
            _accumulate(name, evaluate(value, frame, None), at, frame)
        case ir.Check(condition, message):
            if not np.all(evaluate(condition, frame, None)):
                raise failed_check(message)


def _run_loop(loop: ir.Loop, frame: Frame) -> None:
    places = _places(loop, frame)
    if loop.kind == "vector":
        frame.axes[loop.axis], frame.lanes = np.arange(places.start, places.stop), len(places)
        if places:
            _run_body(loop.body, frame)
        frame.lanes = None
        return
    for i in reversed(places) if frame.backwards and loop.kind in ("parallel", "block") else places:
        frame.axes[loop.axis] = i
        _run_body(loop.body, frame)


def _places(loop: ir.Loop, frame: Frame) -> range:
    """The iterations that run here: all, or the part of an iteration of the loop that shares them out."""
    if loop.span is not None:
        begin, end = (int(evaluate_index(one, frame)) for one in loop.span)
        if not 0 <= begin <= end <= loop.extent:
            raise IndexError_(f"{loop.axis.name} from {begin} to {end}, outside its {loop.extent} iterations")
        return range(begin, end)
    if loop.part_of is None:
        return range(loop.extent)
    begin = frame.axes[loop.part_of] * loop.share
    return range(min(begin, loop.extent), min(begin + loop.share, loop.extent))


def evaluate_index(index: Index, frame: Frame, active: Any = None) -> Any:
    """Of definitions too, where an index reads what has no name: there its range is checked, where it counts."""

    def value(part: Axis | Scalar | Data) -> Any:
        if isinstance(part, Axis):
            return frame.axes[part]
        if isinstance(part, Scalar):
            return frame.scalars[part.name]
        read = evaluate(part.value, frame, active)
        inside = (read >= part.low) & (read <= part.high)
        if part.message and not np.all(inside if active is None else inside | ~np.asarray(active)):
            raise failed_check(part.message)
        return read

    return index.evaluate(value)


def _store(target: Array, at: Any, value: Any, mode: str, stmt: ir.Store) -> None:
    if np.min(at) < 0 or np.max(at) >= target.size:
        raise IndexError_(f"store to {stmt.buffer}[{print_index(stmt.index)}] outside its {target.size} elements")
    value = np.asarray(value).astype(target.dtype, copy=False)
    target[at] = value if mode == "set" else ir.REDUCING[mode].ufunc(target[at], value)


def _accumulate(name: str, value: Any, at: Index | None, frame: Frame) -> None:
    running = frame.scalars[name]
    if isinstance(running, Best):
        assert at is not None, f"accumulate into {running.kind} {name} without a place"
        _offer(running, value, evaluate_index(at, frame), frame.lanes)
        return
    if isinstance(running, _ExpSum):
        running.values.append(value if frame.lanes is None else np.broadcast_to(value, (frame.lanes,)))
        return
    combine = ir.REDUCING[frame.kinds[name]].ufunc
    if frame.lanes is not None:
        lanes = np.broadcast_to(np.asarray(value), (frame.lanes,))
        value = combine.reduce(lanes, dtype=lanes.dtype)
    frame.scalars[name] = np.asarray(combine(running, value)).astype(np.asarray(value).dtype)[()]


def _offer(running: Best, value: Any, at: Any, lanes: int | None) -> None:
    """One value with its place; of the lanes of a vector loop, each in order."""
    if lanes is None:
        running.offer(value, int(at))
        return
    for one, place in zip(np.broadcast_to(value, (lanes,)), np.broadcast_to(at, (lanes,))):
        running.offer(one, int(place))


def evaluate(expr: x.Expr, frame: Frame, active: Any) -> Any:
    """The value here. active: bool lanes in which it matters, or None for all; loads elsewhere are not made."""
    match expr:
        case x.Const(value, dtype):
            return np.asarray(value).astype(dtype.numpy)[()]
        case x.Var(name, _):
            value = frame.scalars[name]
            if isinstance(value, _ExpSum):
                return value.total()
            return np.int64(value.at) if isinstance(value, Best) else value
        case x.Load(buffer, index, _):
            return _load(frame.arrays[buffer], evaluate_index(index, frame, active), active, expr)
        case x.IndexValue(index, dtype):
            return np.asarray(evaluate_index(index, frame, active)).astype(dtype.numpy)[()]
        case x.IndexCompare(op, left, right, _):
            return _COMPARE[op](evaluate_index(left, frame, active), evaluate_index(right, frame, active))
        case x.ScalarCall(scalar, args, dtype):
            values = [evaluate(arg, frame, active) for arg in args]
            return np.asarray(x.SCALARS[scalar].numpy(*values)).astype(dtype.numpy, copy=False)[()]
        case x.Cast(arg, dtype):
            return _cast(evaluate(arg, frame, active), dtype)
        case x.Where(cond, then, other):
            return _where(cond, then, other, frame, active)
    raise LoweringError(f"{expr!r} is not a loop-IR expression")


_COMPARE: dict[str, np.ufunc] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip


def _cast(value: Any, dtype: DType) -> Any:
    if np.asarray(value).dtype.kind == "c" and not dtype.is_complex and dtype is not bool_:
        value = np.real(value)
    return np.asarray(value).astype(dtype.numpy)[()]


def _load(source: Array, at: Any, active: Any, load: x.Load) -> Any:
    if active is not None:
        at = np.where(active, at, 0)
    if np.size(at) and (np.min(at) < 0 or np.max(at) >= source.size) and (active is None or np.any(active)):
        raise IndexError_(f"load of {load.buffer}[{print_index(load.index)}] outside its {source.size} elements")
    return source[at] if source.size else np.zeros(np.shape(at), source.dtype)[()]


def _where(cond: x.Expr, then: x.Expr, other: x.Expr, frame: Frame, active: Any) -> Any:
    taken = evaluate(cond, frame, active)
    if np.ndim(taken) == 0 and active is None:
        return evaluate(then if taken else other, frame, None)
    here = taken if active is None else active & taken
    there = ~np.asarray(taken) if active is None else active & ~np.asarray(taken)
    a, b = evaluate(then, frame, here), evaluate(other, frame, there)
    return np.where(taken, a, b).astype(np.asarray(a).dtype)[()]
