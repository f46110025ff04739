"""Cheap values that would be stored for a later kernel, computed again there instead.

In: definitions, and the groups that fusion made of them. Out: definitions in which the readers outside a value's group
hold its expression, or None if there is no such value; they are to be fused anew. Why: a reduction that does not run
along the rows of its kernel (batch norm's, over all but the channels) is complete only after the last row, so what is
computed beside it and read after it would be written to memory and read back, though `x - mean` costs less than that.
A value qualifies if its expression, over what is in memory anyway, is short and free of costly functions, if every
reader outside takes its own element, and if the arrays it streams are the program's inputs, or are read by the reader's
kernel already: so nothing lives longer, and nothing is computed from more than that. On a GPU, where memory is slower
beside arithmetic, an expression may be longer, and may stream arrays that take half of the value's bytes: f32 made of
16-bit floats, which are then stored in its place. A graph without reductions stays as it is: its caller may have
outputs written over inputs (pipeline.compile_graph).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from compiler_core.loop_ir import expr as x
from compiler_core.lowering import definition as d
from compiler_core.lowering.target import CPU, Target
from compiler_core.schedule.legality import Group, Info

MIN_NUMEL = 16384  # elements: less stays in the cache between two kernels
MAX_OPS = 8
MAX_OPS_NARROW = 24  # on a GPU, of a value that is wider than what it is computed from
MAX_STREAMS = 2  # arrays of the value's size
_SMALL = 8  # times smaller than the value: what is broadcast into it


def recompute_cheap(
    definitions: Mapping[str, d.Definition],
    fused: Sequence[tuple[Group, Mapping[str, Info]]],
    outputs: Collection[str],
    inputs: Collection[str],
    target: Target = CPU,
) -> dict[str, d.Definition] | None:
    """`definitions` with the stores of cheap values saved; None if there are none. inputs: constants too."""
    if not any(isinstance(definition, d.Reduce) for definition in definitions.values()):
        return None
    work = _Recompute(definitions, fused, outputs, inputs, target)
    for name in definitions:
        work.visit(name)
    return work.definitions if work.changed else None


class _Recompute:
    """stored: values that are in memory as things stand."""

    def __init__(
        self,
        definitions: Mapping[str, d.Definition],
        fused: Sequence[tuple[Group, Mapping[str, Info]]],
        outputs: Collection[str],
        inputs: Collection[str],
        target: Target,
    ) -> None:
        self.target = target
        self.max_ops = MAX_OPS_NARROW if target.is_gpu else MAX_OPS
        self.definitions = dict(definitions)
        self.inputs = set(inputs)
        self.changed = False
        self.group_of = {name: k for k, (group, _) in enumerate(fused) for name in group.members}
        self.members = [group.members for group, _ in fused]
        self.stays = set(outputs)
        self.readers: dict[str, list[str]] = {}
        self.stored = set(outputs)
        for group, infos in fused:
            for name in group.members:
                self._note_reads(name, infos[name])

    def _note_reads(self, name: str, info: Info) -> None:
        in_loops = isinstance(info.definition, d.Element | d.Reduce)
        reads = [read.source for read in info.reads] if in_loops else d.definition_reads(info.definition)
        for source in dict.fromkeys(reads):
            self.readers.setdefault(source, []).append(name)
            if not in_loops:
                self.stays.add(source)
            if self.group_of.get(source) != self.group_of[name]:
                self.stored.add(source)

    def visit(self, name: str) -> None:
        """Free `name` from memory if it qualifies."""
        source = self.definitions[name]
        if not isinstance(source, d.Element) or source.part is not None or source.numel < MIN_NUMEL:
            return
        if name in self.stays or name not in self.stored:
            return
        outside = [r for r in self.readers[name] if self.group_of[r] != self.group_of[name]]
        for narrow in (False, True) if self.target.is_gpu else (False,):
            value = self._expanded(source, narrow=narrow)
            if value is not None and all(self._may_compute(r, source, value) for r in outside):
                break
        else:
            return
        assert value is not None, f"{name} has no expression"
        for reader in outside:
            self._rewrite(reader, source, value)
        self.stored.discard(name)
        self.stored |= {load.buffer for load in d.loads(value)}
        self.changed = True

    def _expanded(self, source: d.Element, *, narrow: bool) -> x.Expr | None:
        """The expression of `source` over what is in memory, or None if it is not cheap.

        narrow: also over values of half its width and as many elements, which then are in memory.
        """
        value, pending = source.value, True
        while pending:
            if sum(_is_operation(part) for part in d.walk_all(value)) > self.max_ops:
                return None
            pending = False
            for load in dict.fromkeys(d.loads(value)):
                inner = self.definitions.get(load.buffer)
                if (
                    isinstance(inner, d.Element)
                    and load.buffer not in self.stored
                    and inner.numel * _SMALL > source.numel
                    and not (narrow and _is_narrow(inner, source))
                ):
                    value = d.replace_load(value, load, d.value_at(inner, load.index))
                    pending = True
        costly = any(isinstance(part, x.ScalarCall) and x.SCALARS[part.scalar].costly for part in d.walk_all(value))
        return None if costly or any(not load.index.is_linear for load in d.loads(value)) else value

    def _may_compute(self, reader: str, source: d.Element, value: x.Expr) -> bool:
        """Whether `reader` takes its own element of `source`, and its kernel gets at what `value` streams."""
        definition = self.definitions[reader]
        assert isinstance(definition, d.Element | d.Reduce), f"{reader} keeps {source.name} in memory"
        if d.domain_numel(definition.axes) != source.numel or (isinstance(definition, d.Element) and definition.part):
            return False
        flat = d.flat_of(definition.axes)
        if any(load.index != flat for load in d.loads(definition.value) if load.buffer == source.name):
            return False
        streams = {
            load.buffer: load.dtype.itemsize
            for load in d.loads(value)
            if self._numel(load.buffer, load) * _SMALL > source.numel
        }
        if len(streams) > MAX_STREAMS:
            return False
        fresh = streams.keys() - self._read_beside(reader)
        if self.target.is_gpu and 2 * sum(streams[name] for name in fresh) <= source.dtype.itemsize:
            return True
        return fresh <= self.inputs and sum(_is_operation(part) for part in d.walk_all(value)) <= MAX_OPS

    def _numel(self, name: str, load: x.Load) -> int:
        definition = self.definitions.get(name)
        low, high = load.index.bounds
        return definition.numel if definition is not None else high - low + 1

    def _read_beside(self, reader: str) -> set[str]:
        """What the kernel of `reader` reads from memory."""
        members = self.members[self.group_of[reader]]
        reads = {name for member in members for name in d.definition_reads(self.definitions[member])}
        return reads - set(members)

    def _rewrite(self, reader: str, source: d.Element, value: x.Expr) -> None:
        definition = self.definitions[reader]
        assert isinstance(definition, d.Element | d.Reduce), f"{reader} keeps {source.name} in memory"
        whole = replace(source, value=value)
        for load in dict.fromkeys(d.loads(definition.value)):
            if load.buffer == source.name:
                rewritten = d.replace_load(definition.value, load, d.value_at(whole, load.index))
                definition = replace(definition, value=rewritten)
        self.definitions[reader] = definition


def _is_narrow(inner: d.Element, source: d.Element) -> bool:
    return inner.numel == source.numel and 2 * inner.dtype.itemsize <= source.dtype.itemsize and inner.part is None


def _is_operation(part: x.Expr) -> bool:
    return isinstance(part, x.ScalarCall | x.Cast | x.Where)
