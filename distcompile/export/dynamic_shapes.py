"""torch.export's names for sizes that a program takes as they come: `Dim`, hints, and what is asked of each argument.

In: `dynamic_shapes` as torch takes it: for each argument of `forward`, by name or by place, what stands at each of its
dims: a `Dim`, `Dim.AUTO`, `Dim.DYNAMIC`, `Dim.STATIC`, a number or None. Out: `asked_of`: each tensor's dims with what
is asked of them; `check`, which holds what was traced to it and adds what is declared to what was assumed.
A Dim names one size: where it stands twice, both are equal. `2 * dim + 1` is a size that follows from it.
"""

from __future__ import annotations

import inspect
import keyword
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from compiler_core.capture.marks import Asked
from compiler_core.capture.whole_call import Traced, fixed
from compiler_core.errors import ArgumentError, ConstraintViolationError
from compiler_core.symbolic.size import SizeGuard, Sym, SymOrInt
from compiler_core.tensor.tensor import Tensor
from compiler_core.trees import MappingKey, node_type, parts_of

LEAST = 1  # an empty tensor is a graph of its own
_FORMS = "a Dim, Dim.AUTO, Dim.DYNAMIC, Dim.STATIC, a number or None"


@dataclass(frozen=True, slots=True)
class Hint:
    """What becomes of a size: "AUTO": a symbol, if the code lets it be one; "DYNAMIC": a symbol; "STATIC": a number."""

    kind: str
    min: int | None = None
    max: int | None = None

    def __call__(self, min: int | None = None, max: int | None = None) -> Hint:
        return replace(self, min=min, max=max)

    def __repr__(self) -> str:
        return f"Dim.{self.kind}"


class Dim:
    """A size with a name, from `min` to `max`, both included. Raises ArgumentError for a name that is none."""

    AUTO: ClassVar[Hint] = Hint("AUTO")
    DYNAMIC: ClassVar[Hint] = Hint("DYNAMIC")
    STATIC: ClassVar[Hint] = Hint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not (isinstance(name, str) and name.isidentifier()) or keyword.iskeyword(name) or name in ("inf", "nan"):
            raise ArgumentError("Dim(name): the name is an identifier", got=repr(name))
        if max is not None and max < (min or 0):
            raise ArgumentError(f"Dim({name!r}): max is less than min", got=f"min={min}, max={max}")
        self.__name__, self.min, self.max = name, min, max

    def __add__(self, other: int) -> Derived:
        return Derived(self, 1, other)

    def __sub__(self, other: int) -> Derived:
        return Derived(self, 1, -other)

    def __mul__(self, other: int) -> Derived:
        return Derived(self, other, 0)

    __radd__, __rmul__ = __add__, __mul__

    def __repr__(self) -> str:
        return f"Dim({self.__name__!r}, min={self.min}, max={self.max})"


@dataclass(frozen=True, slots=True)
class Derived:
    """times * root + plus."""

    root: Dim
    times: int
    plus: int

    def __add__(self, other: int) -> Derived:
        return replace(self, plus=self.plus + other)

    def __sub__(self, other: int) -> Derived:
        return self + -other

    def __mul__(self, other: int) -> Derived:
        return Derived(self.root, self.times * other, self.plus * other)

    __radd__, __rmul__ = __add__, __mul__

    def __repr__(self) -> str:
        return f"{self.times}*{self.root.__name__} + {self.plus}"


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """A Dim of each name."""
    return tuple(Dim(name, min=min, max=max) for name in names)


@dataclass(frozen=True, slots=True)
class Declared:
    """What stands at a dim. text: what the user calls its size."""

    what: Dim | Derived | Hint
    text: str

    @property
    def may_fix(self) -> bool:
        return isinstance(self.what, Hint) and self.what.kind == "AUTO"

    @property
    def ends(self) -> tuple[int, float]:
        if isinstance(self.what, Derived):
            return LEAST, math.inf
        low = LEAST if self.what.min is None else max(self.what.min, LEAST)
        return low, math.inf if self.what.max is None else self.what.max

    @property
    def asked(self) -> Asked:
        low, high = self.ends
        return Asked(low, high, name=self.what.__name__ if isinstance(self.what, Dim) else "")


Shapes = Mapping[int, Mapping[int, Declared]]  # id of a tensor -> dim -> what stands there


def asked_of(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any) -> Shapes:
    """What is declared of the arguments' dims. Raises ArgumentError for `dynamic_shapes` that do not fit them."""
    if not dynamic_shapes:
        return {}
    given = arguments(forward, args, kwargs)
    if isinstance(dynamic_shapes, (tuple, list)):
        if len(dynamic_shapes) != len(given):
            what = "dynamic_shapes is not as long as the arguments of forward"
            raise ArgumentError(what, expected=", ".join(given), got=f"{len(dynamic_shapes)} of them")
        dynamic_shapes = dict(zip(given, dynamic_shapes))
    found: dict[int, dict[int, Declared]] = {}
    for path, tensor, dim, what in _walk("", given, dynamic_shapes):
        found.setdefault(id(tensor), {})[dim] = Declared(what, f"{path}.shape[{dim}]")
    _check_values(found, given)
    return found


def arguments(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Name of a parameter of `forward` -> what it is given; those of **kwargs by their own."""
    signature = inspect.signature(forward)
    bound = dict(signature.bind(*args, **kwargs).arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            bound.update(bound.pop(name, {}))
    return bound


def _walk(path: str, value: Any, spec: Any) -> Iterator[tuple[str, Tensor, int, Any]]:
    """(path, tensor, dim, what stands there)."""
    if spec is None:
        return
    if isinstance(value, Tensor):
        yield from _of_tensor(path, value, spec)
        return
    if node_type(value) is None:
        raise ArgumentError(f"dynamic_shapes: {path or 'this'} is no tensor", expected="None", got=repr(spec))
    found = parts_of(value, None)
    assert found is not None
    children = dict(value) if isinstance(value, Mapping) else dict(enumerate(found[1]))
    specs = dict(spec) if isinstance(spec, Mapping) else dict(enumerate(spec))
    if unknown := [key for key in specs if key not in children]:
        raise ArgumentError(f"dynamic_shapes: there is no {unknown[0]!r} in {path or 'the arguments'}",
                            expected=", ".join(map(repr, children)))  # fmt: skip
    for key, child in children.items():
        name = key if not path and isinstance(key, str) else f"{path}{MappingKey(key)}"
        yield from _walk(name, child, specs.get(key))


def _of_tensor(path: str, tensor: Tensor, spec: Any) -> Iterator[tuple[str, Tensor, int, Any]]:
    if not isinstance(spec, (Mapping, tuple, list)):
        raise ArgumentError(f"dynamic_shapes: what is said of {path}", expected="a dict, tuple or list of its dims",
                            got=repr(spec))  # fmt: skip
    if not isinstance(spec, Mapping) and len(spec) != tensor.ndim:
        raise ArgumentError(f"dynamic_shapes: {path} has {tensor.ndim} dims", got=f"{len(spec)} of them")
    for dim, what in spec.items() if isinstance(spec, Mapping) else enumerate(spec):
        if not -tensor.ndim <= dim < tensor.ndim:
            raise ArgumentError(f"dynamic_shapes: {path} has {tensor.ndim} dims", got=f"dim {dim}")
        if isinstance(what, int) and what == tensor.shape[dim]:
            continue
        if what is None or (isinstance(what, Hint) and what.kind == "STATIC"):
            continue
        if not isinstance(what, (Dim, Derived, Hint)):
            raise ArgumentError(f"dynamic_shapes: dim {dim} of {path}, whose size is {tensor.shape[dim]}",
                                expected=_FORMS, got=repr(what))  # fmt: skip
        yield path, tensor, dim % tensor.ndim, what


def _check_values(found: Shapes, given: dict[str, Any]) -> None:
    """What the example's sizes contradict."""
    from compiler_core.trees import leaves_of

    values: dict[str, tuple[int, str]] = {}
    for tensor in leaves_of(given):
        for dim, one in found.get(id(tensor), {}).items():
            size, what = tensor.shape[dim], one.what
            low, high = one.ends
            if not low <= size <= high:
                raise ConstraintViolationError(f"{one.text} is {size} in the example", expected=f"{what!r}")
            if isinstance(what, Hint):
                continue
            root = what.root if isinstance(what, Derived) else what
            times, plus = (what.times, what.plus) if isinstance(what, Derived) else (1, 0)
            number, rest = divmod(size - plus, times)
            before, text = values.setdefault(root.__name__, (number, one.text))
            if rest or before != number:
                told = f"{root.__name__} = {before}, by {text}"
                raise ConstraintViolationError(f"{one.text} is {size} in the example, and is {what!r}", got=told)


# -- what was traced


def check(traced: Traced, declared: Mapping[tuple[int, int], Declared]) -> None:
    """Hold a trace to what was declared; what is declared of several sizes is assumed from here on.

    declared: (number of the wanted tensor, dim) -> what stands there. Raises ConstraintViolationError.
    """
    names: dict[Sym, Declared] = {}
    for k, dim, symbol, _ in traced.asked:
        one = declared[k, dim]
        if fixed(traced.sizes, symbol):
            if not one.may_fix:
                raise _violated(traced, symbol, one, "the code is right for one number alone")
        else:
            names[symbol] = one
    for symbol, one in names.items():
        _check_range(traced, symbol, one)
    _check_equalities(traced, names)
    roots: dict[str, SymOrInt] = {}
    for symbol, one in names.items():
        _relate(traced, symbol, one, names, roots)


def _check_range(traced: Traced, symbol: Sym, one: Declared) -> None:
    (only,) = symbol.symbols
    low, high = traced.sizes.ends_now(symbol)
    known_low, known_high = one.ends
    own = [guard for guard in traced.sizes.guards if guard.symbols == {only} and not _is_of_one(guard)]
    if isinstance(one.what, Dim) and (low > max(known_low, 2) or high < known_high or _odd(own)):
        raise _violated(traced, symbol, one, "the code is right for some of its sizes alone")


def _is_of_one(guard: SizeGuard) -> bool:
    """Whether it says that a size is not 0 or 1."""
    return guard.relation == "==" and not guard.answer and guard.right in (0, 1)


def _odd(guards: list[SizeGuard]) -> bool:
    """Whether some say more than ends."""
    return any(guard.relation == "==" for guard in guards)


def _check_equalities(traced: Traced, names: Mapping[Sym, Declared]) -> None:
    """Two Dims of different names that the code takes to be related."""
    by_symbol = {next(iter(symbol.symbols)): one for symbol, one in names.items()}
    for guard in traced.sizes.guards:
        roots = {
            (what.root if isinstance(what, Derived) else what).__name__
            for symbol in guard.symbols
            if symbol in by_symbol and not isinstance(what := by_symbol[symbol].what, Hint)
        }
        if len(roots) > 1 and guard.answer == (guard.relation == "=="):
            raise ConstraintViolationError(
                f"{' and '.join(sorted(roots))} are declared as sizes of their own, and the program is right only "
                f"where {guard}",
                where=guard.where,
                remedy="use one Dim for both, a Dim that follows from the other, or Dim.AUTO",
            )


def _relate(
    traced: Traced, symbol: Sym, one: Declared, names: Mapping[Sym, Declared], roots: dict[str, SymOrInt]
) -> None:
    """Dims of one name are one size."""
    what = one.what
    if isinstance(what, Hint):
        return
    root, times, plus = (what.root, what.times, what.plus) if isinstance(what, Derived) else (what, 1, 0)
    if root.__name__ not in roots:
        own = [s for s, other in names.items() if isinstance(other.what, Dim) and other.what.__name__ == root.__name__]
        roots[root.__name__] = own[0] if own else (symbol - plus) // times
    wanted = times * roots[root.__name__] + plus
    if traced.sizes.decided("==", symbol, wanted) is not True:
        traced.sizes.add(SizeGuard("==", symbol, wanted, True, one.text))


def _violated(traced: Traced, symbol: Any, one: Declared, why: str) -> ConstraintViolationError:
    guards = [g for g in traced.sizes.guards if isinstance(symbol, Sym) and g.symbols & symbol.symbols]
    guard = guards[-1] if guards else None
    told = f"{one.text} is declared as {one.what!r}, and {why}"
    return ConstraintViolationError(
        told,
        where=guard.where if guard else "",
        got=f"only where {guard}" if guard else "a size that the code makes a number of",
        remedy="take away what asks for the size, or declare Dim.AUTO, a narrower Dim or a number",
    )
