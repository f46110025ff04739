"""Plans for objects of types that Python itself defines: containers, functions, cells, iterators, arrays.

In: an object whose type is exactly one of `EXACT`. Out: its `RebuildPlan`, read from its state now.
Iterators are made from what `__reduce__` says of them: a list's goes on with that list, a dict's or a set's has what
was left; over a dict's values it is of that kind again. An array is a new copy at every call; views of one array are
views of one again.
"""

from __future__ import annotations

import array
import collections
import functools
import gc
import io
import itertools
import operator
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from compiler_core.capture.recipes.plans import (
    SELF,
    Code,
    Fixed,
    Found,
    Part,
    RebuildPlan,
    Refusal,
    items,
    listed,
    pairs,
)
from compiler_core.numpy_trace.array import TracedArray
from compiler_core.numpy_trace.lifting import regain, to_result

Planner = Callable[[Any], RebuildPlan]


def exact(kind: Any) -> Fixed:
    """A class or function, by its own name."""
    return Fixed(kind, getattr(kind, "__name__", "thing"))


def called(function: Any, parts: list[Part]) -> Code:
    """A call with positional arguments."""
    return (exact(function), *listed(parts, "(", ")"))


# -- containers


def _tuple(thing: tuple[Any, ...]) -> RebuildPlan:
    code = listed(items(thing), "(", ")", ",")
    return RebuildPlan(code, whole=code, immutable=True, stem="row")


def _list(thing: list[Any]) -> RebuildPlan:
    whole = listed(items(thing), "[", "]")
    return RebuildPlan(("[]",), (((SELF, ".extend(", *whole, ")")),) if thing else (), whole=whole, stem="list")


def _dict(thing: dict[Any, Any]) -> RebuildPlan:
    whole = pairs(thing.items(), "{", "}")
    fill = ((SELF, ".update(", *whole, ")"),) if thing else ()
    return RebuildPlan(("{}",), hashing=fill, whole=whole, stem="table")


def _set(thing: set[Any]) -> RebuildPlan:
    parts = [Part(item, f", its item {type(item).__name__}") for item in thing]
    whole = listed(parts, "{", "}") if thing else ("set()",)
    return RebuildPlan(("set()",), hashing=((SELF, ".update(", *whole, ")"),) if thing else (), whole=whole, stem="set")


def _frozenset(thing: frozenset[Any]) -> RebuildPlan:
    parts = [Part(item, f", its item {type(item).__name__}") for item in thing]
    code = listed(parts, "frozenset((", "))", ",")
    return RebuildPlan(code, whole=code, immutable=True, stem="set")


def _deque(thing: collections.deque[Any]) -> RebuildPlan:
    limit = "" if thing.maxlen is None else f", {thing.maxlen}"
    content, name = listed(items(thing), "[", "]"), exact(collections.deque)
    fill = ((SELF, ".extend(", *content, ")"),) if thing else ()
    empty: Code = (name, "((), ", f"{thing.maxlen})") if limit else (name, "()")
    return RebuildPlan(empty, fill, whole=(name, "(", *content, f"{limit})"), stem="deque")


def _ordered(thing: collections.OrderedDict[Any, Any]) -> RebuildPlan:
    content, name = pairs(collections.OrderedDict.items(thing), "{", "}"), exact(collections.OrderedDict)
    fill = ((SELF, ".update(", *content, ")"),) if thing else ()
    return RebuildPlan((name, "()"), hashing=fill, whole=(name, "(", *content, ")"), table=vars(thing), stem="table")


def _defaults(thing: collections.defaultdict[Any, Any]) -> RebuildPlan:
    content, name = pairs(thing.items(), "{", "}"), exact(collections.defaultdict)
    factory = Part(thing.default_factory, ".default_factory")
    fill = ((SELF, ".update(", *content, ")"),) if thing else ()
    return RebuildPlan(
        (name, "()"),
        ((SELF, ".default_factory = ", factory),),
        hashing=fill,
        whole=(name, "(", factory, ", ", *content, ")"),
        stem="table",
    )


def _slice(thing: slice) -> RebuildPlan:
    code = listed([Part(getattr(thing, name), f".{name}") for name in ("start", "stop", "step")], "slice(", ")")
    return RebuildPlan(code, whole=code, immutable=True, stem="slice")


def _range(thing: range) -> RebuildPlan:
    code = listed([Part(getattr(thing, name), f".{name}") for name in ("start", "stop", "step")], "range(", ")")
    return RebuildPlan(code, whole=code, immutable=True, stem="range")


def _dict_view(thing: Any) -> RebuildPlan:
    (table,) = gc.get_referents(thing)
    kind = collections.OrderedDict if isinstance(table, collections.OrderedDict) else dict
    method = type(thing).__name__.rpartition("_")[2]
    code: Code = (Fixed(getattr(kind, method), method), "(", Part(table, ", its dict"), ")")
    return RebuildPlan(code, whole=code, stem="view")


def _mapping_proxy(thing: Any) -> RebuildPlan:
    (table,) = gc.get_referents(thing)
    code = called(types.MappingProxyType, [Part(table, ", its mapping")])
    return RebuildPlan(code, whole=code, stem="proxy")


# -- functions and what they consist of


def _cell(thing: types.CellType) -> RebuildPlan:
    try:
        content = Part(thing.cell_contents, ", what it holds")
    except ValueError:  # the variable is not bound
        return RebuildPlan((exact(types.CellType), "()"), whole=(exact(types.CellType), "()"), stem="cell")
    whole = called(types.CellType, [content])
    return RebuildPlan((exact(types.CellType), "()"), ((SELF, ".cell_contents = ", content),), whole=whole, stem="cell")


def _function(thing: types.FunctionType) -> RebuildPlan:
    names = thing.__code__.co_freevars
    cells = [Part(cell, f", its variable {name!r}") for name, cell in zip(names, thing.__closure__ or ())]
    closure = (", None, None, ", *listed(cells, "(", ")", ",")) if cells else ()
    make: Code = (
        exact(types.FunctionType), "(", Fixed(thing.__code__, "code"), ", ", Found(thing.__globals__), *closure, ")",
    )  # fmt: skip
    fresh = types.FunctionType(thing.__code__, thing.__globals__, None, None, thing.__closure__)
    fill: list[Code] = []
    for name in ("__defaults__", "__kwdefaults__", "__name__", "__qualname__", "__doc__", "__module__"):
        value = getattr(thing, name)
        if value != getattr(fresh, name):
            fill.append((SELF, f".{name} = ", Part(value, f".{name}")))
    for name in ("__annotations__", "__type_params__"):
        if getattr(thing, name, None):
            fill.append((SELF, f".{name} = ", Part(getattr(thing, name), f".{name}")))
    return RebuildPlan(make, tuple(fill), whole=None if fill else make, table=vars(thing), stem=_word(thing.__name__))


def _word(name: str) -> str:
    return name if name.isidentifier() else "function"


def _bound_method(thing: types.MethodType) -> RebuildPlan:
    if type(thing.__self__) is TracedArray:
        code: Code = (exact(getattr), "(", Part(thing.__self__, ".__self__"), f", {thing.__func__.__name__!r})")
        return RebuildPlan(code, whole=code, stem="method")
    code = called(types.MethodType, [Part(thing.__func__, ".__func__"), Part(thing.__self__, ".__self__")])
    return RebuildPlan(code, whole=code, immutable=True, stem="method")


def _c_method(thing: Any) -> RebuildPlan:
    """`[].append`, `[].__len__`: the descriptor of that name, bound to its object again."""
    owner = thing.__self__
    for base in type(owner).__mro__:
        found = vars(base).get(thing.__name__)
        if isinstance(found, types.MethodDescriptorType | types.WrapperDescriptorType):
            code: Code = (Fixed(found, "method"), ".__get__(", Part(owner, ".__self__"), ")")
            return RebuildPlan(code, whole=code, immutable=True, stem="method")
    raise Refusal("its class does not define it", "call it inside the compiled function instead of keeping it")


def _partial(thing: functools.partial[Any]) -> RebuildPlan:
    function, keywords = Part(thing.func, ".func"), Part(thing.keywords, ".keywords")
    arguments = [Part(value, f".args[{index}]") for index, value in enumerate(thing.args)]
    content = listed(arguments, "(", ")", ",")
    state: Code = (SELF, ".__setstate__((", function, ", ", *content, ", ", keywords, ", None))")
    words: Code = (", **", keywords) if thing.keywords else ()
    whole: Code = (exact(functools.partial), *listed([function, *arguments], "(", ""), *words, ")")
    make: Code = (exact(functools.partial), "(", Fixed(_nothing, "nothing"), ")")
    return RebuildPlan(make, (state,), whole=whole, table=vars(thing), stem="partial")


def _nothing() -> None:
    """What a partial calls before it has its function."""


def _property(thing: property) -> RebuildPlan:
    names = ("fget", "fset", "fdel", "__doc__")
    code = called(property, [Part(getattr(thing, name), f".{name}") for name in names])
    return RebuildPlan(code, whole=code, stem="property")


def _wrapped_method(thing: Any) -> RebuildPlan:
    code = called(type(thing), [Part(thing.__func__, ".__func__")])
    return RebuildPlan(code, whole=code, stem="method")


def _super(thing: Any) -> RebuildPlan:
    parts = [thing.__thisclass__] if thing.__self__ is None else [thing.__thisclass__, thing.__self__]
    code = called(super, [Part(part) for part in parts])
    return RebuildPlan(code, whole=code, stem="super")


# -- iterators, and other objects whose state `__reduce__` tells


def reduced(thing: Any, immutable: bool = False) -> RebuildPlan:
    """What `__reduce__` says: a function, its arguments, and a state to set."""
    try:
        with warnings.catch_warnings():  # itertools' is deprecated from 3.12 on
            warnings.simplefilter("ignore", DeprecationWarning)
            function, arguments, *state = thing.__reduce_ex__(2)
    except TypeError as error:
        raise Refusal(str(error), "use it up inside the compiled function, or make it outside") from None
    make = called(function, [Part(value, f", its part {index}") for index, value in enumerate(arguments)])
    if not state or state[0] is None:
        return RebuildPlan(make, whole=make, immutable=immutable, stem="iterator")
    fill: Code = (Fixed(quiet_state, "set_state"), "(", SELF, ", ", Part(state[0], ", its state"), ")")
    if type(thing).__module__ != "itertools":
        fill = (SELF, ".__setstate__(", Part(state[0], ", its state"), ")")
    return RebuildPlan(make, (fill,), stem="iterator")


def _over_values(thing: Any) -> RebuildPlan:
    """As `reduced`, of the same kind again: what goes on with it, such as a loop over modules, guards its class."""
    make: Code = (Fixed(values_iterator, "over_values"), "(", Part(thing.__reduce__()[1][0], ", what is left"), ")")
    return RebuildPlan(make, whole=make, stem="iterator")


def values_iterator(left: list[Any]) -> Iterator[Any]:
    """That of a dict that holds these values."""
    return iter(dict(enumerate(left)).values())


def quiet_state(thing: Any, state: Any) -> None:
    """Set the state of an iterator of itertools, where that is deprecated from 3.12 on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        thing.__setstate__(state)


def _constant_reduced(thing: Any) -> RebuildPlan:
    return reduced(thing, immutable=True)


# -- memory


def _array(thing: np.ndarray[Any, Any]) -> RebuildPlan:
    if isinstance(thing.base, np.ndarray) and thing.size:
        return _array_view(thing, thing.base)
    if thing.base is not None and thing.size and thing.flags.writeable:
        raise Refusal("it shares memory with another object", "copy the array, or make it outside")
    if thing.dtype.hasobject:
        return _object_array(thing)
    code: Code = (Fixed(thing.copy(order="K"), "array"), ".copy('K')")
    if thing.flags.writeable:
        return RebuildPlan(code, whole=code, stem="array")
    return RebuildPlan(code, ((SELF, ".setflags(write=False)"),), stem="array")


def _traced_array(thing: TracedArray) -> RebuildPlan:
    view = thing.stands_for
    if view is not None:
        parts = [Part(part) for part in (view.function, view.args, view.kwargs, view.place)]
        return RebuildPlan(called(regain, parts), whole=called(regain, parts), stem="array")
    flags = f", {thing.is_scalar}, {thing.is_outside})"
    code: Code = (exact(to_result), "(", Part(thing._held, ", its data"), flags)
    return RebuildPlan(code, whole=code, stem="array")


def _object_array(thing: np.ndarray[Any, Any]) -> RebuildPlan:
    if thing.dtype != object:
        raise Refusal("a structured array holds objects", "use a list")
    empty = np.full_like(thing, None, subok=False)
    if any(isinstance(item, np.ndarray) for item in thing.flat):
        raise Refusal("an array holds arrays as objects", "use a list")
    places = np.ndindex(thing.shape)
    fill: list[Code] = [(SELF, f"[{place}] = ", Part(thing[place], f"[{place}]")) for place in places]
    return RebuildPlan((Fixed(empty, "array"), ".copy('K')"), tuple(fill), stem="array")


def _array_view(thing: np.ndarray[Any, Any], base: np.ndarray[Any, Any]) -> RebuildPlan:
    while isinstance(base.base, np.ndarray):
        base = base.base
    offset = thing.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    if not (type(base) is np.ndarray and (base.flags.c_contiguous or base.flags.f_contiguous)) or base.dtype.hasobject:
        raise Refusal("it is a view of an array whose memory is not in one piece", "copy the array")
    flat = Part(base, ".base")
    code: Code = (
        exact(np.ndarray), f"({thing.shape}, ", Fixed(thing.dtype, "dtype"), ", ", flat, ".reshape(-1, order='A')"
        f", {offset}, {thing.strides})",
    )  # fmt: skip
    if thing.flags.writeable == base.flags.writeable:
        return RebuildPlan(code, whole=code, stem="array")
    return RebuildPlan(code, ((SELF, ".setflags(write=False)"),), stem="array")


def _copied(thing: Any) -> RebuildPlan:
    """A mutable object without parts, by slicing a private copy."""
    code: Code = (Fixed(thing[:], type(thing).__name__), "[:]")
    return RebuildPlan(code, whole=code, stem="buffer")


def _sentinel(thing: object) -> RebuildPlan:
    return RebuildPlan(("object()",), whole=("object()",), stem="object")


def _with_state(thing: Any) -> RebuildPlan:
    """An object with `__getstate__` and `__setstate__` of its own, and a class that is called without arguments."""
    fill: Code = (SELF, ".__setstate__(", Part(thing.__getstate__(), ", its state"), ")")
    return RebuildPlan((exact(type(thing)), "()"), (fill,), stem=type(thing).__name__.lower())


def _kinds(*things: Any) -> list[type]:
    return list(map(type, things))


ITERATORS = [
    *_kinds(iter([]), iter(()), iter({}), iter({}.keys()), iter({}.values()), iter({}.items()), iter(set())),
    *_kinds(iter(""), iter("\u0100"), iter(b""), iter(bytearray()), iter(range(1)), iter(range(2**70))),
    *_kinds(reversed([]), reversed({}), reversed({}.values()), reversed({}.items()), iter(array.array("b"))),
    *_kinds(iter(collections.deque()), reversed(collections.deque()), iter(collections.OrderedDict())),
    *_kinds(iter(int, 1), iter(type("Sequence", (), {"__getitem__": None})())),
    *[kind for kind in vars(itertools).values() if isinstance(kind, type)],
    *_kinds(next(itertools.groupby("a"))[1]),
    *(enumerate, zip, map, filter, reversed),
]
_TABLES: tuple[dict[Any, Any], ...] = ({}, collections.OrderedDict())
_VIEWS = [kind for table in _TABLES for kind in _kinds(table.keys(), table.values(), table.items())]
EXACT: dict[type, Planner] = {
    tuple: _tuple,
    list: _list,
    dict: _dict,
    set: _set,
    frozenset: _frozenset,
    slice: _slice,
    range: _range,
    object: _sentinel,
    bytearray: _copied,
    array.array: _copied,
    np.ndarray: _array,
    TracedArray: _traced_array,
    collections.deque: _deque,
    collections.OrderedDict: _ordered,
    collections.defaultdict: _defaults,
    functools.partial: _partial,
    property: _property,
    staticmethod: _wrapped_method,
    classmethod: _wrapped_method,
    super: _super,
    io.StringIO: _with_state,
    io.BytesIO: _with_state,
    types.CellType: _cell,
    types.FunctionType: _function,
    types.MethodType: _bound_method,
    types.BuiltinFunctionType: _c_method,
    types.MethodWrapperType: _c_method,
    types.MappingProxyType: _mapping_proxy,
    **dict.fromkeys(_kinds({}.keys(), {}.values(), {}.items()), _dict_view),
    **dict.fromkeys(
        _kinds(*(getattr(collections.OrderedDict(), n)() for n in ("keys", "values", "items"))), _dict_view
    ),
    **dict.fromkeys(ITERATORS, reduced),
    type(iter({}.values())): _over_values,
    **dict.fromkeys((operator.itemgetter, operator.attrgetter, operator.methodcaller), _constant_reduced),
}
