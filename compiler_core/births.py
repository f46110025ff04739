"""How many attributes classes of ours were made with: what came later was given to them by a program.

In: classes, noted when the module that shows them is loaded. Out: `names_given`. A class's table has its attributes in
the order in which they came. Known limit: a class that nobody noted, of a module that shows few, was made with what it
has when it is first asked for; who deletes one of ours and adds another at once is not told from who did neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

_births: dict[type, int] = {}


def note(things: Iterable[Any]) -> None:
    """Those of `things` that are classes have now the attributes that they were made with."""
    for thing in things:
        if isinstance(thing, type):
            _births.setdefault(thing, len(vars(thing)))


def names_given(cls: type) -> list[str]:
    """The attributes that a class was given after it was made."""
    return list(islice(vars(cls), _births.setdefault(cls, len(vars(cls))), None))
