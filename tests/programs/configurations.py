"""Configurations: dataclasses, named tuples, enums, dicts, and code that is steered by them."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections import UserDict, namedtuple
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import NamedTuple

from tests.programs.harness import attempt, program


class Activation(enum.Enum):
    RELU = "relu"
    TANH = "tanh"
    NONE = "none"


class Flags(enum.Flag):
    BIAS = enum.auto()
    SCALE = enum.auto()
    CLAMP = enum.auto()


@dataclass
class Config:
    width: int = 4
    activation: Activation = Activation.RELU
    dropout: float = 0.0
    extra: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Frozen:
    scale: float
    shift: float = 1.0

    @property
    def both(self):
        return self.scale + self.shift


class Span(NamedTuple):
    start: int
    stop: int

    def length(self):
        return self.stop - self.start


@program(codegen=True)
def activation_from_a_dataclass(torch, compile):
    table = {Activation.RELU: torch.relu, Activation.TANH: torch.tanh, Activation.NONE: lambda x: x}

    @compile
    def layer(x, cfg):
        y = table[cfg.activation](x[:, : cfg.width])
        return y * (1 - cfg.dropout) + cfg.extra.get("bias", 0)

    x = torch.arange(12.0).reshape(2, 6) - 5
    yield layer(x, Config())
    yield layer(x, Config(activation=Activation.TANH))
    yield layer(x, Config(width=3, extra={"bias": 1.5}))
    cfg = Config()
    yield layer(x, cfg)
    cfg.activation = Activation.NONE
    yield layer(x, cfg)
    cfg.extra["bias"] = 10
    yield layer(x, cfg)


@program
def frozen_dataclass_with_property(torch, compile):
    @compile
    def affine(x, c):
        return x * c.scale + c.both

    for c in (Frozen(2.0), Frozen(2.0, 3.0), Frozen(2.0), replace(Frozen(1.0), shift=0.5)):
        yield affine(torch.ones(3), c)
    yield attempt(setattr, Frozen(1.0), "scale", 2)


@program
def keywords_from_asdict(torch, compile):
    @dataclass
    class Options:
        scale: float = 1.0
        power: int = 2

    def kernel(x, *, scale, power):
        return (x * scale) ** power

    @compile
    def run(x, options):
        return kernel(x, **asdict(options))

    options = Options()
    yield run(torch.arange(3.0), options)
    options.scale = 0.5
    yield run(torch.arange(3.0), options)
    options.power = 3
    yield run(torch.arange(3.0), options)
    yield astuple(options)


@program
def keywords_from_vars(torch, compile):
    def norm(x, eps=1e-6, centre=False):
        x = x - x.mean() if centre else x
        return x / (x.pow(2).mean() + eps).sqrt()

    cfg = types.SimpleNamespace(eps=1e-3, centre=False)

    @compile
    def run(x):
        return norm(x, **vars(cfg))

    yield run(torch.arange(4.0))
    cfg.centre = True
    yield run(torch.arange(4.0))
    cfg.eps = 1.0
    yield run(torch.arange(4.0))


@program
def dataclass_made_inside(torch, compile):
    @dataclass
    class Output:
        hidden: object
        loss: object = None
        steps: int = 0

    @compile
    def forward(x, target=None):
        out = Output(hidden=x.tanh())
        if target is not None:
            out.loss = (out.hidden - target).pow(2).mean()
        out.steps += 1
        return out

    out = forward(torch.ones(3))
    yield type(out).__name__, out.hidden, out.loss, out.steps
    out = forward(torch.ones(3), torch.zeros(3))
    yield type(out).__name__, out.hidden, out.loss, out.steps
    yield [f.name for f in dataclasses.fields(out)]


@program
def named_tuples_in_and_out(torch, compile):
    Pair = namedtuple("Pair", ["first", "second"])

    @compile
    def swap(pair, span):
        window = pair.first[span.start : span.stop] * span.length()
        return Pair(first=pair.second, second=window), pair._replace(first=window.sum())

    p = Pair(torch.arange(5.0), torch.ones(2))
    yield swap(p, Span(1, 3))
    yield swap(p, Span(0, 4))
    yield swap(p, span=Span(1, 3))


@program
def enum_flags(torch, compile):
    @compile
    def run(x, flags):
        if flags & Flags.SCALE:
            x = x * 3
        if Flags.BIAS in flags:
            x = x + 1
        if flags & Flags.CLAMP:
            x = x.clamp(max=4.0)
        return x

    x = torch.arange(3.0)
    yield run(x, Flags.SCALE)
    yield run(x, Flags.SCALE | Flags.BIAS)
    yield run(x, Flags.SCALE | Flags.BIAS | Flags.CLAMP)
    yield run(x, Flags(0))
    yield run(x, Flags.SCALE)


@program
def configuration_of_nested_dicts(torch, compile):
    config = {"layers": [{"kind": "linear", "scale": 2.0}, {"kind": "square"}], "final": {"kind": "mean"}}

    def apply(x, spec):
        match spec:
            case {"kind": "linear", "scale": scale}:
                return x * scale
            case {"kind": "square"}:
                return x * x
            case {"kind": "mean", **rest}:
                return x.mean() + len(rest)
            case _:
                raise KeyError(spec["kind"])

    @compile
    def run(x):
        for spec in config["layers"]:
            x = apply(x, spec)
        return apply(x, config["final"])

    x = torch.arange(4.0)
    yield run(x)
    config["layers"].append({"kind": "linear", "scale": -1.0})
    yield run(x)
    config["final"]["keepdim"] = True
    yield run(x)
    config["layers"][0]["scale"] = 1.0
    yield run(x)
    config["layers"][1] = {"kind": "cube"}
    yield attempt(run, x)


@program
def mapping_proxy_and_user_dict(torch, compile):
    class Registry(UserDict):
        def __missing__(self, key):
            self.data[key] = len(self.data)
            return self.data[key]

    names = Registry(a=10)
    constants = {"scale": 2.0}
    view = types.MappingProxyType(constants)

    @compile
    def run(x, name):
        return x * view["scale"] + names[name]

    yield run(torch.ones(2), "a")
    yield run(torch.ones(2), "b")
    yield run(torch.ones(2), "b")
    constants["scale"] = 5.0
    names["b"] = 7
    yield run(torch.ones(2), "b")
    yield dict(names)


@program
def global_settings_module(torch, compile):
    settings = types.ModuleType("settings")
    settings.N, settings.names = 2, []

    @compile
    def run(x):
        settings.N += 1
        settings.names.append(f"call {settings.N}")
        return x * settings.N

    for _ in range(4):
        yield run(torch.ones(2))
    yield settings.N, settings.names


@program
def post_init_and_class_variables(torch, compile):
    @dataclass
    class Block:
        made = 0
        width: int
        weight: object = None

        def __post_init__(self):
            type(self).made += 1
            if self.weight is None:
                self.weight = torch.ones(self.width) * type(self).made

        def __call__(self, x):
            return x * self.weight

    @compile
    def run(x):
        return Block(3)(x)

    for _ in range(3):
        yield run(torch.arange(3.0))
    yield Block.made


@program
def defaults_by_or_and_ternaries(torch, compile):
    @compile
    def run(x, scale=None, name="", dims=()):
        scale = scale or 2.0
        label = name.upper() or "NONE"
        y = x * scale
        y = y.sum(dims) if dims else y
        return y, label, f"{label:>8}|{scale:.2f}|{len(dims)}"

    yield run(torch.ones(2, 3))
    yield run(torch.ones(2, 3), 3.0, "abc")
    yield run(torch.ones(2, 3), dims=(1,))
    yield run(torch.ones(2, 3), 0, dims=[0, 1])
