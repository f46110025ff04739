"""Changes of what a program can reach: one small change each, to ask whether guards notice it.

In: a function that was compiled, and arguments. Out: `changes`: (what, how) for everything reachable through globals
that code names, closures, defaults, attributes, classes and containers: a value replaced by another of its kind, by an
equal copy, by one of another kind; an attribute or item added, removed, renamed; functions with other code, or with the
same code and other variables. `how()` makes the change; it is not taken back.
"""

from __future__ import annotations

import copy
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import distcompile as torch

Change = tuple[str, Callable[[], Any]]
OURS = ("distcompile", "compiler_core", "collectives")
DEEPEST = 6
# of a class, what Python or typing put there
NOT_THEIRS = ("__dict__", "__weakref__", "__module__", "_is_protocol", "_is_runtime_protocol")


class Walk:
    """Everything reachable is visited once. namespaces: whose names may change only as far as code uses them."""

    def __init__(self) -> None:
        self.seen: dict[int, Any] = {}
        self.found: list[Change] = []

    def slot(self, text: str, value: Any, put: Callable[[Any], Any], depth: int) -> None:
        """A place that holds `value`: what may come to be there instead, and what lies behind."""
        for what, other in replacements(value):
            self.found.append((f"{text} becomes {what}", lambda other=other: put(other())))  # type: ignore[misc]
        self.visit(text, value, depth + 1)

    def visit(self, text: str, value: Any, depth: int = 0) -> None:
        if id(value) in self.seen or depth > DEEPEST:
            return
        self.seen[id(value)] = value
        if isinstance(value, types.MethodType):
            self.visit(text, value.__func__, depth)
            self.visit(f"{text}.__self__", value.__self__, depth)
        elif isinstance(value, types.FunctionType):
            self.function(text, value, depth)
        elif isinstance(value, type):
            if is_users(value.__module__):
                self.of_class(text, value, depth)
        elif isinstance(value, torch.Tensor):
            self.tensor(text, value, depth)
        elif isinstance(value, (list, deque)):
            self.sequence(text, value, depth)
        elif isinstance(value, dict):
            self.dictionary(text, value, depth)
        elif isinstance(value, (set, tuple)):
            if isinstance(value, set):
                self.found.append((f"{text}.add", lambda: value.add("added")))
                self.found += [(f"{text}.discard", lambda x=x: value.discard(x)) for x in list(value)[:1]]
            for place, item in enumerate(value):
                self.visit(f"{text}[{place}]", item, depth + 1)
        elif not isinstance(value, types.ModuleType):
            self.instance(text, value, depth)

    def function(self, text: str, function: Any, depth: int) -> None:
        if not is_users(function.__globals__.get("__name__", "")):  # where it was written: a wrapper says otherwise
            return
        names, table = named_by(function.__code__), function.__globals__
        for name in sorted(names & set(function.__globals__)):
            held = function.__globals__[name]
            if isinstance(held, types.ModuleType):
                self.module(name, held, names, depth)
            else:
                self.slot(name, held, lambda new, name=name: table.__setitem__(name, new), depth)
        for name in sorted((names & {"len", "abs", "print", "sum", "max"}) - set(function.__globals__)):
            self.found.append((f"a global hides {name}", lambda name=name: table.__setitem__(name, lambda *a, **k: 1)))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            if name == "__class__":  # nobody gives that another value
                continue
            try:
                held = cell.cell_contents
            except ValueError:
                continue
            self.slot(f"{text}:{name}", held, lambda new, cell=cell: setattr(cell, "cell_contents", new), depth)
        for place, held in enumerate(function.__defaults__ or ()):
            self.slot(
                f"{text}.__defaults__[{place}]", held, lambda new, place=place: put_default(function, place, new), depth
            )
        code = function.__code__
        changed = code.replace(co_consts=tuple(map(another, code.co_consts)))
        self.found.append((f"{text}.__code__", lambda: setattr(function, "__code__", changed)))

    def module(self, text: str, module: Any, names: set[str], depth: int) -> None:
        for name in sorted(names & set(vars(module))):
            held = vars(module)[name]
            if callable(held) and module.__name__ != "math":
                put = lambda new, name=name: setattr(module, name, new)  # noqa: E731
                self.slot(f"{text}.{name}", held, put, depth + DEEPEST)

    def of_class(self, text: str, cls: Any, depth: int) -> None:
        own = {name: held for name, held in vars(cls).items() if name not in NOT_THEIRS}
        for name, held in own.items():
            self.slot(f"{text}.{name}", held, lambda new, name=name: setattr(cls, name, new), depth)
            self.found.append((f"{text}.{name} is deleted", lambda name=name: delattr(cls, name)))
            self.found.append((f"{text}.{name} goes, another comes", lambda name=name: renamed(cls, name, "other_one")))
        for name in ("__getattr__", "__bool__", "__len__", "__eq__"):
            if name not in own:
                for gone in [gone for gone in own if not gone.startswith("__")][:1]:
                    new = special(name)
                    self.found.append(
                        (
                            f"{text}.{gone} goes, {name} comes",
                            lambda name=name, gone=gone, new=new: (delattr(cls, gone), setattr(cls, name, new)),
                        )
                    )

    def tensor(self, text: str, tensor: Any, depth: int) -> None:
        self.found.append((f"{text}.grad", lambda: setattr(tensor, "grad", torch.zeros_like(tensor.detach()))))
        self.found.append((f"{text}.mark", lambda: setattr(tensor, "mark", 1)))
        if tensor.is_leaf and tensor.is_floating_point():
            self.found.append((f"{text}.requires_grad", lambda: tensor.requires_grad_(not tensor.requires_grad)))
        for name, held in list(vars(tensor).items()):
            self.slot(f"{text}.{name}", held, lambda new, name=name: setattr(tensor, name, new), depth)

    def sequence(self, text: str, values: Any, depth: int) -> None:
        self.found.append((f"{text}.append", lambda: values.append(values[-1] if values else 0)))
        if values:
            self.found.append((f"{text}.pop", values.pop))
        if len(values) > 1:
            self.found.append((f"{text}.reverse", values.reverse))
        for place, held in enumerate(values):
            self.slot(f"{text}[{place}]", held, lambda new, place=place: values.__setitem__(place, new), depth)

    def dictionary(self, text: str, table: Any, depth: int) -> None:
        self.found.append((f"{text} gets a key", lambda: table.__setitem__("added", 0)))
        for key, held in list(table.items()):
            self.slot(f"{text}[{key!r}]", held, lambda new, key=key: table.__setitem__(key, new), depth)
        for key in list(table)[:2]:
            self.found.append((f"{text}[{key!r}] goes", lambda key=key: table.pop(key)))
            self.found.append((f"{text}[{key!r}] moves", lambda key=key: table.__setitem__(key, table.pop(key))))
            self.found.append((f"{text}[{key!r}] renamed", lambda key=key: table.__setitem__("new", table.pop(key))))

    def instance(self, text: str, thing: Any, depth: int) -> None:
        cls = type(thing)
        is_module = isinstance(thing, torch.nn.Module)
        if not is_users(cls.__module__) and not is_module:
            return
        own = getattr(thing, "__dict__", {})
        for name, held in list(own.items()):
            if not (is_module and name.startswith("_")):
                self.slot(f"{text}.{name}", held, lambda new, name=name: setattr(thing, name, new), depth)
                self.found.append((f"{text}.{name} is deleted", lambda name=name: delattr(thing, name)))
        if is_module:
            self.found.append((f"{text}.train()", lambda: thing.train(not thing.training)))
            self.found.append((f"a hook on {text}", lambda: thing.register_forward_hook(lambda *args: None)))
            for name, child in thing.named_children():
                self.slot(f"{text}.{name}", child, lambda new, name=name: setattr(thing, name, new), depth)
            for name, held in [*thing.named_parameters(recurse=False), *thing.named_buffers(recurse=False)]:
                self.visit(f"{text}.{name}", held, depth + 1)
                new = lambda name=name, held=held: setattr(thing, name, copy.deepcopy(held))  # noqa: E731
                self.found.append((f"{text}.{name} becomes a copy", new))
        for name, held in list(vars(cls).items()):
            if isinstance(held, types.FunctionType) and not name.startswith("__") and own is not None:
                hiding = lambda name=name: setattr(thing, name, lambda *args, **kwargs: 0)  # noqa: E731
                self.found.append((f"{text}.{name} hides the method", hiding))
        for name in getattr(cls, "__slots__", ()):
            if hasattr(thing, name):
                self.slot(
                    f"{text}.{name}", getattr(thing, name), lambda new, name=name: setattr(thing, name, new), depth
                )
                self.found.append((f"{text}.{name} is deleted", lambda name=name: delattr(thing, name)))
            else:
                self.found.append((f"{text}.{name} is set", lambda name=name: setattr(thing, name, 3)))
        other = lambda: types.new_class("Other", (cls,))  # noqa: E731
        self.found.append((f"{text}.__class__", lambda: setattr(thing, "__class__", other())))
        self.visit(f"type({text})", cls, depth + 1)


def changes(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Change]:
    """All changes of what these reach."""
    walk = Walk()
    walk.visit(getattr(function, "__name__", "self"), function)
    for place, value in enumerate(args):
        walk.visit(f"args[{place}]", value)
    for name, value in kwargs.items():
        walk.visit(name, value)
    yield from walk.found


def replacements(value: Any) -> list[tuple[str, Callable[[], Any]]]:
    """What a place that holds `value` may come to hold."""
    if isinstance(value, bool):
        return [("its opposite", lambda: not value), ("the number", lambda: int(value))]
    if isinstance(value, int):
        return [("one more", lambda: value + 1), ("a float", lambda: float(value))]
    if isinstance(value, float):
        return [("more", lambda: value + 0.5)]
    if isinstance(value, str):
        return [("longer", lambda: value + "x")]
    if value is None:
        return [("a number", lambda: 3)]
    if isinstance(value, torch.Tensor):
        return [
            ("a copy", lambda: copy.deepcopy(value.detach())),
            ("another shape", lambda: torch.stack([value.detach(), value.detach()])),
            ("another dtype", lambda: value.detach().to(torch.float64)),
            ("a number", lambda: 2.0),
        ]
    if isinstance(value, types.FunctionType):
        return [("another function", lambda: lambda *args, **kwargs: 1.5), ("a copy", lambda: function_like(value))]
    if isinstance(value, (list, dict, set, deque)):
        return [("a copy", lambda: copy.copy(value)), ("empty", lambda: type(value)() if is_plain(value) else [])]
    if isinstance(value, type):
        return [("a subclass", lambda: types.new_class("Other", (value,)))]
    if isinstance(value, types.ModuleType):
        return []
    return [("a copy", lambda: copy.copy(value)), ("None", lambda: None)]


def is_plain(value: Any) -> bool:
    return type(value) in (list, dict, set, deque)


def function_like(function: Any) -> Any:
    """A function with the same code and other variables: ints are one more."""
    cells = tuple(types.CellType(another(cell.cell_contents)) for cell in function.__closure__ or ())
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, None, cells)
    made.__defaults__ = function.__defaults__ and tuple(map(another, function.__defaults__))
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    return made


def another(value: Any) -> Any:
    return value + 1 if type(value) in (int, float) else value


def put_default(function: Any, place: int, new: Any) -> None:
    values = list(function.__defaults__)
    values[place] = new
    function.__defaults__ = tuple(values)


def renamed(cls: Any, old: str, new: str) -> None:
    """An attribute of a class goes, and another comes: their number is the same."""
    held = vars(cls)[old]
    delattr(cls, old)
    setattr(cls, new, held)


def special(name: str) -> Any:
    return {"__getattr__": lambda self, name: 7, "__bool__": lambda self: False, "__len__": lambda self: 0}.get(
        name, lambda self, other: True
    )


def is_users(module: str) -> bool:
    return module.partition(".")[0] == "tests" or module == "__main__"


def named_by(code: types.CodeType) -> set[str]:
    """The names that code and the code in it mention."""
    inner = [named_by(const) for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*inner)
