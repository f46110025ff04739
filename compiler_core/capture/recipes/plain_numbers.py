"""Numbers that stood for a computed one are replaced by plain ones, wherever the objects of captured code hold them.

In: objects, and who tells such a number. Out: the same objects, changed in place: items, keys, attributes, slots,
cells, defaults, arguments of exceptions and partials. What cannot be changed (a tuple, a slice) is made anew where it
holds one, once for all that share it; iterators cannot be changed nor made anew: those that hold one are handed back.
No code of the user's runs but `__hash__` and `__eq__` of keys. Objects from outside are entered only if given as roots.
"""

from __future__ import annotations

import collections
import functools
import inspect
import types
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from compiler_core.bytecode.frame import Frame
from compiler_core.capture.recipes.constants import SCALARS, is_constant
from compiler_core.capture.recipes.instances import is_machinery, own_table
from compiler_core.capture.recipes.kinds import ITERATORS
from compiler_core.symbolic.size import Sym, hint_of
from compiler_core.tensor.tensor import Tensor

__all__ = ["plain_numbers"]

_OF_FRAMES = ("builtins", "function", "globals", "owner")  # what frames have in common with others
_PLAIN: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    complex: complex.__pos__,
    Sym: lambda size: size.at(hint_of),
}


def _plain(number: Any) -> Any:
    return next(plain for base, plain in _PLAIN.items() if issubclass(type(number), base))(number)


def plain_numbers(
    roots: Sequence[Any],
    is_symbol: Callable[[Any], bool],
    is_outside: Callable[[Any], bool] = lambda thing: False,
    instead: Mapping[Any, Callable[[Any], Any]] | None = None,
    resolved: Callable[[Any], Any] | None = None,
) -> tuple[list[Any], list[Any]]:
    """(the roots, with plain numbers in all that they reach; iterators in which some are left).

    instead: class -> what stands for its instances. resolved: the number that a symbol stands for; None: its value.
    """
    work = _Replacement(is_symbol, is_outside, instead or {}, resolved or _plain)
    plain = [work.value(root, enter=True) for root in roots]
    work.run()
    return plain, work.left


class _Replacement:
    """The objects that were met. made: id of an immutable object -> what stands for it now."""

    def __init__(
        self,
        is_symbol: Callable[[Any], bool],
        is_outside: Callable[[Any], bool],
        instead: Mapping[Any, Callable[[Any], Any]],
        resolved: Callable[[Any], Any],
    ) -> None:
        self.is_symbol, self.is_outside, self.instead, self.resolved = is_symbol, is_outside, instead, resolved
        self.met: dict[int, Any] = {}
        self.made: dict[int, Any] = {}
        self.waiting: list[Any] = []
        self.left: list[Any] = []

    def run(self) -> None:
        while self.waiting:
            self.enter(self.waiting.pop())

    def value(self, thing: Any, enter: bool = False) -> Any:
        """What is to stand in the place of `thing`; a mutable object stays, and is looked into later."""
        kind: Any = type(thing)
        if kind in SCALARS:
            return thing
        if kind in self.instead:
            if id(thing) not in self.made:
                self.met[id(thing)] = thing
                self.made[id(thing)] = self.instead[kind](thing)
            return self.made[id(thing)]
        if self.is_symbol(thing):
            return self.resolved(thing)
        if not enter and (is_constant(thing) or self.is_outside(thing)):
            return thing
        if id(thing) in self.made:
            return self.made[id(thing)]
        if id(thing) in self.met:
            return thing
        self.met[id(thing)] = thing
        remake = next((make for base, make in _IMMUTABLE.items() if issubclass(kind, base)), None)
        if remake is None:
            self.waiting.append(thing)
            return thing
        self.made[id(thing)] = thing
        self.made[id(thing)] = made = remake(self, thing)
        self.met[id(made)] = made
        return made

    def values(self, things: Iterable[Any]) -> tuple[list[Any], bool]:
        """What is to stand in the places of all these, and whether that differs."""
        before = list(things)
        after = [self.value(thing) for thing in before]
        return after, any(a is not b for a, b in zip(before, after))

    def enter(self, thing: Any) -> None:
        """Replace what a mutable object holds."""
        kind = type(thing)
        if is_machinery(kind) and kind is not Frame:
            return
        for base, change in _MUTABLE.items():
            if issubclass(kind, base):
                change(self, thing)
        if isinstance(thing, type):
            return
        self.slots(thing)
        table = own_table(thing)
        if table is not None:
            self.value(table)

    def slots(self, thing: Any) -> None:
        for base in type(thing).__mro__:
            for name, member in vars(base).items() if "__slots__" in vars(base) else ():
                if isinstance(member, types.MemberDescriptorType) and not (base is Frame and name in _OF_FRAMES):
                    try:
                        held = member.__get__(thing)
                    except AttributeError:  # not set
                        continue
                    after = self.value(held)
                    if after is not held:
                        member.__set__(thing, after)


# -- objects that cannot be changed: made anew if they hold a number to be replaced


def _tuple(work: _Replacement, thing: Any) -> Any:
    after, differs = work.values(tuple.__iter__(thing))
    if not differs:
        return thing
    new: Any = tuple.__new__(type(thing), after)
    if own_table(thing):
        vars(new).update(own_table(thing) or {})
        work.value(vars(new))
    return new


def _frozenset(work: _Replacement, thing: Any) -> Any:
    after, differs = work.values(frozenset.__iter__(thing))
    return frozenset.__new__(type(thing), after) if differs else thing


def _bounds(work: _Replacement, thing: Any) -> Any:
    after, differs = work.values([thing.start, thing.stop, thing.step])
    return type(thing)(*after) if differs else thing


def _method(work: _Replacement, thing: Any) -> Any:
    after, differs = work.values([thing.__func__, thing.__self__])
    if type(thing.__self__) in work.instead:
        return getattr(after[1], thing.__func__.__name__)
    return types.MethodType(*after) if differs else thing


_IMMUTABLE: dict[type, Callable[[_Replacement, Any], Any]] = {
    tuple: _tuple,
    frozenset: _frozenset,
    slice: _bounds,
    range: _bounds,
    types.MethodType: _method,
}


# -- objects that can


def _list(work: _Replacement, thing: Any) -> None:
    base: Any = list if isinstance(thing, list) else collections.deque
    for place, item in enumerate(list(base.__iter__(thing))):
        after = work.value(item)
        if after is not item:
            base.__setitem__(thing, place, after)


def _dict(work: _Replacement, thing: Any) -> None:
    base: Any = collections.OrderedDict if isinstance(thing, collections.OrderedDict) else dict
    keys, moved = work.values(base.keys(thing))
    held, differs = work.values(base.values(thing))
    if moved:  # the old key would stay in the place of an equal one
        base.clear(thing)
    if moved or differs:
        for key, value in zip(keys, held):
            base.__setitem__(thing, key, value)


def _defaults(work: _Replacement, thing: Any) -> None:
    work.value(thing.default_factory)


def _set(work: _Replacement, thing: Any) -> None:
    after, differs = work.values(set.__iter__(thing))
    if differs:
        set.clear(thing)
        set.update(thing, after)


def _attributes(*names: str) -> Callable[[_Replacement, Any], None]:
    def change(work: _Replacement, thing: Any) -> None:
        for name in names:
            held = getattr(thing, name, None)
            after = work.value(held)
            if after is not held:
                setattr(thing, name, after)

    return change


def _cell(work: _Replacement, thing: Any) -> None:
    try:
        held = thing.cell_contents
    except ValueError:  # empty
        return
    after = work.value(held)
    if after is not held:
        thing.cell_contents = after


def _function(work: _Replacement, thing: Any) -> None:
    work.values(thing.__closure__ or ())
    _attributes("__defaults__", "__kwdefaults__")(work, thing)


def _partial(work: _Replacement, thing: Any) -> None:
    held, differs = work.values([thing.func, thing.args, thing.keywords])
    if differs:
        thing.__setstate__((*held, vars(thing) or None))


def _error(work: _Replacement, thing: Any) -> None:
    for base in type(thing).__mro__:
        for name, member in vars(base).items():
            own = inspect.ismemberdescriptor(member) and base.__module__ == "builtins"
            if (own and name not in ("message", "exceptions")) or (base is BaseException and name == "args"):
                held = member.__get__(thing)
                after = work.value(held)
                if after is not held:
                    member.__set__(thing, after)


def _array(work: _Replacement, thing: Any) -> None:
    if thing.dtype == object:
        for place in np.ndindex(thing.shape):
            after = work.value(thing[place])
            if after is not thing[place]:
                thing[place] = after


def _class(work: _Replacement, thing: Any) -> None:
    for name, held in list(vars(thing).items()):
        after = work.value(held)
        if after is not held:
            type.__setattr__(thing, name, after)


def _held_only(*names: str) -> Callable[[_Replacement, Any], None]:
    return lambda work, thing: work.values([getattr(thing, name) for name in names]) and None


def _iterator(work: _Replacement, thing: Any) -> None:
    """Its parts can be changed if they are mutable; a number that it holds itself stays."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            _, arguments, *state = thing.__reduce__()
    except TypeError:  # says nothing of itself
        return
    differs = [work.values(arguments)[1], *(work.value(part) is not part for part in state)]
    if any(differs):
        work.left.append(thing)


_MUTABLE: dict[type, Callable[[_Replacement, Any], None]] = {
    list: _list,
    collections.deque: _list,
    dict: _dict,
    collections.defaultdict: _defaults,
    set: _set,
    types.CellType: _cell,
    types.FunctionType: _function,
    functools.partial: _partial,
    property: _held_only("fget", "fset", "fdel"),
    staticmethod: _held_only("__func__"),
    classmethod: _held_only("__func__"),
    BaseException: _error,
    np.ndarray: _array,
    Tensor: _attributes("_grad"),
    type: _class,
    **dict.fromkeys(ITERATORS, _iterator),
}
