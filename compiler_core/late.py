"""Slots: what a lower stage asks of a later one, whom it does not know.

In: `Late("draws: native steps")` beside its use, in the lower stage; the later one fills it when it is loaded. Out:
`get()`, the value. Which module fills which slot says `LOADS` alone, which compiler_core/__init__.py writes down;
that module is imported when a slot is first asked.
Invariants: a slot is declared once, and has a line in `LOADS`; its module fills it (tests/test_layers.py).
"""

from __future__ import annotations

from importlib import import_module
from typing import Generic, TypeVar, cast

from compiler_core.errors import OpDefinitionError

T = TypeVar("T")
_EMPTY = object()

LOADS: dict[str, str] = {}  # slot -> the module that fills it
SLOTS: dict[str, Late[object]] = {}  # those of the stages that are loaded


class Late(Generic[T]):
    """One such thing. Raises OpDefinitionError if two have one name, or if nobody fills it."""

    __slots__ = ("_value", "name")

    def __init__(self, name: str) -> None:
        if name in SLOTS:
            raise OpDefinitionError(f"two slots are called {name!r}")
        self.name = name
        self._value: object = _EMPTY
        SLOTS[name] = cast("Late[object]", self)

    def fill(self, value: T) -> None:
        """What `get` is to give, said by the later stage where it is loaded."""
        self._value = value

    @property
    def is_filled(self) -> bool:
        return self._value is not _EMPTY

    def get(self) -> T:
        """The value. The first call may import what gives it."""
        if self._value is _EMPTY:
            self._load()
        return self._value  # type: ignore[return-value]

    def _load(self) -> None:
        if self.name not in LOADS:
            raise OpDefinitionError(f"no module is said to fill the slot {self.name!r}")
        import_module(LOADS[self.name])
        if self._value is _EMPTY:
            raise OpDefinitionError(f"{LOADS[self.name]} does not fill the slot {self.name!r}")
