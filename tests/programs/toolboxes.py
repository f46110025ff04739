"""What holds research code together: registries, plug-ins, caches, dispatch tables, lazy objects."""

from __future__ import annotations

import abc
import functools
import operator
import typing
from collections import OrderedDict
from dataclasses import KW_ONLY, InitVar, asdict, dataclass, field, fields, is_dataclass
from functools import cached_property, reduce, singledispatch, singledispatchmethod
from typing import ClassVar, Generic, NamedTuple, Protocol, TypedDict, TypeVar, runtime_checkable

from tests.programs.harness import attempt, program

T = TypeVar("T")


@program
def registry_by_decorator_with_defaults(torch, compile):
    class Registry:
        def __init__(self):
            self._items, self.built = {}, []

        def register(self, name=None, **defaults):
            def inner(cls):
                self._items[name or cls.__name__.lower()] = (cls, defaults)
                return cls

            return inner

        def build(self, spec):
            spec = {"type": spec} if isinstance(spec, str) else dict(spec)
            cls, defaults = self._items[spec.pop("type")]
            self.built.append(cls.__name__)
            return cls(**{**defaults, **spec})

        def __contains__(self, name):
            return name in self._items

    blocks = Registry()

    @blocks.register(scale=2.0)
    class Scale:
        def __init__(self, scale):
            self.scale = scale

        def __call__(self, x):
            return x * self.scale

    @blocks.register("bias")
    class Shift:
        def __init__(self, by=1.0):
            self.by = by

        def __call__(self, x):
            return x + self.by

    @compile
    def run(x, specs):
        for block in map(blocks.build, specs):
            x = block(x)
        return x, "nothing" in blocks

    yield run(torch.ones(2), ["scale", {"type": "bias", "by": 3.0}])
    yield run(torch.ones(2), [{"type": "scale", "scale": 0.5}, "bias"])
    yield run(torch.ones(2), ["scale", {"type": "bias", "by": 3.0}])
    yield attempt(run, torch.ones(2), ["missing"])
    yield blocks.built


@program
def configuration_tree_with_overrides(torch, compile):
    @dataclass
    class Optimizer:
        lr: float = 0.1
        betas: tuple[float, float] = (0.9, 0.99)

    @dataclass
    class Model:
        width: int = 2
        layers: list[int] = field(default_factory=lambda: [1, 2])

    @dataclass
    class Config:
        optimizer: Optimizer = field(default_factory=Optimizer)
        model: Model = field(default_factory=Model)
        _: KW_ONLY
        scale: InitVar[float] = 1.0
        version: ClassVar[int] = 3

        def __post_init__(self, scale):
            self.effective = self.optimizer.lr * scale

        def override(self, text):
            path, value = text.split("=")
            *parents, name = path.split(".")
            target = reduce(getattr, parents, self)
            kind = type(getattr(target, name))
            setattr(target, name, kind(value))
            return self

    @compile
    def run(x, text):
        config = Config(scale=2.0).override(text)
        names = [f.name for f in fields(config)]
        flat = asdict(config)
        return x * config.optimizer.lr + config.model.width + config.effective, names, flat, is_dataclass(config)

    for text in ("optimizer.lr=0.5", "model.width=7", "optimizer.lr=0.25", "model.width=7"):
        yield run(torch.ones(2), text)
    yield attempt(run, torch.ones(2), "model.depth=1")


@program
def single_dispatch_on_the_kind_of_batch(torch, compile):
    class Pair(NamedTuple):
        left: typing.Any
        right: typing.Any

    @singledispatch
    def total(batch):
        raise TypeError(type(batch).__name__)

    @total.register
    def _(batch: dict):
        return sum(total(value) for value in batch.values())

    @total.register(list)
    @total.register(tuple)
    def _(batch):
        return sum(map(total, batch))

    @total.register
    def _(batch: float):
        return batch

    total.register(torch.Tensor, lambda batch: batch.sum())

    class Scaler:
        @singledispatchmethod
        def scale(self, x):
            return x

        @scale.register
        def _(self, x: int):
            return x * 10

    @compile
    def run(batch, k):
        return total(batch), Scaler().scale(k), Scaler().scale("text")

    x = torch.ones(2)
    for batch in ({"a": x, "b": [x, 1.0]}, [x, (x, 2.0)], Pair(x, x * 2), {"a": x, "b": [x, 3.0]}):
        yield run(batch, 4)
    yield attempt(run, {1, 2}, 4)


@program
def caches_keyed_by_shape_and_dtype(torch, compile):
    made = []

    class Positions:
        def __init__(self):
            self._cache = OrderedDict()

        def __call__(self, x):
            key = (tuple(x.shape), x.dtype)
            if key not in self._cache:
                made.append(key[0])
                self._cache[key] = torch.arange(float(x.shape[-1])).to(x.dtype)
                while len(self._cache) > 2:
                    self._cache.popitem(last=False)
            self._cache.move_to_end(key)
            return self._cache[key]

    positions = Positions()

    @compile
    def run(x):
        return x + positions(x)

    for n in (2, 3, 2, 4, 3):
        yield run(torch.zeros(1, n)), made, [key[0] for key in positions._cache]
    yield run(torch.zeros(1, 2, dtype=torch.float64)), made


@program
def lazily_made_attributes(torch, compile):
    class Lazy:
        built = 0

        def __init__(self, size):
            self.size = size

        @cached_property
        def table(self):
            type(self).built += 1
            return torch.arange(float(self.size)).cos()

        @functools.lru_cache(maxsize=None)  # noqa: B019
        def power(self, n):
            return self.size**n

        def __getattr__(self, name):
            if name.startswith("half_"):
                value = getattr(self, name.removeprefix("half_")) / 2
                setattr(self, name, value)
                return value
            raise AttributeError(name)

    lazy = Lazy(3)

    @compile
    def run(x, obj):
        return x * obj.table + obj.half_table + obj.half_size, obj.power(2), hasattr(obj, "other")

    yield run(torch.ones(3), lazy), Lazy.built, sorted(vars(lazy))
    yield run(torch.ones(3), lazy), Lazy.built
    del lazy.table
    yield run(torch.ones(3), lazy), Lazy.built
    yield run(torch.ones(2), Lazy(2)), Lazy.built


@program
def pipelines_of_generators(torch, compile):
    def source(x):
        for row in x:
            yield row

    def scaled(rows, by):
        for row in rows:
            yield row * by

    def windowed(rows, n):
        window = []
        for row in rows:
            window.append(row)
            if len(window) == n:
                yield torch.stack(window)
                window.pop(0)

    def tee_mean(rows, out):
        for row in rows:
            out.append(row.mean())
            yield row

    @compile
    def run(x, n):
        means = []
        pipeline = tee_mean(windowed(scaled(source(x), 2.0), n), means)
        first = next(pipeline)
        rest = [w.sum() for w in pipeline]
        return first, rest, means, next(pipeline, "end")

    for n in (1, 2, 2, 3):
        yield run(torch.arange(6.0).view(3, 2), n)
    yield attempt(run, torch.ones(1, 2), 2)


@program
def plugins_found_by_subclassing(torch, compile):
    class Plugin(abc.ABC):
        order = 0
        found: ClassVar[dict] = {}

        def __init_subclass__(cls, /, key=None, **kwargs):
            super().__init_subclass__(**kwargs)
            Plugin.found[key or cls.__name__] = cls

        @abc.abstractmethod
        def apply(self, x): ...

        @classmethod
        def make(cls, key, *args):
            return cls.found[key](*args)

    class Double(Plugin, key="double"):
        order = 2

        def apply(self, x):
            return x * 2

    class AddN(Plugin):
        order = 1

        def __init__(self, n=1):
            self.n = n

        def apply(self, x):
            return x + self.n

    @compile
    def run(x, keys):
        plugins = sorted((Plugin.make(key) for key in keys), key=operator.attrgetter("order"))
        for plugin in plugins:
            x = plugin.apply(x)
        return x, [type(p).__name__ for p in plugins], isinstance(plugins[0], Plugin)

    yield run(torch.ones(2), ["double", "AddN"])
    yield run(torch.ones(2), ["AddN"])
    yield run(torch.ones(2), ["double", "AddN"])
    yield attempt(run, torch.ones(2), ["none"]), attempt(Plugin)


@program
def protocols_and_typed_dicts(torch, compile):
    @runtime_checkable
    class HasLoss(Protocol):
        def loss(self, x): ...

    class Batch(TypedDict, total=False):
        x: typing.Any
        weight: float

    class Task:
        def loss(self, x):
            return x.square().sum()

    class Box(Generic[T]):
        def __init__(self, item: T):
            self.item = item

        def map(self, fn) -> Box:
            return type(self)(fn(self.item))

    @compile
    def run(batch, task):
        x = batch["x"] * batch.get("weight", 1.0)
        box = Box[int](x).map(torch.tanh)
        return (task.loss(x) if isinstance(task, HasLoss) else x.sum()), box.item, Batch(x=x)["x"] is x

    for batch in (Batch(x=torch.ones(2)), Batch(x=torch.ones(2), weight=3.0), Batch(x=torch.ones(2), weight=4.0)):
        yield run(batch, Task()), run(batch, "no task")
