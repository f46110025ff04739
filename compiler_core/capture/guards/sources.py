"""Sources: where a value that was there before the captured code came from, as an expression that later calls evaluate.

In: a root (an argument, a bound object) and steps from it (attributes, items, closure cells). Out: `Source`, which
compares by value; `expression` spells it in the check function's names, `text` as the user would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from compiler_core.capture.guards.cached_answers import kept_answer
from compiler_core.capture.guards.deaths import Mortal, is_mortal
from compiler_core.capture.guards.kinds import viewed
from compiler_core.records import dataclass

Bind: TypeAlias = Callable[[Any, str], str]


@dataclass(frozen=True, slots=True)
class Argument:
    """A value that the check function is given: `args[0]`, `kwargs['x']`, `args[1].locals[3]`."""

    code: str
    text: str


class Bound:
    """The very object `thing`: a globals dictionary, the module that was compiled, a class. It is not kept alive."""

    __match_args__ = ("thing", "text")
    __slots__ = ("_hash", "_kept", "text")

    def __init__(self, thing: Any, text: str) -> None:
        self._kept = Mortal(thing) if is_mortal(thing) else thing
        self._hash, self.text = id(thing), text

    @property
    def thing(self) -> Any:
        """None once it is gone."""
        return self._kept() if type(self._kept) is Mortal else self._kept

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bound) and self.thing is other.thing is not None

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Bound({self.text})"


@dataclass(frozen=True, slots=True)
class InDict:
    """`base.__dict__[name]`: an attribute of the object itself."""

    base: Source
    name: str

    @property
    def text(self) -> str:
        return f"{self.base.text}.{self.name}"


@dataclass(frozen=True, slots=True)
class Attribute:
    """`base.name` by `getattr`: a slot, or an attribute of an object written in C."""

    base: Source
    name: str

    @property
    def text(self) -> str:
        return f"{self.base.text}.{self.name}"


@dataclass(frozen=True, slots=True)
class Variable:
    """A global: `namespace[name]`."""

    namespace: Bound
    name: str

    @property
    def text(self) -> str:
        return self.name


class Item:
    """`base[key]`; a key that its repr does not spell is bound, and not kept alive."""

    __match_args__ = ("base", "key")
    __slots__ = ("_hash", "_key", "base")

    def __init__(self, base: Source, key: Any) -> None:
        plain = type(key) in (int, str)
        self.base, self._key = base, Mortal(key) if not plain and is_mortal(key) else key
        self._hash = hash((base, key if plain else id(key)))

    @property
    def key(self) -> Any:
        """None once it is gone."""
        return self._key() if type(self._key) is Mortal else self._key

    @property
    def text(self) -> str:
        return f"{self.base.text}[{shown(self.key)}]"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Item)
            and self.base == other.base
            and type(self.key) is type(other.key)
            and (self.key is other.key or (type(self.key) in (int, str) and self.key == other.key))
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Item({self.text})"


@dataclass(frozen=True, slots=True)
class CellContents:
    """What a closure's cell holds."""

    base: Source
    name: str

    @property
    def text(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Got:
    """`base.get()`, or with a default: what a ContextVar holds."""

    base: Bound
    default: tuple[Any, ...]

    @property
    def text(self) -> str:
        return f"{self.base.text}.get()"

    def __hash__(self) -> int:
        return hash(self.base)


@dataclass(frozen=True, slots=True)
class Raw:
    """`function(base)`: what an object holds, where its class would run code of the program's to show it."""

    base: Source
    function: Callable[[Any], Any]

    @property
    def text(self) -> str:
        return f"id({self.base.text})" if self.function is id else self.base.text


@dataclass(frozen=True, slots=True)
class Referent:
    """`base()`: what a weak reference refers to."""

    base: Source

    @property
    def text(self) -> str:
        return f"{self.base.text}()"


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a function that caches its results has kept as its answer. args: sources, or constants."""

    function: Bound
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def text(self) -> str:
        return f"{self.function.text}()"


@dataclass(frozen=True, slots=True)
class AtEnd:
    """What a clock shows once the graph has run, or a number that the graph computed: the recipe knows it, the check
    function does not."""

    number: int
    text: str
    is_read: bool = False

    @property
    def name(self) -> str:
        """The variable of the recipe that holds it."""
        return f"read{self.number}" if self.is_read else f"clock{self.number}"


Source: TypeAlias = (
    Argument | Bound | InDict | Attribute | Variable | Item | CellContents | Got | Raw | Referent | Answer | AtEnd
)


def shown(key: Any) -> str:
    """A key in the user's words. Not every object can show itself while it is captured."""
    plain = type(key) in (int, str, bool, float, bytes, type(None))
    return repr(key) if plain else f"a {type(key).__name__}"


def expression(source: Source, local: Callable[[Source], str], bind: Bind) -> str:
    """Code for `source`. local: the code of another source (evaluated before). bind: a name for an object."""
    match source:
        case Argument(code, _):
            return code
        case Bound(thing, _):
            return bind(thing, "bound")
        case InDict(base, name):
            return f"{local(base)}.__dict__[{name!r}]"
        case Attribute(Bound(thing, _), "__dict__") if isinstance(thing, type):
            return bind(vars(thing), "attributes")  # which shows the class as it is then
        case Attribute(base, name):
            return f"{local(base)}.{name}" if name.isidentifier() else f"getattr({local(base)}, {name!r})"
        case Variable(namespace, name):
            return f"{local(namespace)}[{name!r}]"
        case Item(base, key):
            spelled = repr(key) if type(key) in (int, str, bool, type(None)) else bind(key, "key")
            return f"{_table(base, local, bind)}[{spelled}]"
        case Got(base, default):
            return f"{local(base)}.get(*{bind(default, 'default')})"
        case CellContents(base, _):
            return f"{local(base)}.cell_contents"
        case Raw(base, function):
            return f"{bind(function, 'raw')}({local(base)})"
        case Referent(base):
            return f"{local(base)}()"
        case Answer(function, args, kwargs):
            given = "".join(f"{_spelled(arg, local, bind)}, " for arg in args)
            named = ", ".join(f"{name!r}: {_spelled(arg, local, bind)}" for name, arg in kwargs.items())
            return f"{bind(kept_answer, 'kept')}({local(function)}, ({given}), {{{named}}})"
    raise TypeError(f"{source!r} is no Source")


def _table(base: Source, local: Callable[[Source], str], bind: Bind) -> str:
    """What an item is taken from: of a class the dictionary that it has for life, which a proxy only shows."""
    match base:
        case Attribute(Bound(cls, _), "__dict__") if isinstance(cls, type):
            return bind(viewed(vars(cls)), "table")
    return local(base)


def _spelled(part: Any, local: Callable[[Source], str], bind: Bind) -> str:
    return local(part) if isinstance(part, Source) else bind(part, "constant")
