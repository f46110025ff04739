"""Which globals and which attributes a function's bytecode reads, by name.

In: a code object. Out: `Names(globals, attributes)`. `co_names` alone mixes the two: guarding a global `loss`, which
changes at every step, because the traced code reads an attribute `.loss` would compile again at every step.
Texts in the code count as attribute names (`getattr(x, "name")`).
Limits: names that are computed (`getattr(x, name)`, `globals()[name]`) are not seen.
"""

from __future__ import annotations

import dis
from dataclasses import dataclass
from functools import cache
from types import CodeType

GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"})


@dataclass(frozen=True, slots=True)
class Names:
    """What a code object reads, in order of first mention."""

    globals: tuple[str, ...]
    attributes: tuple[str, ...]


@cache
def names_of(code: CodeType) -> Names:
    """The global and attribute names in `code` (not in functions defined inside it)."""
    instructions = list(dis.get_instructions(code))
    texts = [text for text in code.co_consts if isinstance(text, str) and text.isidentifier()]  # getattr(x, "name")
    return Names(
        tuple(dict.fromkeys(str(i.argval) for i in instructions if i.opname in GLOBAL)),
        tuple(dict.fromkeys([*(str(i.argval) for i in instructions if i.opname in ATTRIBUTE), *texts])),
    )
