"""Elements written into readers that take them in another order.

In: `Defined`. Out: `Defined` with fewer definitions. Where reader and Element visit the same elements in the same
order, fusion keeps both in one kernel (schedule/fuse.py); where the order differs (a permuted, sliced or concatenated
read), fusion cannot, and the Element would have to be stored. Then its expression, at the reader's index, takes the
place of the load, and so on upwards, if each step either computes nothing more often (an only load, of no more
elements than there are) or is about as cheap as a load, and at most one stored value is read in the end, as before.
Invariants: an output, an operand of a product and a reduction's result stay; so does what is broadcast, on a CPU: on a
GPU a launch costs more than computing something cheap for every element.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from compiler_core.loop_ir import expr as x
from compiler_core.lowering import definition as d
from compiler_core.lowering.boxes import Box, loads_in_boxes, rebase
from compiler_core.lowering.target import CPU, Target

_MAX_PARTS = 96  # of one expression: longer ones are cut, for the reader's and the recursion's sake
_CHEAP_OPS = 3
_BROADCAST = 4  # a value this many times smaller than its reader's domain is better computed once


def inline_reordered(defined: d.Defined, target: Target = CPU) -> d.Defined:
    """`defined` after the rewrite."""
    inliner = _Inliner(defined, broadcasts=target.is_gpu)
    for name, reader in defined.definitions.items():
        if isinstance(reader, d.Element | d.Reduce | d.Scan):
            inliner.visit(name, reader)
    return replace(defined, definitions=d.prune(inliner.definitions, defined.outputs))


class _Inliner:
    """uses: how many loads there are of each value. stays: values that need memory whatever happens.

    broadcasts: whether what is cheap is computed for every element that reads it.
    """

    def __init__(self, defined: d.Defined, *, broadcasts: bool = False) -> None:
        self.broadcasts = broadcasts
        self.definitions = dict(defined.definitions)
        self.uses: Counter[str] = Counter()
        self.stays = set(defined.outputs)
        for definition in defined.definitions.values():
            if isinstance(definition, d.Element | d.Reduce):
                self.uses.update(_loaded(definition.value))
            elif isinstance(definition, d.Scan):
                self.uses.update(name for value in definition.values for name in _loaded(value))
            else:
                self.stays.update(d.definition_reads(definition))

    def visit(self, name: str, reader: d.Element | d.Reduce | d.Scan) -> None:
        """Write out what `reader` takes in another order; also in its own order, if nothing can share its kernel."""
        if isinstance(reader, d.Scan):
            values = tuple(self._rewritten(value, reader.axes, shares=False) for value in reader.values)
            self.definitions[name] = replace(reader, values=values)
            return
        shares = not (isinstance(reader, d.Reduce) and d.seeks_across(reader))
        value = self._rewritten(reader.value, reader.axes, shares=shares)
        if value is not reader.value:
            self.definitions[name] = replace(reader, value=value)

    def _rewritten(self, value: x.Expr, axes: d.Axes, *, shares: bool) -> x.Expr:
        domain = d.domain_numel(axes)
        flat: object = None
        for load, box in loads_in_boxes(value).items():
            if not isinstance(self.definitions.get(load.buffer), d.Element):
                continue
            flat = d.flat_of(axes) if flat is None else flat
            written = None if load.index == flat and shares else self._written_out(load, box, domain)
            if written is None:
                continue
            rewritten = d.replace_load(value, load, written)
            if _n_parts(rewritten) <= _MAX_PARTS:
                self._account(value, rewritten)
                value = rewritten
        return value

    def _written_out(self, load: x.Load, box: Box, domain: int) -> x.Expr | None:
        """What stands behind `load`, which is made in `box` only; None if the load should stay."""
        source = self.definitions.get(load.buffer)
        if not isinstance(source, d.Element) or load.buffer in self.stays:
            return None
        if not load.index.terms and not self.broadcasts:
            return None
        moved = self.uses[load.buffer] == 1 and source.numel >= domain
        small = source.numel * _BROADCAST < domain and not self.broadcasts
        if not moved and (small or not _is_cheap(source, self.uses[load.buffer])):
            return None
        forward, back = rebase(box)
        value = d.value_at(source, d.substitute_index(load.index, forward, {}))
        for inner, inner_box in loads_in_boxes(value).items():
            deeper = self._written_out(inner, inner_box, domain)
            if deeper is not None:
                value = d.replace_load(value, inner, deeper)
        if _n_parts(value) > _MAX_PARTS or len(self._stored(value, domain)) > 1:
            return None
        return d.substitute(value, back, {})

    def _stored(self, value: x.Expr, domain: int) -> set[str]:
        """The values in `value` that a kernel before has to store for it."""
        found = set()
        for name in _loaded(value):
            source = self.definitions.get(name)
            if isinstance(source, d.Element | d.Reduce) and source.numel * _BROADCAST >= domain:
                found.add(name)
        return found

    def _account(self, before: x.Expr, after: x.Expr) -> None:
        """Update `uses`, also for what nobody reads any more."""
        self.uses.update(_loaded(after))
        self._release(_loaded(before))

    def _release(self, names: list[str]) -> None:
        for name in names:
            self.uses[name] -= 1
            source = self.definitions.get(name)
            if self.uses[name] == 0 and name not in self.stays and isinstance(source, d.Element):
                self._release(_loaded(source.value))


def _loaded(value: x.Expr) -> list[str]:
    return [load.buffer for load in d.loads(value)]


def _n_parts(value: x.Expr) -> int:
    return sum(1 for _ in d.walk_all(value))


def _is_cheap(source: d.Element, n_uses: int) -> bool:
    """Whether computing an element costs about what loading it does."""
    parts = list(d.walk_all(source.value))
    if any(isinstance(part, x.ScalarCall) and x.SCALARS[part.scalar].costly for part in parts):
        return False
    n_ops = sum(isinstance(part, x.ScalarCall | x.Cast | x.Where) for part in parts)
    n_loads = sum(isinstance(part, x.Load) for part in parts)
    return n_ops <= _CHEAP_OPS and (n_loads <= 1 or (n_loads <= 2 and n_uses <= 2))
