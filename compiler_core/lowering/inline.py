"""Elements written into their only reader, where that reader takes them in another order.

In: `Defined`. Out: `Defined` with fewer definitions. Where reader and Element visit the same elements in the same
order, fusion keeps both in one kernel (schedule/fuse.py); where the order differs (a permuted or sliced read), fusion
cannot, and the Element would be stored only to be read once. Then its expression, at the reader's index, takes the
place of the load. Invariants: nothing is computed more often than before: one load, in one definition, of no more
elements than there are. An output, an operand of a product or a reduction's result stays.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from compiler_core.lowering import definition as d
from compiler_core.lowering.define import Defined

_MAX_PARTS = 64  # of one expression: longer ones are cut, for the reader's and the recursion's sake


def inline_reordered(defined: Defined) -> Defined:
    """`defined` after the rewrite."""
    uses: Counter[str] = Counter()
    for definition in defined.definitions.values():
        uses.update(_reads_with_repeats(definition))
    definitions = dict(defined.definitions)
    kept = set(defined.outputs)
    for name, reader in defined.definitions.items():
        if isinstance(reader, d.Element | d.Reduce):
            definitions[name] = _inline_into(reader, definitions, uses, kept)
    return replace(defined, definitions=definitions)


def _reads_with_repeats(definition: d.Definition) -> list[str]:
    if isinstance(definition, d.Element | d.Reduce):
        return [load.buffer for load in d.loads(definition.value)]
    return d.definition_reads(definition) * 2  # never an only use


def _inline_into(
    reader: d.Element | d.Reduce, definitions: dict[str, d.Definition], uses: Counter[str], kept: set[str]
) -> d.Element | d.Reduce:
    """`reader` with every source that only it reads, in another order, written out."""
    own = [load for load in d.loads(reader.value) if uses[load.buffer] == 1 and load.buffer not in kept]
    for load in own:
        source = definitions.get(load.buffer)
        if not isinstance(source, d.Element) or not load.index.terms:
            continue
        if load.index == d.flat_of(reader.axes) or source.numel < d.domain_numel(reader.axes):
            continue
        if sum(1 for value in (source.value, reader.value) for _ in d.walk_all(value)) > _MAX_PARTS:
            continue
        shape = tuple(axis.extent for axis in source.axes)
        table = dict(zip(source.axes, d.unflatten(load.index, shape)))
        value = d.replace_load(reader.value, load, d.substitute(source.value, table, {}))
        reader = replace(reader, value=value, note=f"{source.note}; {reader.note}")
        del definitions[load.buffer]
    return reader
