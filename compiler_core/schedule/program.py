"""Definitions -> Program: fusion, kernels, library calls, buffers, memory.

In: `Defined` of one graph, and the kernel table of the compilation. Out: `ir.Program`. Invariants: inputs and outputs
keep the graph's order; every output is a buffer of its own, written in place by whoever computes it; events stand as
early (signals) and as late (waits) as the steps allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

from compiler_core import log
from compiler_core.config import config
from compiler_core.dtype import DType
from compiler_core.graph.ir import Graph, Node
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.placement import place_events
from compiler_core.lowering import definition as d
from compiler_core.lowering.target import Target
from compiler_core.meta import TensorMeta
from compiler_core.ops.linear_algebra.gemm import GEMM
from compiler_core.ops.routine import Strided
from compiler_core.records import dataclass
from compiler_core.schedule import gpu_lines, gpu_scatter
from compiler_core.schedule.arena_plan import Life
from compiler_core.schedule.batch import batched
from compiler_core.schedule.finish import Argument, KernelTable, Partial, Slice
from compiler_core.schedule.fuse import Order, fuse
from compiler_core.schedule.hosting import with_copies
from compiler_core.schedule.in_place import share
from compiler_core.schedule.kernel import build_kernel
from compiler_core.schedule.legality import Group, Info
from compiler_core.schedule.lending import STACK, place, stack
from compiler_core.schedule.places import build_places
from compiler_core.schedule.recompute import recompute_cheap
from compiler_core.schedule.scan import build_scan
from compiler_core.schedule.scatter import build_scatter

# of a collective: bytes that could be moved while it sets out, and while one of its own travels
LATENCY_NBYTES, TRAVEL = 200_000, 4
Fused = Sequence[tuple[Group, dict[str, Info]]]


def schedule(graph: Graph, defined: d.Defined, table: KernelTable) -> ir.Program:
    """The program that computes `defined`."""
    sizes = {name: meta.numel for name, meta in defined.metas.items()}
    itemsizes = {name: meta.dtype.itemsize for name, meta in defined.metas.items()}
    signals = {k: tuple(defined.outputs[i] for i in places) for k, places in enumerate(graph.signals)}
    names = [node.name for node in graph.inputs]
    waits = {k: tuple(names[i] for i in places) for k, places in enumerate(graph.waits)}
    events, order = list(signals.values()), order_of(graph, defined)
    merge = partial(fuse, patience=table.target.patience, small=table.target.small, order=order)
    fused = merge(defined.definitions, sizes, itemsizes, events, enabled=config.fusion)
    given = [node.name for node in (*graph.inputs, *graph.constants)]
    fewer = None
    if config.fusion:
        fewer = recompute_cheap(defined.definitions, fused, defined.outputs, given, table.target)
    if fewer is not None:
        fused = merge(fewer, sizes, itemsizes, events, enabled=True)
    needed = _needed_outside(fused, defined.outputs)
    steps: list[ir.Step] = []
    partials: dict[str, Partial] = {}
    for group, infos in fused:
        steps += _steps(group, infos, needed, defined, table, partials)
    placed = place_events(steps, signals, waits)
    in_host: dict[str, str] = {}
    if table.target.is_gpu:
        lasting = {*given, *defined.outputs}
        temps = {name: meta.nbytes for name, meta in defined.metas.items() if name not in lasting}
        placed = batched(placed, table, temps)
        placed, in_host = _hosted(graph, defined, placed)
    return _assemble(graph, defined, placed, partials, table.target, in_host)


def _hosted(graph: Graph, defined: d.Defined, steps: Sequence[ir.Step]) -> tuple[list[ir.Step], dict[str, str]]:
    """The steps, with copies to and from the host; and of each value that is copied the buffer there."""
    outputs = [defined.outputs[place] for place in graph.hosted]
    inputs = [node.name for node in graph.inputs if node.role == "hosted"]
    taken = {*defined.metas, *(node.name for node in graph.nodes)}
    in_host: dict[str, str] = {}
    for name in (*inputs, *outputs):
        fresh = f"{name}_in_host"
        while fresh in taken:
            fresh += "_"
        in_host[name] = fresh
    sent, fetched = ({name: in_host[name] for name in names} for names in (outputs, inputs))
    return with_copies(steps, sent, fetched, defined.metas), in_host


def order_of(graph: Graph, defined: d.Defined) -> Order:
    """The order of a graph's effects. Collectives are launched as their signals are numbered, so a result is waited for
    when the operands of all launches before it are complete, too: else a rank could wait for what waits for it. Where
    other effects stand among them (then operands are copies of their own) all keep their places."""
    launches = sorted({signal for signal in graph.behind if signal >= 0})
    operands = {k: tuple(defined.outputs[i] for i in graph.signals[k]) for k in launches}
    others = [(call, call.name) for call in graph.calls if call.op.effect]
    turns: list[tuple[Node, str]] = []
    if others:
        place = {node: k for k, node in enumerate(graph.nodes)}
        turns = [(graph.outputs[i], name) for k in launches for i, name in zip(graph.signals[k], operands[k])]
        turns = sorted([*turns, *others], key=lambda turn: place[turn[0]])
    before, inputs = dict(zip(launches, accumulate(operands[k] for k in launches))), graph.inputs
    behind: dict[str, Sequence[str]] = {}
    cost: dict[str, int] = {}
    for signal, places in zip(graph.behind, graph.waits):
        results = [inputs[i] for i in places] if signal >= 0 else []
        way = LATENCY_NBYTES + TRAVEL * sum(node.meta.nbytes for node in results)
        for node in results:
            behind[node.name], cost[node.name] = before[signal], way
    return Order([name for _, name in turns], behind, cost)


def _needed_outside(fused: Fused, outputs: Sequence[str]) -> set[str]:
    """The values that must be in memory: outputs, and what another group reads."""
    needed = set(outputs)
    for group, infos in fused:
        members = set(group.members)
        for info in infos.values():
            needed.update(name for name in d.definition_reads(info.definition) if name not in members)
    return needed


def _steps(
    group: Group,
    infos: dict[str, Info],
    needed: set[str],
    defined: d.Defined,
    table: KernelTable,
    partials: dict[str, Partial],
) -> Iterable[ir.Step]:
    first = infos[group.members[0]].definition
    if first.numel == 0 or isinstance(first, d.Assembly):
        return
    if isinstance(first, d.Gemm):
        yield gemm_call(first, defined.metas)
        return
    if isinstance(first, d.LibraryCall):
        yield routine_call(first, defined.storage)
        return
    if isinstance(first, d.Scatter):
        build = gpu_scatter.build_scatter if table.target.is_gpu else build_scatter
        built = build(first, defined.metas, table)
    elif isinstance(first, d.Scan):
        scan = gpu_lines.build_scan if table.target.is_gpu else build_scan
        built = scan(first, defined.metas, table)
    elif isinstance(first, d.Reduce) and d.seeks_across(first):
        places = gpu_lines.build_places if table.target.is_gpu else build_places
        built = places(first, defined.metas, table)
    else:
        built = build_kernel(infos, group.shape, needed & set(group.members), defined.metas, table)
    slots = tuple(_slot(argument, defined.storage, partials) for argument in built.arguments)
    yield ir.KernelCall(built.kernel, slots, built.note)


def _slot(argument: Argument, storage: dict[str, str], partials: dict[str, Partial]) -> ir.Slot:
    if isinstance(argument, str):
        return ir.Slot(storage.get(argument, argument))
    if isinstance(argument, Slice):
        return ir.Slot(argument.target, argument.offset)
    name = f"{argument.reduction}__partial"
    partials[name] = argument
    return ir.Slot(name)


def gemm_call(gemm: d.Gemm, metas: Mapping[str, TensorMeta]) -> ir.RoutineCall:
    """A Gemm as a call with a row-major C: C^T = B^T A^T where C is column-major. metas: of all values."""
    a, b, out, m, n = gemm.a, gemm.b, gemm.out, gemm.m, gemm.n
    if out.col != 1:
        a, b, out, m, n = _transposed(b), _transposed(a), _transposed(out), n, m
    views = [
        _matrix(operand, dtype, gemm.batch, rows, columns)
        for operand, dtype, rows, columns in (
            (a, metas[a.source].dtype, m, gemm.k), (b, metas[b.source].dtype, gemm.k, n), (out, gemm.dtype, m, n),
        )
    ]  # fmt: skip
    scale = [ir.View(ir.Slot(gemm.scale), Strided(gemm.dtype, (), ()))] if gemm.scale else []
    bias = [ir.View(ir.Slot(gemm.bias), Strided(gemm.dtype, (gemm.n,), (1,)))] if gemm.bias else []
    attrs = (("alpha", gemm.alpha), ("beta", 1.0 if gemm.onto else 0.0))
    return ir.RoutineCall(GEMM, (views[0], views[1], *scale, *bias), views[2], attrs, gemm.note)


def routine_call(library: d.LibraryCall, storage: dict[str, str]) -> ir.RoutineCall:
    """A Library as a call; an operand may live in another value's memory."""
    operands = tuple(
        replace(v, slot=replace(v.slot, buffer=storage.get(v.slot.buffer, v.slot.buffer))) for v in library.operands
    )
    layout = Strided(library.dtype, library.shape, d.row_major(library.shape))
    result = ir.View(ir.Slot(library.name), layout)
    return ir.RoutineCall(library.routine, operands, result, library.attrs, library.note)


def _transposed(operand: d.Operand) -> d.Operand:
    return d.Operand(operand.source, operand.offset, operand.batch, operand.col, operand.row)


def _matrix(operand: d.Operand, dtype: DType, batch: tuple[int, ...], rows: int, columns: int) -> ir.View:
    layout = Strided(dtype, (*batch, rows, columns), (*operand.batch, operand.row, operand.col))
    return ir.View(ir.Slot(operand.source, operand.offset), layout)


# ---- buffers


@dataclass(frozen=True, slots=True)
class _Places:
    """Where temps lie. inside: in inputs that are written over. arena: the first byte there; stack: in the block in
    which inputs lie at the bytes `starts`. nbytes: of the arena."""

    inside: Mapping[str, ir.Slot]
    arena: Mapping[str, int]
    stack: Mapping[str, int]
    starts: Mapping[str, int]
    nbytes: int


def _assemble(
    graph: Graph,
    defined: d.Defined,
    steps: Sequence[ir.Step],
    partials: dict[str, Partial],
    target: Target,
    in_host: Mapping[str, str],
) -> ir.Program:
    """in_host: of inputs and outputs that lie in the host's memory, the buffer there; they are temps of the program."""
    inputs = tuple(in_host.get(node.name, node.name) for node in graph.inputs)
    outputs = tuple(in_host.get(name, name) for name in defined.outputs)
    arrays = {node.name: node.array for node in graph.constants}
    touched = dict.fromkeys(slot.buffer for step in steps for slot in ir.slots_of(step))
    lasting = {*inputs, *arrays, *outputs}
    temps = [name for name in touched if name not in lasting]
    sources: dict[str, TensorMeta | Partial] = {**defined.metas, **partials}
    spent = [node.name for node in graph.inputs if node.role == "spent" and node.name in touched]
    places = _place(steps, temps, spent, sources, target)
    written = {slot.buffer for slot in places.inside.values()}
    buffers = [
        ir.Buffer(node.name, node.dtype, node.meta.numel, "stacked", places.starts[node.name])
        if node.name in places.starts
        else _buffer(name, "spent" if name in written else "input", node.meta)
        for name, node in zip(inputs, graph.inputs, strict=True)
    ]
    buffers += [
        _buffer(name, "output", defined.metas[value]) for name, value in zip(outputs, defined.outputs, strict=True)
    ]
    for name in touched:
        if name in arrays:
            buffers.append(replace(_buffer(name, "constant", defined.metas[name]), array=arrays[name]))
    buffers += [replace(_buffer(name, "temp", sources[name]), offset=begin) for name, begin in places.arena.items()]
    buffers += [replace(_buffer(name, "lent", sources[name]), offset=begin) for name, begin in places.stack.items()]
    if log.is_on("memory"):
        lent = len(places.inside) + len(places.stack)
        beside = f", {lent} where values lay that had been read" if lent else ""
        text = f"{graph.name}: {len(temps) - lent} temps in an arena of {places.nbytes} bytes{beside}"
        log.emit("memory", text)
    steps = tuple(_renamed(step, places.inside) for step in steps)
    return ir.Program(graph.name, tuple(buffers), steps, inputs, outputs, places.nbytes)


def _place(
    steps: Sequence[ir.Step],
    temps: Sequence[str],
    spent: Sequence[str],
    sources: Mapping[str, TensorMeta | Partial],
    target: Target,
) -> _Places:
    """spent: inputs that may be written over. On a GPU these lie in one block, if anything is to lie in their place."""
    lives, homes = share(steps, _lives(steps, [*temps, *spent], sources))
    sizes = {name: _nbytes(sources[name]) for name in spent}
    starts = stack({name: n for name, n in sizes.items() if name in target.stacked}) if target.is_gpu else None
    lending = {name for name in (spent if starts is None else starts) if not target.many_sizes}
    lent, offsets, nbytes = place(
        [life for life in lives if life.name not in spent],
        [life for life in lives if life.name in lending],
        {name: source.dtype for name, source in sources.items()},
        starts,
    )
    starts = starts if starts and lent else {}
    homes_of_theirs = {name: (STACK, starts[name]) if name in starts else (name, 0) for name in spent} | lent
    lent |= {name: homes_of_theirs[home] for name, home in homes.items() if home in homes_of_theirs}
    inside = {
        name: ir.Slot(home, begin // sources[name].dtype.itemsize)
        for name, (home, begin) in lent.items()
        if home != STACK
    }
    offsets |= {name: offsets[home] for name, home in homes.items() if name not in lent}
    arena = {name: offsets[name] for name in temps if name not in lent}
    stacked = {name: begin for name, (home, begin) in lent.items() if home == STACK}
    return _Places(inside, arena, stacked, starts, nbytes)


def _renamed(step: ir.Step, places: Mapping[str, ir.Slot]) -> ir.Step:
    """`step` with other memory in the place of these buffers."""

    def renamed(slot: ir.Slot) -> ir.Slot:
        place = places.get(slot.buffer)
        return slot if place is None else ir.Slot(place.buffer, place.offset + slot.offset)

    if not places or isinstance(step, ir.Wait | ir.Signal):
        return step
    if isinstance(step, ir.KernelCall):
        return replace(step, slots=tuple(map(renamed, step.slots)))
    operands = tuple(replace(view, slot=renamed(view.slot)) for view in step.operands)
    return replace(step, operands=operands, result=replace(step.result, slot=renamed(step.result.slot)))


def _buffer(name: str, kind: ir.BufferKind, meta: TensorMeta | Partial) -> ir.Buffer:
    return ir.Buffer(name, meta.dtype, meta.numel, kind)


def _nbytes(source: TensorMeta | Partial) -> int:
    return source.numel * source.dtype.itemsize


def _lives(steps: Sequence[ir.Step], temps: Sequence[str], sources: Mapping[str, TensorMeta | Partial]) -> list[Life]:
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for k, step in enumerate(steps):
        for slot in ir.slots_of(step):
            first.setdefault(slot.buffer, k)
            last[slot.buffer] = k
    lives = []
    for name in temps:
        lives.append(Life(name, _nbytes(sources[name]), first[name], last[name]))
    return lives
