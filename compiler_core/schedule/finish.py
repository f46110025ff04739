"""The last step of building a kernel: canonical names, and one object for equal kernels.

In: statements over axes of their own, and the table of params. Out: `ir.Kernel`s. Axes are named i0, i1, ... as they
first appear, params p0, p1, ... in order of first use, so groups that do the same work on different values give the
same text. That text is the key under which kernels are shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from compiler_core.dtype import DType
from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.print import print_kernel
from compiler_core.lowering import definition as d
from compiler_core.lowering.target import CPU, Target
from compiler_core.meta import TensorMeta
from compiler_core.records import dataclass
from compiler_core.symbolic.index import Axis, Index, Scalar, Variable, named_axis

if TYPE_CHECKING:
    from compiler_core.schedule.equal import KernelRecipe


@dataclass(frozen=True)
class Partial:
    """A temp that a kernel needs for itself: the partial results of `reduction`."""

    reduction: str
    dtype: DType
    numel: int


@dataclass(frozen=True)
class Slice:
    """`numel` elements of `target` from `offset` on: where parts of an assembled value are written."""

    target: str
    offset: int
    numel: int


Argument: TypeAlias = str | Partial | Slice


def slice_of(element: d.Element) -> Slice:
    """Where an Element that is part of another value lies."""
    assert element.part is not None, f"{element.name} has memory of its own"
    return Slice(element.part.target, element.part.offset, element.part.index.bounds[1] + 1)


class ParamTable:
    """The params of a kernel, named in order of first use. `arguments`: what each stands for."""

    def __init__(self, metas: Mapping[str, TensorMeta]) -> None:
        self.arguments: list[Argument] = []
        self._names: dict[str, str] = {}
        self._metas = metas
        self._dtypes: list[DType] = []
        self._written: set[str] = set()

    def _get(self, key: str, argument: Argument, dtype: DType) -> str:
        if key not in self._names:
            self._names[key] = f"p{len(self.arguments)}"
            self.arguments.append(argument)
            self._dtypes.append(dtype)
        return self._names[key]

    def read(self, value: str) -> str:
        return self._get(value, value, self._metas[value].dtype)

    def write(self, value: str) -> str:
        name = self.read(value)
        self._written.add(name)
        return name

    def partial(self, partial: Partial) -> str:
        name = self._get(f"{partial.reduction}__partial", partial, partial.dtype)
        self._written.add(name)
        return name

    def part(self, element: d.Element) -> str:
        name = self._get(element.name, slice_of(element), element.dtype)
        self._written.add(name)
        return name

    def params(self) -> tuple[ir.Param, ...]:
        """The finished declarations."""
        made = []
        for k, (argument, dtype) in enumerate(zip(self.arguments, self._dtypes)):
            numel = self._metas[argument].numel if isinstance(argument, str) else argument.numel
            made.append(ir.Param(f"p{k}", dtype, numel, "out" if f"p{k}" in self._written else "in"))
        return tuple(made)


class KernelTable:
    """Every distinct kernel made so far, by its text before naming. One table serves all programs of a compilation.

    target: what they are for. recipes: kernels by the text of the group that they were built for. batches: kernels that
    do the work of several calls of one (batch.py).
    """

    def __init__(self, target: Target = CPU) -> None:
        self.target = target
        self.recipes: dict[str, KernelRecipe] = {}
        self.batches: dict[tuple[str, int, tuple[bool, ...]], ir.Kernel] = {}
        self._kernels: dict[str, ir.Kernel] = {}

    def finish(self, stem: str, body: Sequence[ir.Stmt], params: tuple[ir.Param, ...]) -> ir.Kernel:
        """The kernel of `body`: an earlier one if its text is equal. stem: what its name is made from."""
        names = _Names(self.target)
        names.visit(body)
        named = _Named(names.names, names.apart)
        kernel = ir.Kernel(f"k{len(self._kernels)}_{stem}", params, tuple(map(named.stmt, body)))
        return self._kernels.setdefault(print_kernel(kernel, called=""), kernel)


class _Names:
    """Names for the axes of loops, in order of appearance.

    On a GPU an axis is a row, a column or a number by the kind of its loop: loops of one axis that are of another kind
    than its first have another name (`apart`), so that nothing of the one is taken for the other's.
    """

    def __init__(self, target: Target) -> None:
        self.on_gpu = target.is_gpu
        self.names: dict[Axis, Axis] = {}
        self.apart: dict[_Kind, Axis] = {}
        self._first: dict[Axis, _Kind] = {}

    def visit(self, body: Sequence[ir.Stmt]) -> None:
        for stmt in body:
            if not isinstance(stmt, ir.Loop):
                continue
            axis, kind = stmt.axis, _kind(stmt)
            if axis not in self.names:
                self.names[axis] = self._new(axis)
                self._first[axis] = kind
            elif self.on_gpu and kind != self._first[axis] and kind not in self.apart:
                self.apart[kind] = self._new(axis)
            self.visit(stmt.body)

    def _new(self, axis: Axis) -> Axis:
        return named_axis(f"i{len(self.names) + len(self.apart)}", axis.extent)


_Kind: TypeAlias = "tuple[Axis, ir.LoopKind, Axis | None]"


def _kind(loop: ir.Loop) -> _Kind:
    return loop.axis, loop.kind, loop.part_of


class _Named:
    """Statements with named axes. apart: of loops that have names of their own."""

    def __init__(self, names: Mapping[Axis, Axis], apart: Mapping[_Kind, Axis]) -> None:
        self.names, self.apart = names, apart

    def stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.Loop() if (name := self.apart.get(_kind(stmt))) and self.names[stmt.axis] is not name:
                return _Named({**self.names, stmt.axis: name}, self.apart).stmt(stmt)
            case ir.Loop(axis, kind, body, part_of, span):
                part = None if part_of is None else self.names[part_of]
                ends = (self.index(span[0]), self.index(span[1])) if span else None
                return ir.Loop(self.names[axis], kind, tuple(map(self.stmt, body)), part, ends)
            case ir.Let(name, value):
                return ir.Let(name, self.expr(value))
            case ir.Store(buffer, index, value, mode):
                return ir.Store(buffer, self.index(index), self.expr(value), mode)
            case ir.Accumulate(name, value, at):
                return ir.Accumulate(name, self.expr(value), None if at is None else self.index(at))
            case ir.Check(condition, message):
                return ir.Check(self.expr(condition), message)
            case _:
                return stmt

    def expr(self, expr: x.Expr) -> x.Expr:
        return x.rebuilt(expr, self.expr, self.index)

    def index(self, index: Index) -> Index:
        return index.renamed(self._variable)

    def _variable(self, variable: Variable) -> Variable:
        return self.names[variable] if isinstance(variable, Axis) else Scalar(variable.name)
