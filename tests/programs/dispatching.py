"""Dispatch: by string, type, enum and pattern; registries; operators of one's own."""

from __future__ import annotations

import enum
import functools
import operator

from tests.programs.harness import attempt, program


class Reduction(str, enum.Enum):
    MEAN = "mean"
    SUM = "sum"
    NONE = "none"


class Stage(enum.IntEnum):
    FIRST = 1
    SECOND = 2


@program
def loss_by_name(torch, compile):
    F = torch.nn.functional

    @compile
    def loss(x, y, kind="mse", reduction="mean"):
        if kind == "mse":
            value = F.mse_loss(x, y, reduction="none")
        elif kind.startswith("l1"):
            value = (x - y).abs()
        elif kind in {"huber", "smooth"}:
            value = F.smooth_l1_loss(x, y, reduction="none")
        else:
            raise NotImplementedError(kind)
        return {"mean": torch.mean, "sum": torch.sum, "none": lambda v: v}[reduction](value)

    x, y = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0])
    yield loss(x, y)
    yield loss(x, y, "l1_clipped", "sum")
    yield loss(x, y, kind="huber", reduction="none")
    yield attempt(loss, x, y, "unknown")
    yield attempt(loss, x, y, "mse", "unknown")


@program
def string_enum(torch, compile):
    @compile
    def reduce(x, how):
        if how is Reduction.NONE:
            return x
        return getattr(x, how.value)() + (how == "sum")

    x = torch.arange(3.0)
    for how in Reduction:
        yield reduce(x, how)
    yield reduce(x, Reduction("mean"))
    yield attempt(reduce, x, None)


@program
def registry_by_decorator(torch, compile):
    registry = {}

    def register(name):
        def add(fn):
            registry[name] = fn
            return fn

        return add

    @register("relu")
    def _relu(x):
        return x.clamp(min=0)

    @register("square")
    def _square(x):
        return x * x

    @compile
    def run(x, names):
        for name in names.split("+"):
            x = registry[name.strip()](x)
        return x

    x = torch.tensor([-2.0, 3.0])
    yield run(x, "relu")
    yield run(x, "square + relu")
    registry["relu"] = lambda x: x + 100
    yield run(x, "relu")
    yield attempt(run, x, "cube")


@program
def match_on_structure(torch, compile):
    @compile
    def evaluate(x, expression):
        def ev(e):
            match e:
                case int() | float():
                    return torch.full_like(x, e)
                case "x":
                    return x
                case ("add", a, b):
                    return ev(a) + ev(b)
                case ("mul", *factors) if len(factors) > 1:
                    return functools.reduce(operator.mul, map(ev, factors))
                case [name, a]:
                    return getattr(torch, name)(ev(a))
                case _:
                    raise SyntaxError(f"what is {e!r}?")

        return ev(expression)

    x = torch.tensor([0.5, 1.0])
    yield evaluate(x, ("add", "x", 2))
    yield evaluate(x, ("mul", "x", "x", ("sin", "x")))
    yield evaluate(x, ("add", 1.5, ("exp", ("mul", 2, "x"))))
    yield attempt(evaluate, x, ("mul", 1))
    yield attempt(evaluate, x, "y")


@program
def match_on_classes(torch, compile):
    class Point:
        __match_args__ = ("x", "y")

        def __init__(self, x, y):
            self.x, self.y = x, y

    @compile
    def where(t, p):
        match p:
            case Point(0, 0):
                return t * 0
            case Point(x, 0):
                return t * x
            case Point(x=0, y=y):
                return t - y
            case Point(x, y) if x == y:
                return t + x
            case Point():
                return t
        return -t

    t = torch.ones(2)
    for p in (Point(0, 0), Point(3, 0), Point(0, 4), Point(5, 5), Point(1, 2), None):
        yield where(t, p)


@program
def single_dispatch(torch, compile):
    @functools.singledispatch
    def to_tensor(value):
        raise TypeError(type(value).__name__)

    @to_tensor.register
    def _(value: int):
        return torch.tensor(float(value))

    @to_tensor.register(list)
    @to_tensor.register(tuple)
    def _(value):
        return torch.stack([to_tensor(v) for v in value])

    to_tensor.register(torch.Tensor, lambda value: value)

    @compile
    def run(x, value):
        return x + to_tensor(value)

    x = torch.zeros(2)
    yield run(x, 3)
    yield run(x, [1, 2])
    yield run(x, (torch.tensor(1.0), 5))
    yield attempt(run, x, "text")


@program
def isinstance_chains(torch, compile):
    @compile
    def describe(value):
        if isinstance(value, torch.Tensor):
            return value * 2, "tensor"
        if isinstance(value, bool):
            return torch.tensor(value), "bool"
        if isinstance(value, (int, float)):
            return torch.tensor(value * 2), type(value).__name__
        if isinstance(value, dict):
            return {k: describe_inner(v) for k, v in value.items()}, "dict"
        if value is None or not callable(value):
            return None, "nothing"
        return value(torch.ones(1)), "callable"

    def describe_inner(value):
        return value + 1 if torch.is_tensor(value) else str(value)

    for value in (torch.ones(1), True, 3, 2.5, {"a": torch.ones(1), "b": 7}, None, "text", torch.neg):
        yield describe(value)


@program
def operator_overloading(torch, compile):
    class Interval:
        def __init__(self, low, high):
            self.low, self.high = low, high

        def __add__(self, other):
            if not isinstance(other, Interval):
                return Interval(self.low + other, self.high + other)
            return Interval(self.low + other.low, self.high + other.high)

        __radd__ = __add__

        def __neg__(self):
            return Interval(-self.high, -self.low)

        def __sub__(self, other):
            return self + -other

        def __mul__(self, k):
            return Interval(self.low * k, self.high * k) if k >= 0 else -(self * -k)

        def __contains__(self, x):
            return bool(((self.low <= x) & (x <= self.high)).all())

        def __matmul__(self, w):
            centre, radius = (self.low + self.high) / 2, (self.high - self.low) / 2
            return Interval(centre @ w - radius @ w.abs(), centre @ w + radius @ w.abs())

        def __eq__(self, other):
            return isinstance(other, Interval) and torch.equal(self.low, other.low)

        __hash__ = None

    @compile
    def bound(x, eps, w):
        box = Interval(x - eps, x + eps)
        out = ((3 + box) @ w - box @ w) * -2
        return out.low, out.high, box == box, box != out

    w = torch.tensor([[1.0, -1.0], [0.5, 2.0]])
    for eps in (0.1, 0.5):
        yield bound(torch.ones(1, 2), eps, w)


@program
def rich_comparisons_and_hash(torch, compile):
    @functools.total_ordering
    class Version:
        def __init__(self, *parts):
            self.parts = parts

        def __eq__(self, other):
            return self.parts == other.parts

        def __lt__(self, other):
            return self.parts < other.parts

        def __hash__(self):
            return hash(self.parts)

    weights = {Version(1, 0): 2.0, Version(2, 1): 3.0}

    @compile
    def run(x, version):
        if version >= Version(2):
            x = -x
        newest = max(weights)
        return x * weights.get(version, 1.0), newest.parts, sorted(v.parts for v in weights)

    yield run(torch.ones(1), Version(1, 0))
    yield run(torch.ones(1), Version(2, 1))
    weights[Version(3)] = 9.0
    yield run(torch.ones(1), Version(3))


@program
def int_enum_and_comparisons(torch, compile):
    @compile
    def run(x, stage):
        chain = 0 < stage < 3
        if stage >= Stage.SECOND:
            x = x * stage
        return x + (10 if stage is Stage.FIRST else 0), chain, stage.name.lower(), stage % 2

    yield run(torch.ones(1), Stage.FIRST)
    yield run(torch.ones(1), Stage.SECOND)
    yield run(torch.ones(1), Stage(1))


@program
def string_formatting_names(torch, compile):
    table = {f"layer.{k}.weight": k + 1.0 for k in range(3)}

    @compile
    def run(x, prefix):
        names = [n for n in table if n.startswith(prefix)]
        total = sum(table[n] for n in names)
        label = f"{prefix!r:>10} {total:.1f} " + "%d" % len(names) + f" {x.shape[0]}"
        parts = "|".join(sorted(n.rpartition(".")[2].title() for n in names))
        return x * total, label, parts

    yield run(torch.ones(2), "layer.")
    yield run(torch.ones(2), "layer.1")
    yield run(torch.ones(3), "none")
