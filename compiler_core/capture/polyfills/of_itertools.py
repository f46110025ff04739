"""Python for what is C in `itertools`. See `polyfills`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from compiler_core.capture.polyfills.builtins import enumerate_

_MISSING = object()


def starmap(function: Callable[..., Any], items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        yield function(*item)


def accumulate(
    items: Iterable[Any], func: Callable[[Any, Any], Any] | None = None, *, initial: Any = None
) -> Iterator[Any]:
    total = _MISSING if initial is None else initial
    if initial is not None:
        yield total
    for item in items:
        if total is _MISSING:
            total = item
        else:
            total = total + item if func is None else func(total, item)
        yield total


def takewhile(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        if not function(item):
            return
        yield item


def dropwhile(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    dropping = True
    for item in items:
        dropping = dropping and bool(function(item))
        if not dropping:
            yield item


def filterfalse(function: Callable[[Any], Any] | None, items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        if not (function(item) if function is not None else item):
            yield item


def groupby(iterable: Iterable[Any], key: Callable[[Any], Any] | None = None) -> Iterator[tuple[Any, Iterator[Any]]]:
    """itertools.groupby, with groups that are made at once."""
    group: list[Any] = []
    current = _MISSING
    for item in iterable:
        value = item if key is None else key(item)
        if current is not _MISSING and value != current:
            yield current, iter(group)
            group = []
        current = value
        group.append(item)
    if group:
        yield current, iter(group)


def chain(*iterables: Iterable[Any]) -> Iterator[Any]:
    for items in iterables:
        yield from items


def chain_of(iterables: Iterable[Iterable[Any]]) -> Iterator[Any]:
    """chain.from_iterable(iterables)"""
    for items in iterables:
        yield from items


def islice(items: Iterable[Any], *bounds: Any) -> Iterator[Any]:
    chosen = slice(*bounds)
    start, stop, step = chosen.start or 0, chosen.stop, chosen.step or 1
    if stop is not None and start >= stop:
        return
    for place, item in enumerate_(items):
        if place >= start and (place - start) % step == 0:
            yield item
        if stop is not None and place + 1 >= stop:
            return
