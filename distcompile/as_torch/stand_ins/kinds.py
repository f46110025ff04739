"""What a stand-in is: a kind, a sentence on what it does here, and how its value is made.

In: what a table file says of a name. Out: `StandIn`; `make(name)` gives the object that stands under the name.
Invariant: nothing but what is said in `meaning` happens; an ERROR or TYPE tells its name and the user's line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from compiler_core.location import user_location
from distcompile.errors import NotSupportedError


class Kind(Enum):
    """What a stand-in does: see `distcompile/as_torch/table.py`."""

    TRUE = "true"
    RECORD = "record"
    TYPE = "type"
    ERROR = "error"
    NAMES = "names"


@dataclass(frozen=True, slots=True)
class StandIn:
    """kind, meaning: what is promised. make: from the full name to the value; called at its first use."""

    kind: Kind
    meaning: str
    make: Callable[[str], Any]


class RefusedError(NotSupportedError, OSError):
    """A name of torch that stands in for what distcompile cannot do was used. An OSError too: torch's loader of
    libraries raises one, and callers of it go on without."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} is not offered: {why}", where=user_location(),
                         remedy="do without it under --as-torch: docs/reference/as_torch.md")  # fmt: skip


def true(meaning: str, value: Any) -> StandIn:
    """`value` is what torch's name means here."""
    return StandIn(Kind.TRUE, meaning, lambda _: value)


def error(why: str) -> StandIn:
    """A function that says why it cannot be called."""
    return StandIn(Kind.ERROR, f"refused: {why}", lambda name: _refusing(name, why))


def nothing_is_one(why: str, methods: str = "") -> StandIn:
    """A class that nothing is an instance of. methods: of the class itself, which are refused too."""
    return StandIn(Kind.TYPE, f"no object is one: {why}", lambda name: _type(name, why, methods))


def names_only(members: str) -> StandIn:
    """An enumeration, whose members only refused names read."""

    def made(name: str) -> Any:
        return Enum(name.rpartition(".")[2], members)

    return StandIn(Kind.NAMES, "names; only refused functions read them", made)


def record(reader: str) -> StandIn:
    """A callable that keeps its arguments in `recorded`; as a decorator it gives back what it decorates.

    reader: the refused name that would read what is kept.
    """
    return StandIn(Kind.RECORD, f"kept, for {reader}, which is refused", RecordingName)


class RecordingName:
    """Keeps what it is called with. A call is a decorator, or with one function alone decorates it."""

    def __init__(self, name: str) -> None:
        self.name = self.__name__ = name
        self.recorded: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.recorded.append((args, kwargs))
        return args[0] if len(args) == 1 and callable(args[0]) else lambda fn: fn


def _refusing(name: str, why: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise RefusedError(name, why)

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    refuse.__doc__ = f"Raises NotSupportedError: {why}."
    return refuse


def _type(name: str, why: str, methods: str) -> type:
    def refuse(cls: Any, *args: Any, **kwargs: Any) -> Any:
        raise RefusedError(name, why)

    module, _, short = name.rpartition(".")
    own = {method: staticmethod(_refusing(f"{name}.{method}", why)) for method in methods.split()}
    body = {**own, "__new__": refuse, "__module__": module, "__doc__": f"Nothing is one: {why}."}
    return type(short, (), {**body, "__class_getitem__": classmethod(lambda cls, _: cls)})


def listed(module: str, names: str, stand_in: StandIn) -> dict[str, StandIn]:
    """The same stand-in for several names of a module."""
    return {f"{module}.{name}": stand_in for name in names.split()}
