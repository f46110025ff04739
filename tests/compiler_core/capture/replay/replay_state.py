"""Programs whose effects are on variables, attributes and containers. See `replay_programs`."""

from __future__ import annotations

import collections
import contextvars
import dataclasses
import types
from typing import Any, ClassVar

import distcompile as torch
from tests.compiler_core.capture.replay.replay_programs import KEPT, Box, Color, program

COUNT = 0


# -- variables, globals, classes, modules


@program
def global_counter(log: list[Any]) -> Any:
    def function(x: Any) -> Any:
        global COUNT
        COUNT += 1
        return x * COUNT

    return function, lambda: COUNT


@program
def global_table(log: list[Any]) -> Any:
    def function(x: Any) -> Any:
        KEPT["last"] = x + 1
        KEPT.setdefault("first", x)
        return x * len(KEPT)

    return function, KEPT


@program
def variable_of_the_maker(log: list[Any]) -> Any:
    n, total = 0, None

    def function(x: Any) -> Any:
        nonlocal n, total
        n += 1
        total = x if total is None else total + x
        return total * n

    return function, lambda: (n, total)


@program
def class_attributes(log: list[Any]) -> Any:
    class Mine(Box):
        shared: ClassVar[list[Any]] = []
        n = 0

    def function(x: Any) -> Any:
        Mine.shared.append(x * 2)
        Mine.n += 1
        return x * Mine.n

    return function, lambda: (Mine.shared, Mine.n)


@program
def module_attribute(log: list[Any]) -> Any:
    config = types.ModuleType("replay_config")
    config.N = 0  # type: ignore[attr-defined]

    def function(x: Any) -> Any:
        config.N += 1  # type: ignore[attr-defined]
        return x + config.N  # type: ignore[attr-defined]

    return function, lambda: config.N  # type: ignore[attr-defined]


@program
def mutable_default(log: list[Any]) -> Any:
    def function(x: Any, seen: list[Any] = []) -> Any:  # noqa: B006
        seen.append(len(seen))
        return x * len(seen)

    return function, lambda: function.__defaults__


@program
def context_variable(log: list[Any]) -> Any:
    depth: contextvars.ContextVar[int] = contextvars.ContextVar("depth", default=0)

    def function(x: Any) -> Any:
        token = depth.set(depth.get() + 1)
        y = x * depth.get()
        if depth.get() > 1:
            depth.reset(token)
        return y

    return function, depth.get


@program
def attributes_by_computed_names(log: list[Any]) -> Any:
    box = Box()

    def function(x: Any) -> Any:
        for i in range(3):
            setattr(box, f"a{i}", getattr(box, f"a{i}", 0) + i)
        if hasattr(box, "gone"):
            del box.gone
        else:
            box.gone = x
        return x * box.a2

    return function, box


@program
def vars_as_arguments(log: list[Any]) -> Any:
    config = Box(a=1, b=2)

    def inner(x: Any, a: int, b: int) -> Any:
        return x * a + b

    def function(x: Any) -> Any:
        config.a += 1
        return inner(x, **vars(config))

    return function, config


@program
def dataclass_as_dict(log: list[Any]) -> Any:
    @dataclasses.dataclass
    class Config:
        rate: float = 1.0
        names: list[str] = dataclasses.field(default_factory=list)

    config = Config()

    def function(x: Any) -> Any:
        config.names.append(f"n{len(config.names)}")
        config.rate *= 2
        return x * dataclasses.asdict(config)["rate"] + len(dataclasses.replace(config).names)

    return function, lambda: vars(config)


# -- containers


@program
def list_methods(log: list[Any]) -> Any:
    items: list[Any] = [3, 1, 2]

    def function(x: Any) -> Any:
        items.append(len(items))
        items.sort()
        items.insert(0, items.pop())
        items.reverse()
        items[1:2] = [7, 8]
        items.extend(range(2))
        items.remove(7)
        del items[-1]
        items[0] += 1
        return x * items[0]

    return function, items


@program
def dict_methods(log: list[Any]) -> Any:
    table: dict[Any, Any] = {"a": 1, "b": [2]}

    def function(x: Any) -> Any:
        table["n"] = table.get("n", 0) + 1
        table.setdefault("list", []).append(table["n"])
        table.update(c=table["n"], d=x)
        table.pop("a", None)
        log.append(table.popitem()[0])
        table.__ior__({"e": 5})
        del table["c"]
        return x * table["n"]

    return function, table


@program
def other_containers(log: list[Any]) -> Any:
    counts, queue = collections.Counter("a"), collections.deque([1], maxlen=3)
    ordered, lists = collections.OrderedDict(a=1, b=2), collections.defaultdict(list)
    names = {"x"}

    def function(x: Any) -> Any:
        counts.update("ab")
        counts["c"] += 1
        queue.append(len(queue))
        queue.rotate(1)
        ordered.move_to_end("a")
        ordered["c"] = ordered.pop("b", 0) + 1
        lists["k"].append(x.shape[0])
        names.add(f"n{len(names)}")
        names.discard("x")
        return x * counts["a"] + queue[0]

    return function, [counts, queue, ordered, lists, names]


@program
def containers_of_the_user(log: list[Any]) -> Any:
    class Noted(dict):
        def __setitem__(self, key: Any, value: Any) -> None:
            log.append(("set", key))
            super().__setitem__(key, value)

        def __missing__(self, key: Any) -> Any:
            self[key] = 0
            return 0

    table, wrapped = Noted(), collections.UserDict(a=1)
    seen = types.MappingProxyType(wrapped.data)

    def function(x: Any) -> Any:
        table["a"] += 1
        wrapped["a"] += table["a"]
        return x * seen["a"]

    return function, [table, wrapped.data]


@program
def tables_by_enum_and_dtype(log: list[Any]) -> Any:
    table: dict[Any, Any] = {Color.RED: 1, torch.float32: 2, Color: 3}

    def function(x: Any) -> Any:
        table[Color.RED] += table[torch.float32]
        table[Color.BLUE] = x
        table[x.dtype] += 1
        return x * table[Color.RED]

    return function, list(table.values())


@program
def alias_in_the_result(log: list[Any]) -> Any:
    def function(x: Any) -> Any:
        items = [x * 2]
        table = {"items": items, "again": items}
        items.append(table)
        return items, table, (items,)

    return function, None


@program
def objects_are_new_in_every_call(log: list[Any]) -> Any:
    kept: list[Any] = []

    def function(x: Any) -> Any:
        made = Box(x=x, items=[1])
        made.me = made
        kept.append(made)
        made.items.append(len(kept))
        return made

    return function, kept


@program
def argument_kept_and_returned(log: list[Any]) -> Any:
    box = Box(last=None)

    def function(x: Any) -> Any:
        before, box.last = box.last, x
        return [x, before, x is box.last]

    return function, box


@program
def views_shared_by_state_and_result(log: list[Any]) -> Any:
    box = Box(rows=[])

    def function(x: Any) -> Any:
        y = x * 2
        box.rows.append(y[:2])
        box.rows[-1].add_(1)
        return y

    return function, box


# -- attributes that run code


@program
def properties_and_items(log: list[Any]) -> Any:
    class Noted:
        def __init__(self) -> None:
            self._n = 0

        @property
        def n(self) -> int:
            log.append("get")
            return self._n

        @n.setter
        def n(self, value: int) -> None:
            log.append(("set", value))
            self._n = value

        def __setitem__(self, key: Any, value: Any) -> None:
            log.append((key, value))

        def __getattr__(self, name: str) -> Any:
            log.append(name)
            return 2

        def __iadd__(self, other: Any) -> Any:
            self._n += other
            return self

        def __len__(self) -> int:
            log.append("len")
            return self._n

    noted = Noted()
    box = Box(noted=noted)

    def function(x: Any) -> Any:
        noted.n += 1
        noted["k"] = noted.missing
        box.noted += 1
        return x * len(noted) if noted else x

    return function, lambda: noted._n


@program
def guarded_attributes(log: list[Any]) -> Any:
    class Guarded:
        def __setattr__(self, name: str, value: Any) -> None:
            log.append(name)
            object.__setattr__(self, name, value)

        def __delattr__(self, name: str) -> None:
            log.append(("del", name))
            object.__delattr__(self, name)

    guarded = Guarded()

    def function(x: Any) -> Any:
        guarded.x = x * 2
        guarded.n = getattr(guarded, "n", 0) + 1
        y = guarded.x + guarded.n
        del guarded.x
        return y

    return function, guarded
