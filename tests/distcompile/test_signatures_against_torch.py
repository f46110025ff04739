"""Every public class and function takes torch's arguments, in torch's order, with torch's defaults."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytest.importorskip("torch.utils.data")
pytestmark = pytest.mark.torch

PLACES = {
    "nn": dc.nn.__all__,
    "nn.functional": dc.nn.functional.__all__,
    "nn.init": [n for n in dir(dc.nn.init) if n.endswith("_") and not n.startswith("_")] + ["calculate_gain"],
    "nn.utils": dc.nn.utils.__all__,
    "optim": dc.optim.__all__,
    "optim.lr_scheduler": dc.optim.lr_scheduler.__all__,
    "utils.data": [n for n in dc.data.__all__ if n != "WorkerInfo"],
}
KNOWN = {
    "nn.Hardtanh",  # torch's also takes the deprecated min_value and max_value
    *(f"nn.functional.{kind}max_pool{k}d" for kind in ("", "adaptive_") for k in (1, 2, 3)),  # (*args, **kwargs)
    *(f"nn.functional.fractional_max_pool{k}d" for k in (2, 3)),  # (*args, **kwargs)
    "utils.data.Sampler",  # ours still takes data_source, as torch's did
    "utils.data.random_split",  # the default generator prints differently
}
CLASSES = ["nn.Module", "nn.Sequential", "nn.ModuleList", "nn.ModuleDict", "nn.Embedding", "nn.MultiheadAttention",
           "optim.Optimizer", "optim.lr_scheduler.LRScheduler", "utils.data.DataLoader"]  # fmt: skip
KNOWN_METHODS = {"forward", "state_dict", "extend"}  # (input) for (*args, **kwargs); deprecated positional ones; a name
NAMES = [f"{place}.{name}" for place, names in PLACES.items() for name in names]


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


@pytest.mark.parametrize("name", [n for n in NAMES if n not in KNOWN])
def test_signature_is_torchs(name: str) -> None:
    mine, want = signature(find(dc, name)), signature(find(torch, name))
    assert mine == want or want is None


@pytest.mark.parametrize("name", CLASSES)
def test_public_methods_are_torchs(name: str) -> None:
    mine, want = find(dc, name), find(torch, name)
    ours_only = {"has_stepped"}
    assert {m for m in dir(mine) if not m.startswith("_")} - set(dir(want)) <= ours_only
    for method in set(dir(mine)) & set(dir(want)) - KNOWN_METHODS:
        if not method.startswith("_") and callable(getattr(mine, method)):
            expected = signature(getattr(want, method))
            assert signature(getattr(mine, method)) == expected or expected is None, method
