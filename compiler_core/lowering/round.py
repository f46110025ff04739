"""Reductions whose result is converted at once give the converted result themselves.

In: `Defined`. Out: `Defined` in which a Reduce that a lone Element converts has that Element's name and dtype. Why: the
result of a sum over rows is complete only after its kernel, so the conversion (of a gradient of bf16 parameters) would
be a launch of its own. The sum runs in `accumulate` all the same, and is rounded once: the same bits. Where it is
converted back at once (a bias's gradient under autocast) it is not rounded at all.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir.ir import REDUCING
from compiler_core.lowering import definition as d


def round_results(defined: d.Defined) -> d.Defined:
    """`defined` after the rewrite."""
    uses = Counter(name for one in defined.definitions.values() for name in d.definition_reads(one))
    made: dict[str, d.Definition] = {}
    for name, definition in defined.definitions.items():
        source = _converted(definition)
        reduction = made.get(source)
        alone = uses[source] == 1 and source not in defined.outputs
        if alone and isinstance(reduction, d.Reduce) and _fits(reduction, definition):
            del made[source]
            made[name] = replace(reduction, name=name, dtype=definition.dtype, note=reduction.note or definition.note)
        else:
            made[name] = definition
    return replace(defined, definitions=made)


def _converted(definition: d.Definition) -> str:
    """The value of which `definition` is a conversion, element by element; "" if it is something else."""
    if not isinstance(definition, d.Element) or definition.part is not None:
        return ""
    match definition.value:
        case x.Cast(x.Load(source, index, _), _) if index == d.flat_of(definition.axes):
            return source
    return ""


def _fits(reduction: d.Reduce, definition: d.Definition) -> bool:
    """Whether the sum has the element's size, and is exact until it is rounded, or after it was."""
    exact = reduction.accumulate in (reduction.dtype, definition.dtype)
    same = reduction.numel == definition.numel and exact
    return same and not REDUCING[reduction.kind].is_place and definition.dtype.is_floating_point
