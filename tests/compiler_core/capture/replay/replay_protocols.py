"""Programs with effects through protocols of classes, exceptions, managers and output. See `replay_programs`."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator
from typing import Any, ClassVar

from tests.compiler_core.capture.replay.replay_programs import Box, program

# -- protocols of classes


@program
def descriptors(log: list[Any]) -> Any:
    class Checked:
        def __set_name__(self, owner: type, name: str) -> None:
            self.name = f"_{name}"

        def __get__(self, thing: Any, owner: Any = None) -> Any:
            log.append("get")
            return vars(thing).get(self.name, 0)

        def __set__(self, thing: Any, value: Any) -> None:
            log.append("set")
            vars(thing)[self.name] = value

    class Thing:
        n = Checked()

    thing = Thing()

    def function(x: Any) -> Any:
        thing.n += 1
        return x * thing.n

    return function, lambda: vars(thing)


@program
def registry_of_a_class(log: list[Any]) -> Any:
    class Meta(type):
        made = 0

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            Meta.made += 1
            return super().__call__(*args, **kwargs)

    class Thing(metaclass=Meta):
        registry: ClassVar[dict[str, Any]] = {}

        def __init__(self, name: str) -> None:
            self.name = name
            type(self).registry[name] = self

        @classmethod
        def count(cls) -> int:
            return len(cls.registry)

        @staticmethod
        def named(name: str) -> Any:
            return Thing.registry[name]

    def function(x: Any) -> Any:
        Thing(f"t{Meta.made}")
        return x * Thing.count() + len(Thing.named("t0").name)

    return function, lambda: (Meta.made, list(Thing.registry))


@program
def containers_by_protocol(log: list[Any]) -> Any:
    class Bag:
        def __init__(self) -> None:
            self.items: list[Any] = []

        def __iter__(self) -> Iterator[Any]:
            log.append("iter")
            yield from self.items

        def __contains__(self, item: Any) -> bool:
            log.append(("in", item))
            return item in self.items

        def __getitem__(self, place: Any) -> Any:
            return self.items[place]

        def __len__(self) -> int:
            return len(self.items)

        def __call__(self, item: Any) -> Any:
            self.items.append(item)
            return self

        def __bool__(self) -> bool:
            log.append("bool")
            return True

        def __eq__(self, other: object) -> bool:
            log.append("eq")
            return True

        def __hash__(self) -> int:
            return 1

    bag = Bag()

    def function(x: Any) -> Any:
        bag(len(bag))(7)
        total = sum(bag) + bag[0] + max(bag)
        if bag and 7 in bag and bag == 3:
            total += len([*bag])
        return x * total

    return function, lambda: bag.items


@program
def dict_subclass_with_super(log: list[Any]) -> Any:
    class Config(dict):
        def __getattr__(self, name: str) -> Any:
            try:
                return self[name]
            except KeyError as error:
                raise AttributeError(name) from error

        def __setattr__(self, name: str, value: Any) -> None:
            self[name] = value

        def __getitem__(self, key: Any) -> Any:
            log.append(key)
            return super().__getitem__(key)

    config = Config(n=1, rate=0.5)

    def function(x: Any) -> Any:
        config.n += 1
        config.last = x
        log.append(getattr(config, "missing", None))
        return x * config.n + config["rate"] + len(config)

    return function, lambda: dict(config)


@program
def frozen_set_through_object(log: list[Any]) -> Any:
    @dataclasses.dataclass(frozen=True)
    class Frozen:
        n: int

        def bump(self) -> None:
            object.__setattr__(self, "n", self.n + 1)

    thing = Frozen(1)

    def function(x: Any) -> Any:
        thing.bump()
        try:
            thing.n = 5  # type: ignore[misc]
        except dataclasses.FrozenInstanceError:
            log.append("frozen")
        return x * thing.n

    return function, lambda: thing.n


@program
def weak_tables(log: list[Any]) -> Any:
    owner, other = Box(), Box()
    values: Any = weakref.WeakValueDictionary(a=owner)
    things: Any = weakref.WeakSet([owner])

    def function(x: Any) -> Any:
        values["b"] = other
        things.add(other)
        values["a"].n = getattr(values["a"], "n", 0) + 1
        return x * len(values) + len(things) + owner.n

    return function, lambda: (sorted(values), len(things), owner.n)


@program
def locals_of_a_thread(log: list[Any]) -> Any:
    local = threading.local()
    local.n = 0

    def function(x: Any) -> Any:
        local.n += 1
        return x * local.n

    return function, lambda: local.n


# -- exceptions, managers, output


@program
def errors_kept(log: list[Any]) -> Any:
    box = Box(errors=[])

    class Mine(ValueError):
        def __init__(self, x: Any, n: int) -> None:
            super().__init__(f"n={n}")
            self.x, self.n = x, n

    def function(x: Any) -> Any:
        try:
            try:
                raise KeyError("inner")
            except KeyError as error:
                raise Mine(x * 2, len(box.errors)) from error
        except Mine as error:
            box.errors.append(error)
            log.append(type(error.__cause__).__name__)
        return box.errors[-1].x + box.errors[0].n

    return function, lambda: [(error.n, error.x, error.args) for error in box.errors]


@program
def returns_in_finally(log: list[Any]) -> Any:
    def inner(x: Any, n: int) -> Any:
        try:
            if n == 1:
                return x
            raise ValueError(n)
        except ValueError:
            return x * 2
        finally:
            log.append(n)
            if n == 3:
                return x * 3  # noqa: B012

    def function(x: Any) -> Any:
        return [inner(x, n) for n in range(4)]

    return function, None


@program
def managers_with_breaks(log: list[Any]) -> Any:
    @contextlib.contextmanager
    def noted(name: str) -> Iterator[Any]:
        log.append(f"enter {name}")
        try:
            yield len(log)
        except KeyError:
            log.append(f"caught in {name}")
        finally:
            print("leaving", name)
            log.append(f"leave {name}")

    def function(x: Any) -> Any:
        with noted("a") as a:
            with noted("b"), contextlib.suppress(ZeroDivisionError):
                x = x * a
                print("inside", x.shape)
                raise KeyError
            x = x + 1
        return x

    return function, None


@program
def output_elsewhere(log: list[Any]) -> Any:
    file = io.StringIO()

    def function(x: Any) -> Any:
        print("shape", *x.shape, sep="=", end=";", file=file)
        file.write("written ")
        sys.stdout.write("out\n")
        with contextlib.redirect_stdout(file):
            print("redirected")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn("careful", stacklevel=1)
        log.append([str(warning.message) for warning in caught])
        return x * len(file.getvalue())

    return function, file.getvalue


@program
def breaks_between_effects(log: list[Any]) -> Any:
    box = Box(n=0, items=[], table={})

    def function(x: Any) -> Any:
        box.n += 1
        box.items.append(x * box.n)
        print("one", box.n)
        box.table[box.n] = box.items[-1] + 1
        local = [box.items, box.table]
        print("two", len(local[0]))
        box.n += 10
        local[0].append(box.table[box.n - 10])
        made = Box(all=local)
        made.me = made
        print("three", box.n)
        made.n = box.n
        return made

    return function, box
