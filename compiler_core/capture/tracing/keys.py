"""Keys of dictionaries and members of sets: C code hashes and compares them, which may run code of the program's.

In: what is about to be hashed, and the containers that it is compared in. Out: nothing, if that code only compares what
its objects hold, which is guarded then; else a graph break, so that what it does is done in every call.
What goes by identity is told here too, for `is`.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Iterable
from types import FunctionType
from typing import Any

from compiler_core.bytecode.semantics import Break
from compiler_core.capture.guards.kinds import is_constant, own_attributes
from compiler_core.capture.numbers.symbols import KINDS, is_symbol
from compiler_core.capture.tracing.attributes import Attributes
from compiler_core.capture.tracing.classes import Classes
from compiler_core.capture.tracing.lookup import is_fixed_class, lookup
from compiler_core.capture.tracing.part import Part
from compiler_core.location import is_ours
from compiler_core.records import dataclass
from compiler_core.tensor.tensor import Tensor

NAMES = ("__hash__", "__eq__")
MOST_PAIRS = 32  # objects of a container that one is told apart from, one by one

# what such a method may call, and the instructions that could do more
CALLED = (hash, isinstance, issubclass, type, tuple, frozenset, len, bool, int)
BARRED = ("STORE_", "DELETE_", "IMPORT_", "YIELD", "LOAD_METHOD", "LOAD_SUPER", "PUSH_NULL", "CALL_FUNCTION", "MAKE_")


@dataclass(eq=False, repr=False)
class Keys(Part):
    """See the head of this file."""

    classes: Classes
    attributes: Attributes

    def __post_init__(self) -> None:
        super().__post_init__()
        self.plain_keys: dict[int, tuple[Any, int]] = {}  # id of a container -> it, and how many keys it had then

    def check_key(self, key: Any) -> None:
        """`key` is hashed, or compared. Raises Break if that runs code of the program's that might do more."""
        if type(key) in (tuple, frozenset):
            self.check_members(key)
            return
        for name, method in methods_of(type(key)):
            self.classes.guard_names(type(key))
            if not only_compares(method, type(key)):
                raise Break(f"{type(key).__name__}.{name}(), which a dictionary or set calls, is code of the program's")
            for part in method.__code__.co_names:
                if part in (own_attributes(key) or ()):
                    value = self.numbers.specialise(self.attributes.load_attr(key, part))
                    self.contents.read_deeply(value)
                    self.check_key(value)

    def as_key(self, value: Any) -> Any:
        value = self.numbers.specialise(value)
        self.check_key(value)
        self._identify(*(value if type(value) in (tuple, frozenset) else (value,)))
        return value

    def key_in(self, container: Any, key: Any) -> None:
        """`key` is looked for in a dictionary or set, or put there."""
        self.check_key(key)
        self.check_keys(container)
        if type(key) in (tuple, frozenset):
            self._identify(*key)
        elif self._goes_by_identity(key) and not (isinstance(container, dict) and dict.__contains__(container, key)):
            self.tell_apart(key, container)

    def tell_apart(self, one: Any, container: Any) -> None:
        """C code compares `one` with others, by identity: what was another object must be one at later calls, too."""
        if not self._goes_by_identity(one):
            return
        if self.outside.has(container):
            self.contents.read_whole(container)
        others = dict.keys(container) if isinstance(container, dict) else container
        alike = [other for other in others if type(other) is type(one) and other is not one]
        if len(alike) > MOST_PAIRS:
            self._identify(one)
            return
        for other in alike:
            self.is_same(one, other)

    def is_same(self, left: Any, right: Any) -> bool:
        if left is right:
            return True
        if any(is_symbol(a) and not is_symbol(b) and type(b) not in KINDS for a, b in ((left, right), (right, left))):
            return False  # a number is not what is none
        left, right = self.numbers.specialise(left), self.numbers.specialise(right)
        if left is right or is_constant(left) or is_constant(right):
            return left is right
        one, other = self.outside.find(left), self.outside.find(right)
        if one is not None and other is not None and not (one.fixed and other.fixed):
            a, b = self.code.local(one.source), self.code.local(other.source)
            self.code.require(f"{a} is not {b}", f"{one.source.text} is not {other.source.text}")
        return False

    def _goes_by_identity(self, value: Any) -> bool:
        """Whether C code compares a thing by what it is, and another may come in its place."""
        known = self.outside.find(value)
        return known is not None and not known.fixed and type(value).__hash__ in (object.__hash__, Tensor.__hash__)

    def _identify(self, *values: Any) -> None:
        """From here on these must be the very objects, where they go by that."""
        for value in filter(self._goes_by_identity, values):
            known = self.outside.find(value)
            assert known is not None
            code = self.code.guards.same(self.code.local(known.source), value)
            self.code.require_once(code, f"{known.source.text} is the same {type(value).__name__}")

    def check_keys(self, *containers: Any) -> None:
        """`check_key` of all that dictionaries and sets among these hold."""
        for container in containers:
            if isinstance(container, (dict, set, frozenset)) and container and not self._is_plain(container):
                members = dict.keys(container) if isinstance(container, dict) else container
                if not self.check_members(members):
                    self.plain_keys[id(container)] = container, len(container)

    def _is_plain(self, container: Any) -> bool:
        """Whether it was looked at before, and had no keys of the program's classes. What is put in is checked, too."""
        before = self.plain_keys.get(id(container))
        return before is not None and before[0] is container and before[1] == len(container)

    def check_members(self, members: Iterable[Any]) -> bool:
        """`check_key` of each. Whether any needed it."""
        given = list(iter(members))  # a class may refuse to be counted
        kinds = {kind for kind in set(map(type, given)) if kind in (tuple, frozenset) or methods_of(kind)}
        for member in given if kinds else ():
            if type(member) in kinds:
                self.check_key(member)
        return bool(kinds)


def methods_of(cls: type) -> list[tuple[str, FunctionType]]:
    """Those of the program's that hash and compare instances of a class."""
    if is_fixed_class(cls) or issubclass(cls, Tensor):
        return []
    found = [(name, *lookup(cls, name)) for name in NAMES]
    return [
        (name, method)
        for name, method, base in found
        if isinstance(method, FunctionType) and not is_fixed_class(base) and not is_ours(method.__code__.co_filename)
    ]


def only_compares(method: FunctionType, cls: type) -> bool:
    """Whether a method of `cls` only compares and hashes what its arguments hold."""
    return all(_is_harmless(step, method, cls) for step in dis.get_instructions(method.__code__))


def _is_harmless(step: dis.Instruction, method: FunctionType, cls: type) -> bool:
    name = step.opname
    if name == "LOAD_GLOBAL":
        value = method.__globals__.get(step.argval, getattr(builtins, step.argval, None))
        return any(value is known for known in CALLED) if (step.arg or 0) & 1 else _is_fact(value)
    if name == "LOAD_DEREF":
        cells = dict(zip(method.__code__.co_freevars, method.__closure__ or ()))
        return step.argval in cells and _is_fact(cells[step.argval].cell_contents)
    if name == "LOAD_ATTR" and ("NULL|self" in step.argrepr or hasattr(lookup(cls, step.argval)[0], "fget")):
        return False
    return name.startswith("STORE_FAST") or not name.startswith(BARRED)


def _is_fact(value: Any) -> bool:
    """Whether a name of it may be read in passing: a class, for `isinstance`."""
    return isinstance(value, type) or value is NotImplemented
