"""Python for what is C in CPython and calls the program's own functions: entered like the program's code.

In, out: as the builtin. So a graph break inside `sorted(key=...)` or `sum(generator)` is one inside a Python loop, and
what the called functions read and change is seen. Each is used only where the builtin would call Python code.
"""

from __future__ import annotations

import copyreg
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from compiler_core.bytecode.semantics import STOP

_MISSING = object()


def next_default(iterator: Iterator[Any], default: Any) -> Any:
    for item in iterator:
        return item
    return default


def next_plain(iterator: Iterator[Any]) -> Any:
    for item in iterator:
        return item
    raise StopIteration


def any_(items: Iterable[Any]) -> bool:
    for item in items:
        if item:
            return True
    return False


def all_(items: Iterable[Any]) -> bool:
    for item in items:
        if not item:
            return False
    return True


def sum_(items: Iterable[Any], /, start: Any = 0) -> Any:
    total = start
    for item in items:
        total = total + item
    return total


def map_(function: Callable[..., Any], *iterables: Iterable[Any]) -> Iterator[Any]:
    if len(iterables) == 1:
        for item in iterables[0]:
            yield function(item)
    else:
        for items in zip_(*iterables):
            yield function(*items)


def filter_(function: Callable[..., Any] | None, items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        if function(item) if function is not None else item:
            yield item


def zip_(*iterables: Iterable[Any], strict: bool = False) -> Iterator[tuple[Any, ...]]:
    iterators = [iter(iterable) for iterable in iterables]
    while iterators:
        found = []
        for place, iterator in enumerate(iterators):
            item = next(iterator, _MISSING)
            if item is _MISSING:
                if strict:
                    _check_strict(iterators, place)
                return
            found.append(item)
        yield tuple(found)


def _check_strict(iterators: list[Iterator[Any]], place: int) -> None:
    plural = " " if place == 1 else "s 1-"
    if place:
        raise ValueError(f"zip() argument {place + 1} is shorter than argument{plural}{place}")
    for other, iterator in enumerate(iterators[1:], 1):
        if next(iterator, _MISSING) is not _MISSING:
            plural = " " if other == 1 else "s 1-"
            raise ValueError(f"zip() argument {other + 1} is longer than argument{plural}{other}")


def enumerate_(items: Iterable[Any], start: int = 0) -> Iterator[tuple[int, Any]]:
    count = start
    for item in items:
        yield count, item
        count += 1


def list_(items: Iterable[Any]) -> list[Any]:
    _ask_length(items)
    found = []
    for item in items:
        found.append(item)
    return found


def tuple_(items: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(list_(items))


def set_(items: Iterable[Any]) -> set[Any]:
    return set(list_(items))


def frozenset_(items: Iterable[Any]) -> frozenset[Any]:
    return frozenset(list_(items))


def _ask_length(items: Any) -> None:
    """As lists do before they iterate."""
    if hasattr(type(items), "__len__"):
        len(items)


def extend_list(target: list[Any], items: Iterable[Any]) -> None:
    _ask_length(items)
    for item in items:
        list.append(target, item)


def extend_in_place(target: list[Any], items: Iterable[Any]) -> list[Any]:
    """`target += items`"""
    extend_list(target, items)
    return target


def extend_deque(target: Any, items: Iterable[Any]) -> None:
    for item in items:
        deque.append(target, item)


def extend_left(target: Any, items: Iterable[Any]) -> None:
    for item in items:
        deque.appendleft(target, item)


def update_set(target: set[Any], *others: Iterable[Any]) -> None:
    for items in others:
        extend_set(target, items)


def update_dict(target: dict[Any, Any], items: Any = (), /, **kwargs: Any) -> None:
    put = OrderedDict.__setitem__ if isinstance(target, OrderedDict) else dict.__setitem__
    if hasattr(items, "keys"):
        for key in items.keys():
            put(target, key, items[key])
    else:
        for key, value in items:
            put(target, key, value)
    for name, value in kwargs.items():
        put(target, name, value)


def update_in_place(target: dict[Any, Any], items: Iterable[Any]) -> dict[Any, Any]:
    """`target |= items`"""
    update_dict(target, items)
    return target


def assign_slice(target: list[Any], place: slice, items: Iterable[Any]) -> None:
    """`target[place] = items`"""
    target[place] = list_(items)


def dict_(items: Iterable[Any], kwargs: dict[str, Any]) -> dict[Any, Any]:
    made = {}
    if hasattr(items, "keys"):
        for key in items.keys():
            made[key] = items[key]  # type: ignore[index]
    else:
        for key, value in items:
            made[key] = value
    made.update(kwargs)
    return made


CHANGES: dict[tuple[type, str], Callable[..., Any]] = {  # methods that iterate over what they are given
    (list, "extend"): extend_list,
    (list, "__iadd__"): extend_in_place,
    (deque, "extend"): extend_deque,
    (deque, "extendleft"): extend_left,
    (deque, "__iadd__"): extend_in_place,
    (set, "update"): update_set,
    (dict, "update"): update_dict,
    (dict, "__ior__"): update_in_place,
}


def sorted_(items: Iterable[Any], /, *, key: Callable[[Any], Any] | None = None, reverse: bool = False) -> list[Any]:
    found = list_(items)
    sort_(found, key=key, reverse=reverse)
    return found


def sort_(target: list[Any], *, key: Callable[[Any], Any] | None = None, reverse: bool = False) -> None:
    if key is None:
        target.sort(reverse=reverse)
        return
    keys = [key(item) for item in target]
    target[:] = [target[place] for place in places_in_order(keys, reverse)]


def places_in_order(keys: list[Any], reverse: bool) -> list[int]:
    """Captured only where comparing the keys runs none of the program's code."""
    return sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse)


def _extreme(name: str, is_better: Callable[[Any, Any], bool], args: tuple[Any, ...], key: Any, default: Any) -> Any:
    items = args[0] if len(args) == 1 else args
    best = best_key = _MISSING
    for item in items:
        value = item if key is None else key(item)
        if best is _MISSING or is_better(value, best_key):
            best, best_key = item, value
    if best is _MISSING:
        if default is _MISSING:
            raise ValueError(f"{name}() iterable argument is empty")
        return default
    return best


def max_(*args: Any, key: Callable[[Any], Any] | None = None, default: Any = _MISSING) -> Any:
    return _extreme("max", lambda a, b: a > b, args, key, default)


def min_(*args: Any, key: Callable[[Any], Any] | None = None, default: Any = _MISSING) -> Any:
    return _extreme("min", lambda a, b: a < b, args, key, default)


def reduce_(function: Callable[[Any, Any], Any], items: Iterable[Any], initial: Any = _MISSING, /) -> Any:
    total = initial
    for item in items:
        total = item if total is _MISSING else function(total, item)
    if total is _MISSING:
        raise TypeError("reduce() of empty iterable with no initial value")
    return total


def getattr_default(owner: Any, name: str, default: Any) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        return default


def hasattr_(owner: Any, name: str) -> bool:
    try:
        getattr(owner, name)
    except AttributeError:
        return False
    return True


def binary(left: Any, right: Any, first: Any, second: Any, symbol: str) -> Any:
    """The protocol of binary operators. first, second: (method, owner, other), or None."""
    for attempt in (first, second):
        if attempt is not None:
            method, owner, other = attempt
            result = method(owner, other)
            if result is not NotImplemented:
                return result
    raise TypeError(f"unsupported operand type(s) for {symbol}: '{type(left).__name__}' and '{type(right).__name__}'")


def compare(left: Any, right: Any, first: Any, second: Any, symbol: str) -> Any:
    for attempt in (first, second):
        if attempt is not None:
            method, owner, other = attempt
            result = method(owner, other)
            if result is not NotImplemented:
                return result
    if symbol == "==":
        return left is right
    if symbol == "!=":
        return left is not right
    raise TypeError(
        f"'{symbol}' not supported between instances of '{type(left).__name__}' and '{type(right).__name__}'"
    )


def not_equal_by(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`!=` of a class that defines only `__eq__`."""

    def not_equal(left: Any, right: Any) -> Any:
        result = method(left, right)
        return result if result is NotImplemented else not result

    return not_equal


def truth(value: Any, method: Any) -> bool:
    result = method(value)
    if type(result) is not bool:
        raise TypeError(f"__bool__ should return bool, returned {type(result).__name__}")
    return result


def is_instance(value: Any, kind: Any, check: Any) -> bool:
    return True if type(value) is kind or check(value) else False


def truth_of_length(value: Any, method: Any) -> bool:
    return bool(method(value) != 0)


def contains(method: Any, container: Any, item: Any) -> bool:
    return True if method(container, item) else False


def contains_by_iteration(container: Iterable[Any], item: Any) -> bool:
    for other in container:
        if other is item or other == item:
            return True
    return False


def iterate_by_index(owner: Any) -> Iterator[Any]:
    place = 0
    try:
        while True:
            yield owner[place]
            place += 1
    except IndexError:
        return


def call_with_lists(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """function(*args, **kwargs) of a function that uses up the iterators among args."""
    given = []
    for arg in args:
        given.append(list_(arg) if hasattr(type(arg), "__next__") else arg)
    return function(*given, **kwargs)


def substitute(pattern: Any, repl: Callable[[Any], str], string: str, count: int = 0) -> str:
    """pattern.sub(repl, string, count)"""
    pieces, end = [], 0
    for n, match in enumerate(pattern.finditer(string)):
        if count and n >= count:
            break
        pieces.append(string[end : match.start()])
        pieces.append(repl(match))
        end = match.end()
    return "".join(pieces) + string[end:]


def format_text(method: Callable[[Any], str], value: Any, spec: str) -> str:
    return format(method(value), spec)


def cached(owner: Any, name: str, function: Callable[[Any], Any]) -> Any:
    """functools.cached_property."""
    value = function(owner)
    owner.__dict__[name] = value
    return value


def missing(owner: Any, key: Any, factory: Callable[[], Any]) -> Any:
    """defaultdict.__missing__."""
    value = factory()
    owner[key] = value
    return value


def unpack(value: Any, count: int, after: int) -> list[Any]:
    """`a, b = value`; after >= 0: `a, *b, c = value`, with `after` names after the star."""
    items = []
    for item in value:
        items.append(item)
        if after < 0 and len(items) > count:
            break
    if after < 0:
        if len(items) > count:
            raise ValueError(f"too many values to unpack (expected {count})")
        if len(items) < count:
            raise ValueError(f"not enough values to unpack (expected {count}, got {len(items)})")
        return items
    if len(items) < count + after:
        raise ValueError(f"not enough values to unpack (expected at least {count + after}, got {len(items)})")
    end = len(items) - after
    return [*items[:count], items[count:end], *items[end:]]


def extend_set(target: set[Any], items: Iterable[Any]) -> None:
    for item in items:
        set.add(target, item)


def merge(target: dict[Any, Any], mapping: Any, call: Any) -> None:
    """`{**a}`, and `f(**a)` of `call`."""
    for key in mapping.keys():
        if call is not None:
            name = getattr(call, "__qualname__", call)
            if type(key) is not str:
                raise TypeError(f"{name}() keywords must be strings")
            if key in target:
                raise TypeError(f"{name}() got multiple values for keyword argument '{key}'")
        target[key] = mapping[key]


def advance_(method: Callable[[], Any]) -> Any:
    """next(iterator) of the program's own iterator, or STOP."""
    try:
        return method()
    except StopIteration:
        return STOP


def make_by_new(cls: type, new: Any, init: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`cls(*args, **kwargs)` of a class with a `__new__` of its own."""
    made = new(cls, *args, **kwargs)
    if isinstance(made, cls) and init is not object.__init__:
        init(made, *args, **kwargs)
    return made


def attributes(owner: Any, names: tuple[str, ...]) -> Any:
    """operator.attrgetter(*names)(owner)"""
    found = []
    for name in names:
        value = owner
        for part in name.split("."):
            value = getattr(value, part)
        found.append(value)
    return found[0] if len(found) == 1 else tuple(found)


def items(owner: Any, keys: tuple[Any, ...]) -> Any:
    """operator.itemgetter(*keys)(owner)"""
    found = []
    for key in keys:
        found.append(owner[key])
    return found[0] if len(found) == 1 else tuple(found)


def call_method(owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """operator.methodcaller(name, *args, **kwargs)(owner)"""
    return getattr(owner, name)(*args, **kwargs)


def iter_until(function: Callable[[], Any], sentinel: Any) -> Iterator[Any]:
    while True:
        value = function()
        if value == sentinel:
            return
        yield value


def count_elements(mapping: dict[Any, int], items: Iterable[Any]) -> None:
    """What Counter counts with."""
    for item in items:
        mapping[item] = mapping.get(item, 0) + 1


def next_of(method: Callable[[], Any], default: Any) -> Any:
    """next(iterator, default) of the program's own iterator."""
    try:
        return method()
    except StopIteration:
        return default


def reduce_object(owner: Any, state: Callable[[], Any] | None) -> tuple[Any, ...]:
    """`object.__reduce_ex__(2)` of an instance that Python code made. state: its class's own `__getstate__`."""
    return copyreg.__newobj__, (type(owner),), owner.__dict__ if state is None else state(), None, None  # type: ignore[attr-defined]
