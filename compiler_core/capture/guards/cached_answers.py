"""What an `lru_cache` keeps: asked by guards, which may not run the program's function.

In: a cached function written in C, and arguments. Out: its answer, if the cache has it.
Method: the cache's table and its mark before keywords are seen by the garbage collector alone. Keys are made as
`functools._make_key` makes them, but are tuples.
"""

from __future__ import annotations

import gc
from typing import Any


def kept_answer(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an lru_cache answers without calling its function. Raises LookupError if it would have to."""
    if not keeps_answer(function, args, kwargs):
        raise LookupError("not in the cache")
    return function(*args, **kwargs)


def keeps_answer(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an lru_cache has the answer."""
    held = gc.get_referents(function)
    table = next((thing for thing in held if type(thing) is dict and thing is not function.__dict__), None)
    mark = next((thing for thing in held if type(thing) is object), None)
    if table is None:
        return False
    typed = function.cache_parameters()["typed"]
    if not typed and not kwargs and len(args) == 1 and type(args[0]) in (int, str):
        return args[0] in table
    key = args
    if kwargs:
        key += (mark, *(part for pair in kwargs.items() for part in pair))
    if typed:
        key += (*map(type, args), *map(type, kwargs.values()))
    return key in table
