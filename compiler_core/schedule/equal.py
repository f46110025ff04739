"""Groups that do the same work on different values, found before anything is built for them: a deep model's layers.

In: a group's members, its loop shape, which members are stored. Out: a text in which values and axes are numbered in
order of appearance, and the values in that order. Groups of equal text give the same kernel, with the n-th value of
the one where the n-th of the other stands: `KernelRecipe` keeps the kernel and says so. Groups that differ in the text
may still give equal kernels, which `finish.py` finds afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from compiler_core.loop_ir import ir
from compiler_core.loop_ir.expr_text import ExprPrinter
from compiler_core.lowering import definition as d
from compiler_core.meta import TensorMeta
from compiler_core.records import dataclass
from compiler_core.schedule.finish import Argument, Partial, Slice, slice_of
from compiler_core.schedule.legality import Info, LoopShape
from compiler_core.symbolic.index import Variable


class Fingerprint:
    """The text of a group. names: its values, in order of appearance."""

    def __init__(
        self, infos: Mapping[str, Info], shape: LoopShape, stored: Collection[str], metas: Mapping[str, TensorMeta]
    ) -> None:
        self._metas = metas
        self._values: dict[str, str] = {}
        self._axes: dict[Variable, str] = {}
        self._printer = ExprPrinter(self._value, self._axis)
        lines = [repr(shape)]
        for name, info in infos.items():
            lines.append(f"{self._value(name)} {name in stored} {self._definition(info.definition)}")
        self.text = "\n".join(lines)

    @property
    def names(self) -> list[str]:
        return [*self._values]

    def _definition(self, definition: d.Definition) -> str:
        """All but the name, which numbers the line, and the note."""
        assert isinstance(definition, d.Element | d.Reduce), "only elements and reductions are built in groups"
        axes = [f"{self._axis(axis)}:{axis.extent}" for axis in definition.axes]
        if isinstance(definition, d.Reduce):
            place = f"{definition.kind} {definition.accumulate.short} {self._printer.index(definition.kept)}"
        else:
            place = "" if definition.part is None else f"part {self._printer.index(definition.part.index)}"
        return f"{axes} {place} = {self._printer.text(definition.value)}"

    def _value(self, name: str) -> str:
        if name not in self._values:
            meta = self._metas[name]
            self._values[name] = f"v{len(self._values)}"
            return f"{self._values[name]}:{meta.dtype.short}:{meta.numel}"
        return self._values[name]

    def _axis(self, axis: Variable) -> str:
        return self._axes.setdefault(axis, f"d{len(self._axes)}")


@dataclass(frozen=True)
class KernelRecipe:
    """A kernel, and what its params stand for: of each the kind, and the number of the value in the text's order."""

    kernel: ir.Kernel
    places: tuple[tuple[Argument, int], ...]

    @staticmethod
    def of(
        kernel: ir.Kernel, arguments: Sequence[Argument], group: Fingerprint, infos: Mapping[str, Info]
    ) -> KernelRecipe:
        """From the group that the kernel was built for."""
        numbers = {name: number for number, name in enumerate(group.names)}
        written = {_slice(info.definition): name for name, info in infos.items()}

        def value(argument: Argument) -> str:
            match argument:
                case Slice():
                    return written[argument]
                case Partial(reduction, _, _):
                    return reduction
            return argument

        return KernelRecipe(kernel, tuple((argument, numbers[value(argument)]) for argument in arguments))

    def arguments(self, group: Fingerprint, infos: Mapping[str, Info]) -> tuple[Argument, ...]:
        """What the params stand for in a group of equal text."""
        names = group.names
        return tuple(_in_place_of(argument, names[number], infos) for argument, number in self.places)


def _in_place_of(argument: Argument, name: str, infos: Mapping[str, Info]) -> Argument:
    match argument:
        case Partial():
            return replace(argument, reduction=name)
        case Slice():
            found = _slice(infos[name].definition)
            assert found is not None, f"{name} has memory of its own"
            return found
    return name


def _slice(definition: d.Definition) -> Slice | None:
    """The memory of an Element that is part of another value."""
    return slice_of(definition) if isinstance(definition, d.Element) and definition.part is not None else None
