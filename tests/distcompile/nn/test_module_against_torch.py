"""Modules do what torch's do: each scenario is run with both packages and must tell the same story.

A scenario gets a package (distcompile or torch) and returns plain data; errors are told as (torch's class, message).
"""

from __future__ import annotations

import copy
import pickle
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

BUILTIN = (KeyError, TypeError, AttributeError, ValueError, IndexError, RuntimeError)


def told(action: Callable[[], Any]) -> Any:
    """What an action returns, or the built-in error that it raises and the first line of its text."""
    try:
        result = action()
    except BUILTIN as error:
        kind = next(c.__name__ for c in BUILTIN if isinstance(error, c))
        return kind, normal(str(error.args[0]).splitlines()[0])
    return normal(repr(result))


def normal(text: str) -> str:
    """Without the package's name, sizes as plain tuples, and without the details that only we add."""
    text = re.sub(r"torch\.Size\(\[([\d, ]*)\]\)", lambda m: f"({m[1]})", text)
    text = re.sub(r"\((\d+),\)", r"(\1)", text)
    text = re.sub(r", got: [\w.]+$", "", text)
    text = re.sub(r"distcompile\.nn\.(module|parameter|linear)\.", "", text)
    text = re.sub(r"torch\.nn\.(modules\.\w+|parameter)\.", "", text)
    text = re.sub(r"(compiler_core\.tensor\.tensor\.|distcompile\.|torch\.)", "", text)
    return text.replace("FloatTensor", "Tensor").replace("torch Tensor", "Tensor")


def small(p: Any) -> Any:
    class Inner(p.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = p.nn.Linear(3, 2)
            self.register_buffer("count", p.zeros(2))
            self.register_buffer("scratch", p.ones(1), persistent=False)
            self.register_parameter("absent", None)

        def forward(self, x: Any) -> Any:
            return self.lin(x) + self.count

    class Outer(p.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = Inner()
            self.b = self.a
            self.w = p.nn.Parameter(p.ones(2))
            self.tied = self.w
            self.none = None

        def forward(self, x: Any) -> Any:
            return self.a(x) * self.w

    return Outer()


def iteration(p: Any) -> list[Any]:
    m = small(p)
    return [
        [n for n, _ in m.named_parameters()],
        [n for n, _ in m.named_parameters(remove_duplicate=False)],
        [n for n, _ in m.named_parameters(prefix="x", recurse=False)],
        [n for n, _ in m.named_buffers()],
        [n for n, _ in m.named_buffers(remove_duplicate=False)],
        [n for n, _ in m.named_modules()],
        [n for n, _ in m.named_modules(remove_duplicate=False)],
        [n for n, _ in m.named_children()],
        [len(list(f())) for f in (m.parameters, m.buffers, m.modules, m.children)],
        list(m.state_dict()),
        dict(m.state_dict()._metadata),
        repr(m),
    ]


def lookup(p: Any) -> list[Any]:
    m = small(p)
    return [
        m.get_submodule("a.lin") is m.a.lin,
        m.get_submodule("") is m,
        m.get_parameter("a.lin.weight") is m.a.lin.weight,
        m.get_buffer("a.count") is m.a.count,
        told(lambda: m.get_submodule("a.nothing")),
        told(lambda: m.get_submodule("w")),
        told(lambda: m.get_parameter("a.count")),
        told(lambda: m.get_buffer("w")),
        told(lambda: m.nothing),
        told(lambda: m.set_submodule("a.lin", p.nn.Identity())),
        repr(m.a),
    ]


def registration_errors(p: Any) -> list[Any]:
    m = p.nn.Linear(2, 2)

    class Early(p.nn.Module):
        def __init__(self) -> None:
            self.w = p.nn.Parameter(p.ones(1))

    class EarlyModule(p.nn.Module):
        def __init__(self) -> None:
            self.m = p.nn.Identity()

    return [
        told(lambda: m.register_parameter("a.b", None)),
        told(lambda: m.register_parameter("", None)),
        told(lambda: m.register_parameter(3, None)),
        told(lambda: m.register_parameter("forward", None)),
        told(lambda: m.register_parameter("q", p.ones(1))),
        told(lambda: setattr(m, "weight", 3)),
        told(lambda: setattr(m, "weight", p.ones(1))),
        told(lambda: m.register_buffer("a.b", None)),
        told(lambda: m.register_buffer("weight", None)),
        told(lambda: m.register_buffer("q", 3)),
        told(lambda: m.add_module("x.y", p.nn.Identity())),
        told(lambda: m.add_module("", p.nn.Identity())),
        told(lambda: m.add_module("weight", p.nn.Identity())),
        told(lambda: m.add_module("z", 3)),
        told(Early),
        told(EarlyModule),
        told(lambda: p.nn.Module()(1)),
    ]


def assignment(p: Any) -> list[Any]:
    m = small(p)
    m.w = None
    m.a.count = p.ones(2)
    m.a.lin = p.nn.Identity()
    m.fresh = p.nn.Parameter(p.zeros(1))
    m.plain = 3
    keys = list(m.state_dict())
    m.plain = p.nn.Identity()  # an attribute becomes a child
    m.fresh = None
    del m.a.count
    del m.b
    return [
        keys,
        list(m.state_dict()),
        [n for n, _ in m.named_modules()],
        told(lambda: setattr(m, "plain", 3)),
        "plain" in m.__dict__,
    ]


def non_leaf(p: Any) -> Any:
    m = p.nn.Module()
    w = p.nn.Parameter(p.ones(2))
    return told(lambda: m.register_parameter("w", w * 2))[0]


def loading(p: Any) -> list[Any]:
    m = small(p)
    good = copy.deepcopy(m.state_dict())
    wrong = OrderedDict(good)
    wrong["w"] = p.ones(3)
    del wrong["a.count"]
    wrong["a.lin.more"] = p.ones(1)
    wrong["zzz"] = p.ones(1)
    wrong["a.lin.bias"] = "text"
    partial = {"w": p.zeros(2)}

    def message() -> str:
        try:
            m.load_state_dict(wrong)
        except RuntimeError as error:
            return normal(str(error)).replace("Tensor or Tensor-like", "Tensor").replace("Tensor-like object", "Tensor")
        return "nothing raised"

    return [
        repr(m.load_state_dict(good)),
        re.sub(r"expected .* from checkpoint", "expected a tensor", message()),
        normal(repr(m.load_state_dict(partial, strict=False))),
        m.w.tolist(),
        told(lambda: m.load_state_dict([1])),
    ]


def assigning(p: Any) -> list[Any]:
    m = p.nn.Linear(2, 2, bias=False)
    m.weight.requires_grad_(False)
    new = p.zeros(2, 2, dtype=p.float64)
    before = m.weight
    m.load_state_dict({"weight": new}, assign=True)
    return [m.weight is before, repr(m.weight.dtype)[-7:], type(m.weight).__name__, m.weight.requires_grad]


def state_hooks(p: Any) -> list[Any]:
    m, log = small(p), []
    m.register_state_dict_pre_hook(lambda mod, prefix, keep: log.append(("pre", prefix, keep)))
    m.a.register_state_dict_post_hook(lambda mod, sd, prefix, meta: sd.update({prefix + "extra": p.ones(1)}))
    keys = list(m.state_dict())
    m.register_load_state_dict_pre_hook(lambda mod, sd, prefix, *rest: sd.pop("a.extra") and sd.pop("b.extra") and None)
    m.register_load_state_dict_post_hook(lambda mod, keys: log.append(("post", len(keys.missing_keys))))
    outcome = repr(m.load_state_dict(m.state_dict()))
    m.register_state_dict_post_hook(lambda *args: 3)
    return [log, keys, outcome, told(m.state_dict)]


def extra_state(p: Any) -> list[Any]:
    class Counter(p.nn.Module):
        n = 0

        def get_extra_state(self) -> Any:
            return {"n": self.n}

        def set_extra_state(self, state: Any) -> None:
            self.n = state["n"]

    m = p.nn.Sequential(Counter(), p.nn.Linear(1, 1))
    m[0].n = 5
    state = m.state_dict()
    m[0].n = 0
    m.load_state_dict(state)
    del state["0._extra_state"]
    return [list(m.state_dict()), m[0].n, told(lambda: m.load_state_dict(state))]


def conversion(p: Any) -> list[Any]:
    m = small(p)
    m.register_buffer("n", p.zeros(1, dtype=p.long))
    m.w.grad = p.ones(2)
    handle = m.w
    log = []
    for change in (m.double, m.half, m.bfloat16, m.float, lambda: m.to(p.float64), lambda: m.to("cpu", p.float32)):
        assert change() is m
        log.append([repr(t.dtype).partition(".")[2] for t in (m.w, m.w.grad, m.a.count, m.n)])
    m.to(p.ones(1, dtype=p.float64))
    return [log, handle is m.w, repr(m.w.dtype)[-7:], told(lambda: m.to(p.long)), m.w.is_leaf, m.w.requires_grad]


def modes(p: Any) -> list[Any]:
    m = small(p)
    m.train(False)
    off = [x.training for x in m.modules()]
    m.requires_grad_(False)
    frozen = [x.requires_grad for x in m.parameters()]
    m.w.grad = p.ones(2)
    m.zero_grad(set_to_none=False)
    zeros = m.w.grad.tolist()
    m.zero_grad()
    names = []
    m.apply(lambda x: names.append(type(x).__name__))
    return [off, frozen, zeros, m.w.grad is None, names, told(lambda: m.train(1))[0]]


def copies(p: Any) -> list[Any]:
    m = p.nn.Sequential(p.nn.Linear(2, 2), p.nn.LayerNorm(2), p.nn.Linear(2, 2))
    m[2].weight = m[0].weight
    m[0].weight.grad = p.ones(2, 2)
    c = copy.deepcopy(m)
    with p.no_grad():
        c[0].weight.fill_(3.0)
    d = pickle.loads(pickle.dumps(m))
    return [
        c[0].weight is c[2].weight,
        c[0].weight is not m[0].weight,
        c[0].weight.grad,
        bool((m[0].weight != 3.0).all()),
        d[0].weight is d[2].weight,
        d[0].weight.tolist() == m[0].weight.tolist(),
        type(d[0].weight).__name__,
        repr(d),
    ]


def sequential(p: Any) -> list[Any]:
    nn = p.nn
    m = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 3))
    named = nn.Sequential(OrderedDict(first=nn.Linear(1, 1), second=nn.Tanh()))
    log = [repr(m[1:]), repr(m[-1]), len(m), repr(named), repr(named[:1]), list(named.state_dict())]
    m.append(nn.Tanh()).insert(1, nn.Sigmoid()).extend([nn.Identity()])
    log.append(repr(m))
    del m[1:3]
    log += [repr(m), repr(m.pop(0)), repr(m + named), repr(nn.Sequential(nn.ReLU()) * 2)]
    m[0] = nn.ELU()
    m += nn.Sequential(nn.Tanh())
    m *= 2
    log += [
        repr(m),
        told(lambda: m[9]),
        told(lambda: m + 3),
        told(lambda: m * 0)[0],
        told(lambda: m.insert(99, nn.ELU())),
    ]
    return [*log, [k for k in dir(named) if k in ("first", "second", "0")]]


def module_list(p: Any) -> list[Any]:
    nn = p.nn
    m = nn.ModuleList([nn.Linear(1, 1) for _ in range(4)])
    log = [repr(m), repr(m[1:3]), len(m), list(m.state_dict())[:2]]
    m.insert(1, nn.ReLU())
    m.append(nn.ReLU())
    m.extend([nn.ReLU()])
    log.append(repr(m))
    del m[0]
    del m[-2:]
    log += [repr(m), repr(m.pop(0)), list(m._modules), repr(m + [nn.Tanh()])]
    m += [nn.Sigmoid()]
    return [
        *log,
        repr(m),
        told(lambda: m[9]),
        told(lambda: m.extend(3))[0],
        told(lambda: m(1))[0],
        repr(nn.ModuleList()),
    ]


def module_dict(p: Any) -> list[Any]:
    nn = p.nn
    m = nn.ModuleDict({"b": nn.ReLU(), "a": nn.Tanh()})
    m["c"] = nn.Identity()
    m.update([["d", nn.ELU()], ("b", nn.SELU())])
    log = [repr(m), list(m), list(m.keys()), len(m), "a" in m, [repr(v) for v in m.values()]]
    del m["a"]
    log += [
        repr(m.pop("b")),
        [k for k, _ in m.items()],
        told(lambda: m.update(3))[0],
        told(lambda: m.update([(1, 2, 3)]))[0],
    ]
    m.clear()
    return [*log, len(m), told(lambda: m.update([3]))[0]]


def parameter_containers(p: Any) -> list[Any]:
    nn = p.nn
    plist = nn.ParameterList([p.ones(1), nn.Parameter(p.zeros(2)), "text"])
    plist.append(p.ones(3))
    plist += [p.ones(1, 1)]
    pdict = nn.ParameterDict({"b": p.ones(1), "a": nn.Parameter(p.zeros(2))})
    pdict["c"] = p.ones(2, 2)
    other = pdict | nn.ParameterDict({"z": p.ones(1)})
    log = [
        normal(repr(plist)), [n for n, _ in plist.named_parameters()], len(plist), [type(x).__name__ for x in plist],
        normal(repr(plist[:2])), told(lambda: plist[9]), told(lambda: plist(1))[0],
        told(lambda: plist.extend(p.ones(2)))[0],
        list(pdict), normal(repr(pdict)), [n for n, _ in pdict.named_parameters()], list(other),
        pdict.get("q"), pdict.setdefault("q", None), "q" in pdict, list(reversed(pdict)), list(pdict.copy()),
    ]  # fmt: skip
    pdict.pop("q")
    log += [pdict.popitem()[0], list(pdict), told(lambda: pdict.pop("nothing"))[0]]
    pdict.clear()
    return [re.sub(r"\[(float32|Tensor) of", "[_ of", x) if isinstance(x, str) else x for x in [*log, len(pdict)]]


SCENARIOS = [
    iteration, lookup, registration_errors, assignment, non_leaf, loading, assigning, state_hooks, extra_state,
    conversion, modes, copies, sequential, module_list, module_dict, parameter_containers,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_same_story_as_torch(scenario: Callable[[Any], Any]) -> None:
    assert scenario(dc) == scenario(torch)
