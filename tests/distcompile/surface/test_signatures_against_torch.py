"""Every public class and function takes torch's arguments, in torch's order, with torch's defaults."""

from __future__ import annotations

import importlib
import inspect
import typing
from typing import Any

import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytest.importorskip("torch.utils.data")
pytestmark = pytest.mark.torch

PLACES = [
    "nn",
    "nn.functional",
    "nn.init",
    "nn.utils",
    "nn.utils.fusion",
    "nn.utils.parametrizations",
    "nn.utils.parametrize",
    "nn.utils.rnn",
    "nn.utils.stateless",
    "optim",
    "optim.lr_scheduler",
    "optim.swa_utils",
    "utils.data",
]
OLDER_INITS = """
uniform normal constant eye dirac xavier_uniform xavier_normal kaiming_uniform kaiming_normal orthogonal sparse
"""
DISPATCH = """
assert_int_or_pair boolean_dispatch handle_torch_function has_torch_function has_torch_function_unary
has_torch_function_variadic
"""
DATA_PIPES = """
DFIterDataPipe DataChunk IterDataPipe MapDataPipe argument_validation functional_datapipe
guaranteed_datapipes_determinism non_deterministic runtime_validation runtime_validation_disabled
"""
ANYTHING = "torch's is (*args, **kwargs)"
KNOWN = {
    "nn.Hardtanh": "torch's also takes the deprecated min_value and max_value",
    **{f"nn.functional.{kind}max_pool{k}d": ANYTHING for kind in ("", "adaptive_") for k in (1, 2, 3)},
    **{f"nn.functional.fractional_max_pool{k}d": ANYTHING for k in (2, 3)},
    **{f"nn.init.{n}": ANYTHING for n in OLDER_INITS.split()},
    "nn.utils.stateless.functional_call": "torch.func's name of the second argument",
    "utils.data.Sampler": "ours still takes data_source, as torch's did",
    "utils.data.random_split": "the default generator prints differently",
}  # fmt: skip
GPU = "float8 products of GPUs"
PIPES = "data pipes are another library's by now"
ABSENT = {
    "nn.Container": "deprecated since torch 0.4",
    "nn.NLLLoss2d": "deprecated since torch 0.4",
    "nn.LinearCrossEntropyOptions": "options of torch's implementation",
    "nn.factory_kwargs": "for those who write layers",
    "nn.functional.ScalingType": GPU,
    "nn.functional.SwizzleType": GPU,
    "nn.functional.grouped_mm": GPU,
    "nn.functional.scaled_grouped_mm": GPU,
    "nn.functional.scaled_mm": GPU,
    **{f"nn.functional.{n}": "torch's dispatch" for n in DISPATCH.split()},
    **{f"utils.data.{n}": PIPES for n in DATA_PIPES.split()},
    "optim.swap_in_optimizer_params_and_state": "for tools that move parameters between devices",
    "utils.data._DatasetKind": "torch's internals, though listed",
}  # fmt: skip
CLASSES = ["nn.Module", "nn.Sequential", "nn.ModuleList", "nn.ModuleDict", "nn.Embedding", "nn.MultiheadAttention",
           "optim.Optimizer", "optim.lr_scheduler.LRScheduler", "utils.data.DataLoader"]  # fmt: skip
KNOWN_METHODS = {"forward", "state_dict", "extend"}  # (input) for (*args, **kwargs); deprecated positional ones; a name


def public(place: str) -> list[str]:
    """What torch offers there, functions and classes of its own, and what we do."""
    theirs, mine = importlib.import_module(f"torch.{place}"), importlib.import_module(f"distcompile.{place}")
    listed = getattr(theirs, "__all__", None) or [n for n in dir(theirs) if not n.startswith("_")]
    own = [n for n in listed if callable(thing := getattr(theirs, n)) and is_torchs(thing) and n != "Tensor"]
    ours = [n for n in getattr(mine, "__all__", ()) if callable(getattr(mine, n)) and hasattr(theirs, n)]
    return [f"{place}.{name}" for name in sorted({*own, *ours})]


def is_torchs(thing: Any) -> bool:
    return (getattr(thing, "__module__", "") or "").startswith("torch")


NAMES = [name for place in PLACES for name in public(place)]


def find(package: Any, path: str) -> Any:
    for part in path.split("."):
        package = getattr(package, part)
    return package


def signature(thing: Any) -> list[str] | None:
    """The parameters as text, or None where Python cannot tell (torch's C functions)."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (ValueError, TypeError):
        return None
    return [describe(p) for p in parameters if p.name != "self"]


def describe(parameter: inspect.Parameter) -> str:
    default = parameter.default
    text = getattr(default, "__name__", repr(default)) if default is not inspect.Parameter.empty else "required"
    return f"{parameter.kind.name} {parameter.name} = {text}".replace("torch.", "").replace("distcompile.", "")


@pytest.mark.parametrize("name", [n for n in NAMES if n not in KNOWN and n not in ABSENT])
def test_signature_is_torchs(name: str) -> None:
    mine, want = signature(find(dc, name)), signature(find(torch, name))
    assert mine == want or want is None


def test_what_is_declared_is_so() -> None:
    assert {n for n in NAMES if not has(dc, n)} == set(ABSENT)
    assert {n for n in KNOWN if signature(find(dc, n)) == signature(find(torch, n))} == set()


def has(package: Any, path: str) -> bool:
    place, _, name = path.rpartition(".")
    return hasattr(find(package, place), name)


@pytest.mark.parametrize("place", PLACES)
def test_type_hints_resolve(place: str) -> None:
    """`typing.get_type_hints` of every public function, class and method, as tools call it."""
    for name in (n for n in NAMES if n.rpartition(".")[0] == place and n not in ABSENT):
        thing = find(dc, name)
        methods = [m for m in vars(thing).values() if inspect.isfunction(m)] if inspect.isclass(thing) else []
        for target in (thing, *methods):
            assert typing.get_type_hints(target) is not None, name


@pytest.mark.parametrize("name", CLASSES)
def test_public_methods_are_torchs(name: str) -> None:
    mine, want = find(dc, name), find(torch, name)
    ours_only = {"has_stepped", "takes_complex"}
    assert {m for m in dir(mine) if not m.startswith("_")} - set(dir(want)) <= ours_only
    for method in set(dir(mine)) & set(dir(want)) - KNOWN_METHODS:
        if not method.startswith("_") and callable(getattr(mine, method)):
            expected = signature(getattr(want, method))
            assert signature(getattr(mine, method)) == expected or expected is None, method
