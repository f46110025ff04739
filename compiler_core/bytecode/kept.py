"""What is kept for a code object: made once, and gone with it.

In: a code object. Out: `table()`: a dictionary from the id of a code object to what its maker keeps for it;
`watch(code)` has every table forget that id when the code object is freed.
Invariant: what a table holds does not refer to the code object itself, nor to a function's globals: it would never go.
"""

from __future__ import annotations

import weakref
from functools import partial
from types import CodeType
from typing import Any

_tables: list[dict[int, Any]] = []
_watched: dict[int, weakref.ref[CodeType]] = {}


def table() -> dict[int, Any]:
    """A new table. Keyed by identity: equal codes may come from different files."""
    made: dict[int, Any] = {}
    _tables.append(made)
    return made


def watch(code: CodeType) -> int:
    """Its key in the tables, from which it is taken when it is freed."""
    key = id(code)
    if key not in _watched:
        _watched[key] = weakref.ref(code, partial(_forget, key))
    return key


def _forget(key: int, gone: object) -> None:
    del _watched[key]
    for kept in _tables:
        kept.pop(key, None)
