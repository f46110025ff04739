"""Semantics that do everything as CPython does: what the machine is tested by, and how an instruction is done for real.

In: see `semantics.Semantics`. Out: the same results, effects and exceptions as CPython's. With inline=True, calls of
Python functions, methods and classes answer `Enter`, so that the machine runs nested frames itself.
`machine` is the machine that asks (it sets it).
"""

from __future__ import annotations

import builtins
import operator
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode import matching, reflection
from compiler_core.bytecode.binding import make_frame
from compiler_core.bytecode.frame import Enter, Frame
from compiler_core.bytecode.generators import InterpretedGenerator, to_exception
from compiler_core.bytecode.program import program_of
from compiler_core.bytecode.semantics import STOP

if TYPE_CHECKING:
    from compiler_core.bytecode.machine import Machine

BINARY: dict[str, Any] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "@": operator.matmul,
    "**": operator.pow,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
IN_PLACE: dict[str, Any] = {
    "+": operator.iadd,
    "-": operator.isub,
    "*": operator.imul,
    "/": operator.itruediv,
    "//": operator.ifloordiv,
    "%": operator.imod,
    "@": operator.imatmul,
    "**": operator.ipow,
    "<<": operator.ilshift,
    ">>": operator.irshift,
    "&": operator.iand,
    "|": operator.ior,
    "^": operator.ixor,
}
UNARY: dict[str, Any] = {"-": operator.neg, "+": operator.pos, "~": operator.invert}
COMPARE: dict[str, Any] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
CONVERT: dict[str, Any] = {"": lambda value: value, "s": str, "r": repr, "a": ascii}
MISSING = object()
# by identity: to hash a callable may run the user's code
READERS = {id(function): reader for function, reader in reflection.READERS.items()}


class NativeSemantics:
    """Everything as CPython does it. inline: Python code that is called runs in the machine."""

    machine: Machine | None = None
    undone = False  # what ran by it has been taken back: generators that are left of that do not run to their end

    def __init__(self, inline: bool = False) -> None:
        self.inline = inline

    # variables

    def load_fast(self, frame: Frame, slot: int) -> Any:
        return frame.locals[slot]

    def load_cell(self, frame: Frame, slot: int) -> Any:
        return frame.locals[slot].cell_contents

    def store_cell(self, frame: Frame, slot: int, value: Any) -> None:
        frame.locals[slot].cell_contents = value

    def delete_cell(self, frame: Frame, slot: int) -> None:
        del frame.locals[slot].cell_contents

    def load_global(self, frame: Frame, name: str) -> Any:
        value = frame.globals.get(name, MISSING)
        if value is MISSING:
            value = frame.builtins.get(name, MISSING)
            if value is MISSING:
                raise NameError(f"name '{name}' is not defined", name=name)
        return value

    def store_global(self, frame: Frame, name: str, value: Any) -> None:
        frame.globals[name] = value

    def delete_global(self, frame: Frame, name: str) -> None:
        if name not in frame.globals:
            raise NameError(f"name '{name}' is not defined", name=name)
        del frame.globals[name]

    def load_name(self, frame: Frame, name: str) -> Any:
        if frame.namespace is not None and name in frame.namespace:
            return frame.namespace[name]
        return self.load_global(frame, name)

    def store_name(self, frame: Frame, name: str, value: Any) -> None:
        reflection.namespace(frame)[name] = value

    def delete_name(self, frame: Frame, name: str) -> None:
        names = reflection.namespace(frame)
        if name not in names:
            raise NameError(f"name '{name}' is not defined", name=name)
        del names[name]

    # attributes and items

    def load_attr(self, owner: Any, name: str) -> Any:
        return getattr(owner, name)

    def load_super_attr(self, cls: type, self_: Any, name: str) -> Any:
        return getattr(super(cls, self_), name)

    def store_attr(self, owner: Any, name: str, value: Any) -> Any:
        setattr(owner, name, value)

    def delete_attr(self, owner: Any, name: str) -> Any:
        delattr(owner, name)

    def get_item(self, owner: Any, key: Any) -> Any:
        return owner[key]

    def store_item(self, owner: Any, key: Any, value: Any) -> Any:
        owner[key] = value

    def delete_item(self, owner: Any, key: Any) -> Any:
        del owner[key]

    # operators

    def binary(self, op: str, left: Any, right: Any) -> Any:
        return BINARY[op](left, right)

    def in_place(self, op: str, left: Any, right: Any) -> Any:
        return IN_PLACE[op](left, right)

    def unary(self, op: str, value: Any) -> Any:
        return UNARY[op](value)

    def compare(self, op: str, left: Any, right: Any) -> Any:
        return COMPARE[op](left, right)

    def contains(self, item: Any, container: Any) -> Any:
        return item in container

    def is_same(self, left: Any, right: Any) -> bool:
        return left is right

    def truth(self, value: Any) -> Any:
        return bool(value)

    # iteration

    def iterate(self, value: Any) -> Any:
        return iter(value)

    def advance(self, iterator: Any) -> Any:
        if type(iterator) is InterpretedGenerator:
            frame = iterator.resume()
            return STOP if frame is None else Enter(frame)
        return next(iterator, STOP)

    def unpack(self, value: Any, count: int, after: int) -> Any:
        if after >= 0:
            return matching.unpack_with_rest(value, count, after)
        return matching.unpack(value, count)

    # calls

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answer = self.call_special(function, args, kwargs)
        if answer is not MISSING:
            return answer
        if self.inline:
            answer = self.enter(function, args, kwargs)
            if answer is not None:
                return answer
        if self.machine is None or not self.machine.frames:
            return function(*args, **kwargs)
        return reflection.call_from(self.machine.frames, function, args, kwargs)

    def call_special(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What would look at the caller's frame, or advances an interpreted generator; else MISSING."""
        if function is next and args and type(args[0]) is InterpretedGenerator:
            return advance_generator(*args)
        owner = getattr(function, "__self__", None)
        if type(owner) is InterpretedGenerator:
            return call_generator(owner, function, args, kwargs)
        reader = READERS.get(id(function))
        if reader is None or self.machine is None:
            return MISSING
        answer = reader(self.machine.frames, args, kwargs)
        return MISSING if answer is NotImplemented else answer

    def enter(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Enter | None:
        """The frame that a call runs, if it is Python code's that the machine can run."""
        if type(function) is FunctionType:
            if program_of(function.__code__).refusal():
                return None
            return Enter(make_frame(function, args, kwargs))
        if type(function) is MethodType:
            if type(function.__func__) is FunctionType:
                return self.enter(function.__func__, (function.__self__, *args), kwargs)
            return None
        if isinstance(function, type):
            return enter_class(function, args, kwargs)
        method = matching.lookup_raw(type(function), "__call__")
        if type(method) is FunctionType:
            return self.enter(method, (function, *args), kwargs)
        return None

    def format(self, value: Any, conversion: str, spec: str) -> Any:
        return format(CONVERT[conversion](value), spec)

    def join(self, pieces: list[str]) -> str:
        return "".join(pieces)

    def make_function(self, frame: Frame, code: Any, parts: dict[str, Any]) -> Any:
        function = FunctionType(code, frame.globals, closure=parts.get("__closure__"))
        for name, value in parts.items():
            if name != "__closure__":
                setattr(function, name, value)
        return function

    def build_class(self, frame: Frame, body: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return builtins.__build_class__(body, *args, **kwargs)

    def import_name(self, frame: Frame, name: str, fromlist: Any, level: int) -> Any:
        importer = frame.builtins["__import__"]
        return importer(name, frame.globals, reflection.variables(frame), fromlist, level)

    def import_from(self, module: Any, name: str) -> Any:
        return reflection.import_from(module, name)

    # containers

    def collect(self, target: Any, name: str, *values: Any) -> None:
        getattr(target, name)(*values)

    def as_tuple(self, items: list[Any]) -> tuple[Any, ...]:
        return tuple(items)

    def as_key(self, value: Any) -> Any:
        return value

    def extend(self, target: list[Any] | set[Any], values: Any) -> Any:
        if isinstance(target, set):
            target.update(values)
            return
        if not hasattr(values, "__iter__") and not hasattr(values, "__getitem__"):
            raise TypeError(f"Value after * must be an iterable, not {type(values).__name__}")
        target.extend(values)

    def merge(self, target: dict[Any, Any], mapping: Any, call: Any) -> Any:
        if call is not None:
            matching.merge_keywords(target, mapping, call)
        elif not hasattr(mapping, "keys"):
            raise TypeError(f"'{type(mapping).__name__}' object is not a mapping")
        else:
            target.update(mapping)

    # context managers and exceptions

    def enter_with(self, manager: Any) -> Any:
        enter, leave = matching.context_methods(manager)
        answer = self.call(enter, (), {})
        if type(answer) is Enter:
            return Enter(answer.frame, "ENTERED", (leave,))
        return leave, answer

    def chain(self, error: Any, cause: Any) -> None:
        pass

    def match_exception(self, error: Any, kinds: Any) -> bool:
        return matching.match_exception(error, kinds)

    def match_mapping(self, value: Any) -> bool:
        return matching.is_mapping(value)

    def match_sequence(self, value: Any) -> bool:
        return matching.is_sequence(value)

    def match_keys(self, value: Any, keys: tuple[Any, ...]) -> Any:
        return matching.match_keys(value, keys)

    def match_class(self, value: Any, cls: Any, count: int, names: tuple[str, ...]) -> Any:
        return matching.match_class(value, cls, count, names)


def advance_generator(generator: InterpretedGenerator, default: Any = MISSING, value: Any = None) -> Any:
    """next(generator[, default]), or generator.send(value)."""
    frame = generator.resume(value)
    if frame is not None:
        return Enter(frame) if default is MISSING else Enter(frame, "DEFAULT", (default,))
    if default is MISSING:
        raise StopIteration
    return default


def call_generator(generator: InterpretedGenerator, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A bound method of a generator: the machine runs its frame where that is all there is to it."""
    name = method.__name__
    if name == "__next__" and not args:
        return advance_generator(generator)
    if name == "send" and len(args) == 1:
        return advance_generator(generator, value=args[0])
    if name == "throw" and args and generator.delegate() is None:
        error = to_exception(args[0], *args[1:2])
        frame = generator.resume_raising(error)
        if frame is not None:
            return Enter(frame)
    return method(*args, **kwargs)


def enter_class(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Enter | None:
    """The first frame that cls(*args, **kwargs) runs."""
    if type(cls).__call__ is not type.__call__:
        return None
    if type(cls.__new__) is FunctionType:
        return Enter(make_frame(cls.__new__, (cls, *args), kwargs), "CONSTRUCT", (cls, args, kwargs))
    if type(cls.__init__) is not FunctionType or issubclass(cls, type):  # type: ignore[misc]
        return None
    made = cls.__new__(cls, *args, **kwargs)
    if not isinstance(made, cls):
        return Enter(make_frame(identity, (made,), {}))
    init = type(made).__init__
    return Enter(make_frame(init, (made, *args), kwargs), "INSTANCE", (made,))


def identity(value: Any) -> Any:
    return value
