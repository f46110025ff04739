"""The last step of building a kernel: canonical names, sympy indices, and one object for equal kernels.

In: statements whose loops and indices hold Axis objects, and the table of params. Out: `ir.Kernel`s. Axes are named
i0, i1, ... as they first appear, params p0, p1, ... in order of first use, so groups that do the same work on
different values give the same text. That text, made from the Affine form, is the key under which kernels are shared:
only the first of equal kernels is converted to sympy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from compiler_core.dtype import DType
from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir import ir
from compiler_core.lowering import definition as d
from compiler_core.meta import TensorMeta
from compiler_core.schedule.target import CPU, Target
from compiler_core.symbolic.affine import Affine, Axis, Data, Div, Mod, SympyConverter

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
        named = _Names(self.target)
        named.visit(body)
        key = "\n".join([repr([(p.dtype.short, p.numel, p.access) for p in params]), *_lines(body, named.names, "")])
        if key not in self._kernels:
            convert = _Converter(named.names, named.apart)
            statements = tuple(convert.stmt(stmt) for stmt in body)
            self._kernels[key] = ir.Kernel(f"k{len(self._kernels)}_{stem}", params, statements)
        return self._kernels[key]


class _Names:
    """Names for the axes of loops, in order of appearance.

    On a GPU an axis is a row, a column or a number by the kind of its loop: loops of one axis that are of another kind
    than its first have another name (`apart`), so that nothing of the one is taken for the other's.
    """

    def __init__(self, target: Target) -> None:
        self.on_gpu = target.kind == "gpu"
        self.names: dict[Axis, str] = {}
        self.apart: dict[_Kind, str] = {}
        self._first: dict[Axis, _Kind] = {}

    def visit(self, body: Sequence[ir.Stmt]) -> None:
        for stmt in body:
            if not isinstance(stmt, ir.Loop):
                continue
            axis, kind = _axis(stmt), _kind(stmt)
            if axis not in self.names:
                self.names[axis] = f"i{len(self.names) + len(self.apart)}"
                self._first[axis] = kind
            elif self.on_gpu and kind != self._first[axis] and kind not in self.apart:
                self.apart[kind] = f"i{len(self.names) + len(self.apart)}"
            self.visit(stmt.body)


_Kind: TypeAlias = "tuple[Axis, str, object]"


def _kind(loop: ir.Loop) -> _Kind:
    return _axis(loop), loop.kind, loop.part_of


def _axis(loop: ir.Loop) -> Axis:
    axis: Axis = loop.axis  # type: ignore[assignment]
    return axis


class _Converter:
    """Axis objects -> names, Affine -> sympy. apart: of loops that have names of their own."""

    def __init__(self, names: Mapping[Axis, str], apart: Mapping[_Kind, str]) -> None:
        self.names, self.apart = names, apart
        self.sympy = SympyConverter(_WithScalars(names))
        self._memo: dict[x.Expr, x.Expr] = {}

    def stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.Loop() if (name := self.apart.get(_kind(stmt), "")) and self.names[_axis(stmt)] != name:
                return _Converter({**self.names, _axis(stmt): name}, self.apart).stmt(stmt)
            case ir.Loop(_, extent, kind, body, part_of, span):
                part = self.names[part_of] if part_of else ""  # type: ignore[index]
                ends = (self.sympy(span[0]), self.sympy(span[1])) if span else None
                return ir.Loop(self.names[_axis(stmt)], extent, kind, tuple(map(self.stmt, body)), part, ends)
            case ir.Let(name, value):
                return ir.Let(name, self.expr(value))
            case ir.Store(buffer, index, value, mode):
                return ir.Store(buffer, self.sympy(index), self.expr(value), mode)
            case ir.Accumulate(name, value, at):
                return ir.Accumulate(name, self.expr(value), None if at is None else self.sympy(at))
            case ir.Check(condition, message):
                return ir.Check(self.expr(condition), message)
            case _:
                return stmt

    def expr(self, expr: x.Expr) -> x.Expr:
        match expr:
            case x.Load(buffer, index, dtype):
                return x.Load(buffer, self.sympy(index), dtype)
            case x.IndexValue(index, dtype):
                return x.IndexValue(self.sympy(index), dtype)
            case x.IndexCompare(op, left, right, dtype):
                return x.IndexCompare(op, self.sympy(left), self.sympy(right), dtype)
            case x.ScalarCall(scalar, args, dtype):
                return x.ScalarCall(scalar, tuple(map(self.expr, args)), dtype)
            case x.Cast(arg, dtype):
                return x.Cast(self.expr(arg), dtype)
            case x.Where(cond, then, other):
                return x.Where(self.expr(cond), self.expr(then), self.expr(other))
        return expr


class _WithScalars(dict[Any, str]):
    """Names of axes; an axis that stands for a Let has its own."""

    def __missing__(self, axis: Axis) -> str:
        return axis.name


def _lines(body: Sequence[ir.Stmt], names: Mapping[Axis, str], indent: str) -> list[str]:
    """A text that tells kernels apart, cheap to make."""
    lines = []
    for stmt in body:
        match stmt:
            case ir.Loop(_, extent, kind, inner, part_of, span):
                part = f" of {names[part_of]}" if part_of else ""  # type: ignore[index]
                part += f" from {_index(span[0], names)} to {_index(span[1], names)}" if span else ""
                lines.append(f"{indent}{names[_axis(stmt)]} {extent} {kind}{part}")
                lines += _lines(inner, names, indent + " ")
            case ir.Store(buffer, index, value, mode):
                lines.append(f"{indent}{buffer}[{_index(index, names)}] {mode} {_expr(value, names)}")
            case ir.Let(name, value):
                lines.append(f"{indent}{name}={_expr(value, names)}")
            case ir.Accumulate(name, value, at):
                place = "" if at is None else _index(at, names)
                lines.append(f"{indent}{name}<-{_expr(value, names)}@{place}")
            case ir.Check(condition, message):
                lines.append(f"{indent}check {_expr(condition, names)} {message}")
            case ir.Local(name, dtype, numel):
                lines.append(f"{indent}local {name} {dtype.short} {numel}")
            case ir.Accumulator(name, dtype, kind):
                lines.append(f"{indent}acc {name} {dtype.short} {kind}")
    return lines


def _index(affine: Affine, names: Mapping[Axis, str]) -> str:
    parts = sorted(f"{c}*{_atom(atom, names)}" for atom, c in affine.terms.items())
    return "+".join([*parts, str(affine.const)])


def _atom(atom: Axis | Data | Div | Mod, names: Mapping[Axis, str]) -> str:
    if isinstance(atom, Axis):
        return names.get(atom, atom.name)
    assert not isinstance(atom, Data), "data indices have become scalars"
    return f"({_index(atom.arg, names)}){'//' if isinstance(atom, Div) else '%'}{atom.n}"


def _expr(expr: x.Expr, names: Mapping[Axis, str]) -> str:
    match expr:
        case x.Const(value, dtype):
            return f"{dtype.short}({value!r})"
        case x.Var(name, _):
            return name
        case x.Load(buffer, index, _):
            return f"{buffer}[{_index(index, names)}]"
        case x.IndexValue(index, dtype):
            return f"ix({_index(index, names)},{dtype.short})"
        case x.IndexCompare(op, left, right, _):
            return f"ix{op}({_index(left, names)},{_index(right, names)})"
        case x.ScalarCall(scalar, args, _):
            return f"{scalar}({','.join(_expr(arg, names) for arg in args)})"
        case x.Cast(arg, dtype):
            return f"cast({_expr(arg, names)},{dtype.short})"
        case x.Where(cond, then, other):
            return f"where({_expr(cond, names)},{_expr(then, names)},{_expr(other, names)})"
