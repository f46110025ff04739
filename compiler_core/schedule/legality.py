"""Whether two groups of definitions may become one kernel, and if not, why.

In: two `Group`s. Out: `Legal(shape)` with the loop shape they would share, or `Hazard(kind, why)`.

A group loops over `rows` x `cols`. Each member lives on one of two levels: "full" (its domain is rows*cols, in row-
major order) or "row" (its domain is the rows). Inside one kernel a reader may take from another member only
- the same element (full from full, row from row), or
- its row's value (full from row), which a reduction over the row's columns may have made one stage earlier. A
reduction that does not run along the columns of a row (a bias gradient, a loss) is done only after the last row:
nothing in the kernel may read it. Method: producer-consumer fusion on a two-level iteration space, as in stitching of
softmax and layer norm (Zheng et al., AStitch, ASPLOS'22).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import Literal, TypeAlias

from compiler_core.loop_ir.ir import REDUCING
from compiler_core.lowering import definition as d
from compiler_core.records import dataclass
from compiler_core.symbolic.index import Index

MAX_COLS = 65536  # row-local scratch lives on the stack, and should in the L2 cache
MAX_MEMBERS = 96
MAX_STREAMS = 16  # arrays read side by side: more than the L1 cache has ways for, and the prefetcher has slots
Level = Literal["full", "row"]
HazardKind = Literal["library", "scatter", "shape", "access", "barrier", "cycle", "size", "event", "scan"]


@dataclass(frozen=True, slots=True)
class LoopShape:
    """rows x cols; cols is None as long as nothing in the group tells rows from columns."""

    numel: int
    cols: int | None = None

    @property
    def rows(self) -> int | None:
        return None if self.cols is None else self.numel // self.cols


@dataclass(frozen=True, slots=True)
class Legal:
    shape: LoopShape


@dataclass(frozen=True, slots=True)
class Hazard:
    kind: HazardKind
    why: str


Verdict: TypeAlias = Legal | Hazard


@dataclass(frozen=True, slots=True)
class Read:
    """One load of a definition.

    cols: None if the index is the reader's own element; n if it is that divided by n; 0 otherwise.
    """

    source: str
    index: Index
    cols: int | None


@dataclass(frozen=True, slots=True)
class Info:
    """What fusion needs to know of one definition.

    row_cols: n if it is a reduction over the last n elements of each row.
    """

    definition: d.Definition
    domain: int
    reads: tuple[Read, ...]
    row_cols: int | None = None
    result: int = 0  # elements of the result


@dataclass(frozen=True, slots=True)
class Group:
    """Definitions that share a loop nest, in order.

    `optional_cols`: cols may be dropped, nothing inside depends on it. streams: what they read side by side, of others.
    sums: those that are reductions. Of several members it is known that they may share loops of `shape`.
    """

    members: tuple[str, ...]
    shape: LoopShape
    optional_cols: bool = False
    streams: frozenset[str] = frozenset()
    sums: tuple[str, ...] = ()


def describe(definition: d.Definition, numel_of: Mapping[str, int]) -> Info:
    """The domain of a definition, and how it reads each of its operands."""
    if isinstance(definition, d.Gemm | d.LibraryCall | d.Assembly | d.Scan):
        return Info(definition, definition.numel, (), None, definition.numel)
    domain = d.domain_numel(definition.axes)
    flat = d.flat_of(definition.axes)
    reads = tuple(
        dict.fromkeys(_read(load.buffer, load.index, flat, domain, numel_of) for load in d.loads(definition.value))
    )
    row_cols = None
    if isinstance(definition, d.Reduce):
        cols = domain // definition.numel
        row_cols = cols if definition.kept == flat // cols else None
    return Info(definition, domain, reads, row_cols, definition.numel)


def _read(source: str, index: Index, flat: Index, domain: int, numel_of: Mapping[str, int]) -> Read:
    numel = numel_of[source]
    if numel == domain and index == flat:
        return Read(source, index, None)
    if numel and domain % numel == 0 and numel != domain and index == flat // (domain // numel):
        return Read(source, index, domain // numel)
    return Read(source, index, 0)


def initial_group(info: Info) -> Group:
    """The group of one definition alone."""
    optional = False
    cols = info.row_cols
    if isinstance(info.definition, d.Reduce) and info.result == 1:
        is_place = REDUCING[info.definition.kind].is_place
        optional = not is_place
        cols = info.domain if is_place or info.domain <= MAX_COLS else None
    name = info.definition.name
    sums = (name,) if isinstance(info.definition, d.Reduce) else ()
    return Group((name,), LoopShape(info.domain, cols), optional, _streams((name,), info.reads), sums)


def merged(a: Group, b: Group, members: tuple[str, ...], shape: LoopShape, infos: Mapping[str, Info]) -> Group:
    """The group of both, which may share loops of `shape`. members: of both, in order."""
    streams, sums = (a.streams | b.streams).difference(members), (*a.sums, *b.sums)
    return Group(members, shape, is_optional(members, shape, infos), streams, sums)


def _streams(members: Collection[str], reads: Iterable[Read]) -> frozenset[str]:
    return frozenset(read.source for read in reads if read.cols is None and read.source not in members)


def level_of(info: Info, shape: LoopShape) -> Level | None:
    """On which level of `shape` a definition lives, or None if on neither."""
    if info.domain == shape.numel:
        return "full"
    return "row" if info.domain == shape.rows else None


def is_row_reduction(info: Info, shape: LoopShape) -> bool:
    """Whether it reduces each row of `shape` to one value (else it is done only after the last row)."""
    return (
        isinstance(info.definition, d.Reduce) and info.domain == shape.numel and info.row_cols == shape.cols is not None
    )


def result_level(info: Info, shape: LoopShape) -> Level | None:
    """Where the result of a member can be read inside the kernel, or None: only after it."""
    if isinstance(info.definition, d.Reduce):
        return "row" if is_row_reduction(info, shape) else None
    return level_of(info, shape)


def can_fuse(a: Group, b: Group, infos: Mapping[str, Info]) -> Verdict:
    """Whether `a` and `b` may share a kernel (cycles through other groups aside).

    `b` may read from `a`, not the reverse.
    """
    for name in (group.members[0] for group in (a, b) if len(group.members) == 1):  # others are of those that may
        definition = infos[name].definition
        if isinstance(definition, d.Gemm | d.LibraryCall | d.Assembly):
            return Hazard("library", f"{name} is a library call")
        if isinstance(definition, d.Scatter):
            return Hazard("scatter", f"{name} writes where its data says")
        if isinstance(definition, d.Scan):
            return Hazard("scan", f"{name} goes along its line one element after the other")
    if len(a.members) + len(b.members) > MAX_MEMBERS:
        return Hazard("size", f"more than {MAX_MEMBERS} values in one kernel")
    inside = frozenset(a.members)
    links = [(infos[name], read) for name in b.members for read in infos[name].reads if read.source in inside]
    shape = _joint_shape(a, b, links)
    if isinstance(shape, Hazard):
        return shape
    return _check_levels(a, b, shape, infos)


def _joint_shape(a: Group, b: Group, links: Iterable[tuple[Info, Read]]) -> LoopShape | Hazard:
    numel = max(a.shape.numel, b.shape.numel)
    wanted: set[int] = set()
    for group in (a, b):
        if group.shape.numel != numel:
            if numel % group.shape.numel or (group.shape.cols is not None and not group.optional_cols):
                return Hazard("shape", f"{group.shape} does not fit into {numel} elements")
            wanted.add(numel // group.shape.numel)
        elif group.shape.cols is not None and not group.optional_cols:
            wanted.add(group.shape.cols)
    wanted.update(read.cols for info, read in links if read.cols and info.domain == numel)
    if len(wanted) > 1:
        return Hazard("shape", f"rows of {' and '.join(map(str, sorted(wanted)))} elements")
    cols = wanted.pop() if wanted else None
    if cols is None and a.shape.numel == b.shape.numel:
        cols = next((g.shape.cols for g in (a, b) if g.shape.cols is not None), None)
    if cols is not None and cols > MAX_COLS:
        return Hazard("size", f"a row of {cols} elements is too long to keep in cache")
    return LoopShape(numel, cols)


def _check_levels(a: Group, b: Group, shape: LoopShape, infos: Mapping[str, Info]) -> Verdict:
    inside = {*a.members, *b.members}
    streams = (a.streams | b.streams) - inside
    if len(streams) > MAX_STREAMS:
        return Hazard("size", f"{len(streams)} arrays read side by side")
    for group in (a, b):
        among = inside
        if len(group.members) > 1 and group.shape == shape:  # it is right so far
            if group is a:
                continue
            among = set(a.members)
        hazard = _check_members(group.members, among, shape, infos)
        if hazard is not None:
            return hazard
    if not _are_nested((*a.sums, *b.sums), shape, infos):
        return Hazard("shape", "sums over rows whose axes cut each other")
    return Legal(shape)


def _check_members(
    members: Iterable[str], among: Collection[str], shape: LoopShape, infos: Mapping[str, Info]
) -> Hazard | None:
    """Why one of them may not stand in loops of `shape`, or not read what it does of `among`."""
    for name in members:
        info = infos[name]
        level = level_of(info, shape)
        if level is None:
            return Hazard("shape", f"{name} has {info.domain} elements, the loops {shape}")
        if _is_place(info) and not is_row_reduction(info, shape):
            return Hazard("shape", f"{name} must run along the columns")
        for read in info.reads:
            if read.source in among:
                hazard = _check_read(name, level, read, shape, infos[read.source])
                if hazard is not None:
                    return hazard
    return None


def _are_nested(sums: Iterable[str], shape: LoopShape, infos: Mapping[str, Info]) -> bool:
    """Whether the axes of all sums over rows may be loops at once: of two strides, one divides the other."""
    strides = {shape.cols or 1, shape.numel}
    for name in sums:
        info = infos[name]
        if isinstance(info.definition, d.Reduce) and not is_row_reduction(info, shape):
            unit = (shape.cols or 1) if level_of(info, shape) == "row" else 1
            strides |= {unit * stride for stride in d.row_major(tuple(axis.extent for axis in info.definition.axes))}
    return all(larger % smaller == 0 for smaller, larger in pairwise(sorted(strides)) if smaller)


def _is_place(info: Info) -> bool:
    return isinstance(info.definition, d.Reduce) and REDUCING[info.definition.kind].is_place


def _check_read(name: str, level: Level, read: Read, shape: LoopShape, source: Info) -> Hazard | None:
    available = result_level(source, shape)
    if available is None:
        return Hazard("barrier", f"{name} reads {read.source}, which is complete only after the last row")
    same = read.cols is None and available == level
    broadcast = read.cols == shape.cols is not None and available == "row" and level == "full"
    if same or broadcast:
        return None
    return Hazard("access", f"{name} reads {read.source} at {read.index}, another element than its own")


def is_optional(members: tuple[str, ...], shape: LoopShape, infos: Mapping[str, Info]) -> bool:
    """Whether nothing in the group would change if `shape.cols` were another number."""
    if shape.cols is None:
        return False
    inside = set(members)
    for name in members:
        info = infos[name]
        if info.domain != shape.numel:
            return False
        if is_row_reduction(info, shape) and (info.result != 1 or _is_place(info)):
            return False
        if any(read.source in inside and isinstance(infos[read.source].definition, d.Reduce) for read in info.reads):
            return False
    return True
